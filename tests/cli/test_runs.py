# SPDX-License-Identifier: Apache-2.0
"""A folder is one run's, and going on means going on: from the command line, with the sentences that a user sees."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from shell import Train
from tiny_capture import tiny_state

from nurec_lite.base.errors import FolderError, OutputError
from nurec_lite.base.folders import LOCK, MARKER
from nurec_lite.base.lock import locked
from nurec_lite.training.checkpoint import load_checkpoint
from nurec_lite.training.loop import save


@pytest.fixture
def tiny_pack(original: Path) -> Path:
    """The one of `out`."""
    return original


@pytest.fixture
def out(first_run: Path, tmp_path: Path) -> Path:
    """The folder of a run of two steps."""
    return shutil.copytree(first_run, tmp_path / "out")


def stored(out: Path) -> dict:
    return load_checkpoint(out / "checkpoint.pt", "cpu")


def files(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


# ---- one run


def test_a_second_run_is_refused(train: Train, out: Path) -> None:
    before = files(out)
    ended = train(f"out={out}", "train.steps=2")
    assert ended.code == 2
    assert ended.error == (
        f"error: {out} holds a run; go on with it by train.resume=auto, replace it by train.overwrite=true, or give another "
        "folder by out=FOLDER"
    )
    assert files(out) == before


def test_two_at_once_are_refused(train: Train, out: Path) -> None:
    with locked(out):
        ended = train(f"out={out}", "train.resume=auto", "train.steps=3")
    assert ended.code == 2
    assert re.fullmatch(
        rf"error: {out} is in use by process {os.getpid()} on \S+; wait for its end, or give another folder by out=FOLDER",
        ended.error,
    )
    assert not (out / LOCK).exists() and train(f"out={out}", "train.resume=auto", "train.steps=3").code == 0


def test_a_lock_whose_process_is_dead_locks_nothing(train: Train, out: Path) -> None:
    (out / LOCK).write_text("process 1 on somewhere")
    assert train(f"out={out}", "train.resume=auto", "train.steps=3").code == 0


def test_an_empty_folder_is_not_left_behind(tmp_path: Path) -> None:
    with locked(tmp_path / "a/b"):
        assert (tmp_path / "a/b" / LOCK).exists()
        with pytest.raises(FolderError, match="is in use by"), locked(tmp_path / "a/b"):
            pass
    assert not (tmp_path / "a").exists()


def test_overwriting_leaves_nothing_of_the_first(train: Train, out: Path) -> None:
    (out / "pictures").mkdir()
    (out / "pictures/old.png").write_text("of the first")
    (out / MARKER).write_text((out / MARKER).read_text() + "pictures/old.png\n")
    (out / "mine.txt").write_text("notes")
    assert train(f"out={out}", "train.steps=1", "seed=7", "train.overwrite=true").code == 0
    assert OmegaConf.load(out / "config.yaml").seed == stored(out)["config"]["seed"] == 7
    assert json.loads((out / "metrics.json").read_text())["steps"] == 1
    assert not (out / "pictures").exists() and (out / "mine.txt").exists()


def test_a_run_that_cannot_begin_overwrites_nothing(train: Train, out: Path) -> None:
    before = files(out)
    assert train(f"out={out}", "train.steps=1", "train.overwrite=true", "data.frames=[0,3]").code == 2
    assert files(out) == before


def test_both_at_once_are_a_mistake(train: Train, out: Path) -> None:
    ended = train(f"out={out}", "train.steps=3", "train.resume=auto", "train.overwrite=true")
    assert ended.code == 2 and "give one of them" in ended.error


@pytest.mark.parametrize("moment", ["before", "after"])
def test_nothing_tells_of_another_checkpoint(out: Path, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off just before and just after the checkpoint gets its name."""
    state = tiny_state()
    state.step = 99
    rename = Path.replace

    def cut(self: Path, target: Path) -> Path:
        if target.name == "checkpoint.pt" and moment == "after":
            rename(self, target)
        raise OSError("the power went")

    monkeypatch.setattr(Path, "replace", cut)
    with pytest.raises(OutputError, match="the power went"):
        save(state, out / "checkpoint.pt")
    content = stored(out)
    assert content["counters"]["step"] == (99 if moment == "after" else 2)
    assert {p.name for p in out.iterdir()} == {"checkpoint.pt", MARKER}


