# SPDX-License-Identifier: Apache-2.0
"""Checkpoints from strangers, from the command line: every command that reads one refuses wrong content, and resolves nothing."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from shell import FAST, Ended, Shell, assert_mendable
from strangers import FLAWS, rewrite
from tiny_capture import ROOT


def arguments(verb: str, checkpoint: Path, pack: Path, out: Path) -> list[str]:
    if verb in ("train", "profile"):
        tool = ["tool=torch", "steps=1", "warmup=0"] if verb == "profile" else []
        return [
            "data=pack",
            f"data.root={pack}",
            f"out={out}",
            *FAST,
            "train.steps=9",
            f"train.resume={checkpoint}",
            *tool,
        ]
    return [f"checkpoint={checkpoint}", f"out={out}" + (".ply" if verb == "export" else "")]


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_named_before_anything_is_used(shell: Shell, quick: Path, tmp_path: Path, flaw: str) -> None:
    change, pattern = FLAWS[flaw]
    path = Path(shutil.copy(quick, tmp_path))
    rewrite(path, change)
    for verb in ("train", "evaluate", "render", "export"):
        ended = shell(verb, *arguments(verb, path, quick.with_name("tiny.pack"), tmp_path / "out"))
        assert_mendable(ended, rf"checkpoint\.pt .*{pattern}.*(use another|train again)")
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_profile_refuses_it_too(quick: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(quick, tmp_path))
    rewrite(path, FLAWS["moments of another shape"][0])
    line = [
        sys.executable,
        "-m",
        "nurec_lite.profile",
        *arguments("profile", path, quick.with_name("tiny.pack"), tmp_path / "out"),
    ]
    ended = subprocess.run(line, capture_output=True, text=True, check=False, cwd=ROOT)
    assert_mendable(Ended(ended.returncode, ended.stderr), r"checkpoint\.pt .*exp_avg must be a tensor")


def test_a_zip_bomb_is_refused_as_it_is(shell: Shell, trained: Path, tmp_path: Path) -> None:
    """Its records are compressed, which torch.save never does: 8 MB would take 8 GB."""
    with zipfile.ZipFile(trained) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(trained, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    assert_mendable(shell("export", f"checkpoint={trained}"), r"checkpoint\.pt is not a whole .*a record is compressed")


def test_a_generator_of_another_kind_of_device_begins_anew(
    shell: Shell, trained: Path, tiny_pack: Path, tmp_path: Path
) -> None:
    """A run of a GPU that goes on without one is such a case."""
    rewrite(trained, lambda content: content.update(generator=torch.zeros(16, dtype=torch.uint8)))
    assert shell("train", *arguments("train", trained, tiny_pack, tmp_path / "out")).code == 0
    assert (tmp_path / "out/checkpoint.pt").is_file()


def test_a_generator_of_nonsense(shell: Shell, trained: Path, tiny_pack: Path, tmp_path: Path) -> None:
    rewrite(trained, lambda content: content.update(generator=torch.full((5056,), 255, dtype=torch.uint8)))
    ended = shell("train", *arguments("train", trained, tiny_pack, tmp_path / "out"))
    assert_mendable(ended, r"checkpoint\.pt holds no state of a generator of random numbers; use another checkpoint")


def test_nothing_of_the_environment_gets_into_results(
    shell: Shell, tiny_pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell made a path on the command line; the capture's own name is never resolved either."""
    monkeypatch.setenv("SECRET", "hunter2")
    with zipfile.ZipFile(tiny_pack) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tiny_pack, "w") as archive:
        for name, content in members.items():
            index = content.replace(b'"Car"', b'"${oc.env:SECRET}"') if name == "capture.json" else content
            archive.writestr(name, index)
    ended = shell(
        "train", "data=pack", f"data.root={tiny_pack}", f"out={tmp_path / 'out'}", *FAST, "train.evaluate=true"
    )
    assert ended.code == 0, ended.error
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert (tmp_path / "out/report.html") in files and all(b"hunter2" not in path.read_bytes() for path in files)
