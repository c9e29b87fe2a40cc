# SPDX-License-Identifier: Apache-2.0
"""The commit that results name: that of a checkout of this project, asked of git without executing anything of its configuration."""

import os
import subprocess
import time
from pathlib import Path

import pytest
import torch

import nurec_lite
from nurec_lite.base import version
from nurec_lite.base.environment import device_name, driver, environment
from nurec_lite.base.version import UNKNOWN, commit, commit_of


def git(root: Path, *arguments: str) -> str:
    given = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(root), *arguments]
    return subprocess.run(given, capture_output=True, text=True, check=True).stdout.strip()


def checkout(root: Path, name: str = "nurec_lite") -> Path:
    (root / "nurec_lite/base").mkdir(parents=True)
    (root / "pyproject.toml").write_text(f'[project]\nname = "{name}"\n')
    (root / "nurec_lite/__init__.py").write_text("")
    (root / "notes.txt").write_text("a")
    git(root.parent, "init", "-q", str(root))
    git(root, "add", ".")
    git(root, "commit", "-qm", "all")
    return root


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return checkout(tmp_path / "own")


def program(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_clean_checkout(own: Path) -> None:
    assert commit_of(own) == git(own, "rev-parse", "HEAD")[:12]


@pytest.mark.parametrize("changed", ["notes.txt", "nurec_lite/__init__.py", "nurec_lite/new.py", "nurec_lite/base/new/a.py",
                                     "kernels/new.cu", "conf/opt/new.yaml"])  # fmt: skip
def test_files_that_are_changed_or_new(own: Path, changed: str) -> None:
    (own / changed).parent.mkdir(parents=True, exist_ok=True)
    (own / changed).write_text("b")
    assert commit_of(own) == git(own, "rev-parse", "HEAD")[:12] + "+"


@pytest.mark.parametrize("new", ["runs/metrics.json", "more.txt", "nurec_lite_data/a"])
def test_new_files_that_change_nothing(own: Path, new: str) -> None:
    (own / new).parent.mkdir(parents=True, exist_ok=True)
    (own / new).write_text("b")
    assert commit_of(own) == git(own, "rev-parse", "HEAD")[:12]


def test_a_file_that_git_ignores(own: Path) -> None:
    (own / ".git/info/exclude").write_text("__pycache__\n")
    (own / "nurec_lite/__pycache__").mkdir()
    (own / "nurec_lite/__pycache__/a.pyc").write_text("b")
    assert not commit_of(own).endswith("+")


def test_a_package_inside_another_project(tmp_path: Path) -> None:
    """The version is neither the commit of that project nor anything that its configuration names."""
    other = checkout(tmp_path / "proj", "theirs")
    assert commit_of(other) == commit_of(other / "nurec_lite") == nurec_lite.__version__
    (other / "site").mkdir()
    (other / "site/pyproject.toml").write_text('[project]\nname = "nurec_lite"\n')
    assert commit_of(other / "site") == nurec_lite.__version__


def test_nothing_that_the_configuration_names_is_executed(own: Path, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    script = tmp_path / "monitor"
    script.write_text(f"#!/bin/sh\ntouch {mark}\n")
    script.chmod(0o755)
    git(own, "config", "core.fsmonitor", str(script))
    git(own, "config", "core.hooksPath", str(tmp_path))
    (own / "notes.txt").write_text("b")
    assert commit_of(own).endswith("+") and not mark.exists()


def test_variables_of_git_do_not_lead_elsewhere(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = checkout(tmp_path / "other")
    (other / "notes.txt").write_text("other")
    git(other, "commit", "-qam", "other")
    wanted = git(own, "rev-parse", "HEAD")[:12]
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert commit_of(own) == wanted


@pytest.mark.parametrize("text", ["sleep 30", "sleep 30 & sleep 30", "exit 1", "echo nonsense", "printf '# branch.oid (initial)\\n'",
                                  "printf '\\377\\376'"])  # fmt: skip
def test_a_git_that_does_not_answer(own: Path, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", "git", text, monkeypatch)
    begin = time.monotonic()
    assert commit_of(own) == UNKNOWN
    assert time.monotonic() - begin < version.PATIENCE + 3, "of a machine that does other things, too"


def test_a_git_that_hangs_is_asked_once(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", "git", f"echo asked >> {tmp_path}/asked; sleep 30", monkeypatch)
    monkeypatch.setattr(version, "PATIENCE", 0.5)
    monkeypatch.setattr(version, "PACKAGE", own / "nurec_lite")
    commit.cache_clear()
    try:
        assert commit() == environment(torch.device("cpu"))["commit"] == commit() == UNKNOWN
    finally:
        commit.cache_clear()
    assert (tmp_path / "asked").read_text() == "asked\n"


def test_no_git(own: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(own) == UNKNOWN


def test_a_process_that_is_given_up_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "PATIENCE", 0.5)
    program(tmp_path / "bin", "slow", f"sleep 47 & echo $! > {tmp_path}/pid; wait", monkeypatch)
    assert version.answer(["slow"]) is None
    child = int((tmp_path / "pid").read_text())
    for _ in range(50):
        if not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]:
            return
        time.sleep(0.1)
    raise AssertionError("it goes on")


def test_this_checkout_or_package() -> None:
    found = commit()
    assert found in (nurec_lite.__version__, UNKNOWN) or len(found.rstrip("+")) == 12


def test_a_driver_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", "nvidia-smi", "sleep 30", monkeypatch)
    driver.cache_clear()
    assert driver() == UNKNOWN
    driver.cache_clear()
    program(tmp_path / "bin2", "nvidia-smi", "echo 580.12", monkeypatch)
    assert driver() == "580.12"
    driver.cache_clear()


def test_a_device_that_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(device: torch.device) -> str:
        raise RuntimeError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(torch.cuda, "get_device_name", fails)
    assert device_name(torch.device("cuda")) == UNKNOWN
    assert environment(torch.device("cpu"))["device"].startswith("cpu")