def test_a_full_disk_is_noticed_before_anything_is_taken_away(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    before = files(out)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OutputError, match="No space left"):
        save(tiny_state(), out / "checkpoint.pt")
    assert files(out) == before


# ---- going on


def test_auto_begins_and_goes_on(train: Train, tmp_path: Path) -> None:
    line = [f"out={tmp_path / 'new'}", "train.resume=auto"]
    assert train(*line, "train.steps=2").code == 0
    ended = train(*line, "train.steps=4")
    assert ended.code == 0 and stored(tmp_path / "new")["counters"]["step"] == 4
    assert (
        f"goes on from {tmp_path / 'new/checkpoint.pt'} after step 2 with its settings, but train.steps 2 -> 4"
        in ended.out
    )


def test_settings_are_the_checkpoint_s(train: Train, tmp_path: Path) -> None:
    first = ["seed=5", "lr.sh0=0.01", "density.every=7", "+opt=[workers]", "opt.workers.count=1", "train.steps=2"]
    assert train(f"out={tmp_path / 'a'}", *first).code == 0
    ended = train(
        f"out={tmp_path / 'b'}", f"train.resume={tmp_path / 'a/checkpoint.pt'}", "train.steps=3", "lr.sky=0.02"
    )
    assert ended.code == 0
    config = stored(tmp_path / "b")["config"]
    assert (config["seed"], config["lr"]["sh0"], config["density"]["every"]) == (5, 0.01, 7)
    assert config["opt"] == {"workers": {"count": 1, "ahead": config["opt"]["workers"]["ahead"]}}
    (line,) = (line for line in ended.out.splitlines() if line.startswith("goes on from"))
    assert line.endswith("after step 2 with its settings, but train.steps 2 -> 3, lr.sky 0.05 -> 0.02")
    assert OmegaConf.to_container(OmegaConf.load(tmp_path / "b/config.yaml")) == config


def test_options_are_given_as_a_whole(train: Train, tmp_path: Path) -> None:
    assert train(f"out={tmp_path / 'a'}", "+opt=[workers]", "train.steps=1").code == 0
    ended = train(f"out={tmp_path / 'a'}", "train.resume=auto", "+opt=[]", "train.steps=2")
    assert ended.code == 0 and "opt [workers] -> []" in ended.out and stored(tmp_path / "a")["config"]["opt"] == {}


@pytest.mark.parametrize(
    "given", [[], ["train.steps=2"], ["train.steps=1"], ["train.steps=null", "train.seconds=1e-9"]]
)
def test_a_budget_that_is_spent_is_a_sentence(train: Train, out: Path, given: list[str]) -> None:
    before = files(out)
    ended = train(f"out={out}", "train.resume=auto", *given)
    assert ended.code == 2
    assert f"error: the budget of {out / 'checkpoint.pt'} is spent: 2 steps in " in ended.error
    assert ended.error.endswith("; give a larger train.steps=N or train.seconds=S to go on")
    assert files(out) == before


def test_a_run_that_was_not_measured_yet_is_measured(train: Train, out: Path) -> None:
    """It was killed after its last step."""
    (out / "metrics.json").unlink()
    before = (out / "checkpoint.pt").read_bytes()
    assert train(f"out={out}", "train.resume=auto").code == 0
    assert json.loads((out / "metrics.json").read_text())["steps"] == 2
    assert (out / "checkpoint.pt").read_bytes() == before


def test_auto_needs_a_folder_with_a_name(train: Train) -> None:
    ended = train("train.resume=auto", "train.steps=3")
    assert ended.code == 2
    assert ended.error == "error: train.resume=auto goes on with the run in `out`; name its folder by out=FOLDER"


def test_another_run_s_checkpoint_does_not_free_the_folder(train: Train, out: Path, tmp_path: Path) -> None:
    assert train(f"out={tmp_path / 'b'}", "train.steps=1").code == 0
    ended = train(f"out={tmp_path / 'b'}", f"train.resume={out / 'checkpoint.pt'}", "train.steps=9")
    assert ended.code == 2 and f"{tmp_path / 'b'} holds a run" in ended.error
    own = train(f"out={tmp_path / 'b'}", f"train.resume={tmp_path / 'b/checkpoint.pt'}", "train.steps=3")
    assert own.code == 0
