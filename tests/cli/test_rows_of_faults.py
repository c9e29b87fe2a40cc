# SPDX-License-Identifier: Apache-2.0
"""Faults of machines and neighbours from the command line that no other test of this folder has; docs/reliability.md lists them all."""

import json
import os
import pwd
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from other_captures import tracks
from shell import FAST, Shell, Train, assert_mendable
from strange_files import contents
from tiny_capture import tiny_capture

import nurec_lite
from nurec_lite.base import version
from nurec_lite.base.folders import LOCK, MARKER
from nurec_lite.capture.pack import write_pack
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.native import build, ops

# ---- locks and hidden files of others


@pytest.mark.parametrize("kind", ["link", "hard link", "of another program"])
@pytest.mark.parametrize("name", [LOCK, ".lock"])
def test_a_lock_of_others(train: Train, tmp_path: Path, kind: str, name: str) -> None:
    out, precious = tmp_path / "out", tmp_path / "precious"
    out.mkdir()
    precious.write_text("mine")
    if kind == "of another program":
        (out / name).write_text("apt-get")
    else:
        (os.symlink if kind == "link" else os.link)(precious, out / name)
    before = contents(tmp_path)
    ended = train(f"out={out}", "train.steps=1")
    assert ended.code == 2 and re.search(r"is not a lock of nurec_lite|and no \.nurec_lite that says", ended.error)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", [".bashrc.20241126", ".python_history-3.99999", ".sensor.png.4194305", ".x.tmp"])
def test_hidden_files_in_a_folder_of_ours(shell: Shell, quick: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / MARKER).write_text("nurec_lite 1 render\n")
    (tmp_path / "out" / name).write_text("mine")
    ended = shell("render", f"checkpoint={quick}", "times=0.45", "sensors=camera_0", f"out={tmp_path / 'out'}")
    assert ended.code == 0, ended.error
    assert (tmp_path / "out" / name).read_text() == "mine"


# ---- git


@pytest.fixture
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(version, "PATIENCE", 0.5)
    version.commit.cache_clear()
    yield None
    version.commit.cache_clear()


def put_git(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    (folder / "git").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package lies in the project of somebody else."""
    (tmp_path / "proj/.git").mkdir(parents=True)
    (tmp_path / "proj/pyproject.toml").write_text('[project]\nname = "theirs"\n')
    monkeypatch.setattr(version, "PACKAGE", tmp_path / "proj/site/nurec_lite")


GITS: dict[str, tuple[str, str]] = {  # the faulty git, and the sentence in the results
    "hangs": ("sleep 30", "unknown"),
    "of another project": ("touch {executed}; echo '# branch.oid 0123456789abcdef'", nurec_lite.__version__),
}


@pytest.mark.parametrize("kind", GITS)
@pytest.mark.usefixtures("asked_anew")
def test_a_git_that_is_of_no_use(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    text, said = GITS[kind]
    monkeypatch.setattr(
        version, "_is_own_checkout", version._is_own_checkout if "another" in kind else lambda root: True
    )
    if "another" in kind:
        project(tmp_path, monkeypatch)
    put_git(tmp_path / "bin", text.format(executed=tmp_path / "executed"), monkeypatch)
    ended = train(f"out={tmp_path / 'out'}", "train.steps=1")
    assert ended.code == 0, ended.error
    assert json.loads((tmp_path / "out/metrics.json").read_text())["commit"] == said
    assert (tmp_path / "out/report.html").exists() and not (tmp_path / "executed").exists()


# ---- the machine


@pytest.mark.parametrize("how", ["others", "link", "owner"])
def test_kernels_that_others_could_write(
    shell: Shell, quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """They are made anew, which is where this test ends the run."""
    cache = tmp_path / "cache"
    cache.mkdir()
    if how == "link":
        cache.rename(tmp_path / "real")
        cache.symlink_to("real")
    elif how == "others":
        cache.chmod(0o777)
    elif os.geteuid():
        pytest.skip("only root gives files away")
    else:
        os.chown(cache, 12345, 12345)
    monkeypatch.setenv("NUREC_LITE_CACHE", str(cache))
    folders: list[Path] = []

    def made(tools: object, folder: Path, lock: int) -> None:
        folders.append(folder)
        raise build.BuildError("made anew")

    monkeypatch.setattr(build, "_build", made)
    monkeypatch.setattr(ops, "_registered", [])  # also where a test before has loaded them
    shell("render", f"checkpoint={quick}", "ops=native", "times=0.4", f"out={tmp_path / 'out'}")
    assert folders and all(
        cache not in folder.parents and tmp_path / "real" not in folder.parents for folder in folders
    )


def test_a_user_without_a_home(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nobody(number: int) -> object:
        raise KeyError(number)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    ended = shell("train", "data=pack", "data.root=~/a.pack", *FAST, f"out={tmp_path / 'out'}")
    assert_mendable(ended, r"~/a\.pack does not exist; name an existing pack")


# ---- remedies


@pytest.mark.parametrize(
    "given", ["data.frames=[0,9]", "data.cameras=[camera_0]", "model.calibrate=true"]
)  # fmt: skip
def test_the_remedy_of_a_run_that_goes_on_can_be_pasted(
    shell: Shell, trained: Path, tmp_path: Path, given: str
) -> None:
    line = ["train", f"train.resume={trained}", f"out={tmp_path / 'on'}", "device=cpu", "train.steps=2"]
    ended = shell(*line, given)
    assert_mendable(ended, r"was made with \S+, but this run has ")
    (remedy,) = re.findall(r"; give (.*) or begin anew", ended.error)
    assert shlex.split(remedy)[0].partition("=")[0] == given.partition("=")[0]
    assert_mendable(shell(*line, *shlex.split(remedy)), r"the budget of .* is spent")  # so it is taken


# ---- tracks that cannot be


def fast(t: Tracks) -> torch.Tensor:
    places = t.translations.clone()
    places[1, 0] += 2.8e7
    return places


def test_a_track_that_cannot_be(shell: Shell, tiny_pack: Path, tmp_path: Path) -> None:
    """tests/capture/checks/test_boxes.py has other members."""
    write_pack(tracks(translations=fast)(tiny_capture()), tiny_pack, image_format="png")
    ended = shell("train", "data=pack", f"data.root={tiny_pack}", *FAST, f"out={tmp_path / 'out'}")
    assert_mendable(ended, r"Track \S+ \(\w+\) moves 2\.8e\+07 m within 0\.1 s .*data\.trust=true")


# ---- processes


@pytest.mark.slow
def test_what_profile_records_ends_with_it(quick: Path, tmp_path: Path) -> None:
    line = ["tool=torch", "ops=reference", "device=cpu", "data=pack", f"data.root={quick.parent / 'tiny.pack'}"]
    line += ["model.points=300", "train.lidar_rays=64", "steps=100000", f"out={tmp_path / 'out'}"]
    with subprocess.Popen([sys.executable, "-m", "nurec_lite.profile", *line], stdout=subprocess.DEVNULL) as parent:
        child = eventually(lambda: children_of(parent.pid))[0]
        parent.send_signal(signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2])


def children_of(process: int) -> list[int]:
    return [int(number) for number in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def eventually(found: Callable[[], object]) -> list[int]:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if what := found():
            return what if isinstance(what, list) else []
        time.sleep(0.05)
    raise AssertionError("it does not come")
