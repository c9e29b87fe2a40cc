# SPDX-License-Identifier: Apache-2.0
"""A run that turns wrong, from the command line: one sentence, the last good checkpoint, and what it had learned from."""

import json
from pathlib import Path

import pytest
from shell import Train

from nurec_lite.training.checkpoint import load_checkpoint


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("lr.sh0=1e39", "sh0 is "),  # -inf
        ("loss.range=1e30", "(Adam) is inf"),
        ("loss.range=1e38", " is "),
    ],
)
def test_what_is_not_finite_is_never_saved(train: Train, tmp_path: Path, argument: str, wrong: str) -> None:
    ended = train(f"out={tmp_path / 'out'}", "train.steps=1", argument)
    assert ended.code == 2
    assert ended.error.startswith("error: training went wrong at step 1: ") and wrong in ended.error, ended.error
    assert "there is no checkpoint yet" in ended.error
    assert not (tmp_path / "out/checkpoint.pt").exists()


def test_the_last_good_checkpoint_stays_and_the_batch_is_told(train: Train, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert train(f"out={out}", "train.steps=3").code == 0
    good = (out / "checkpoint.pt").read_bytes()
    ended = train(f"out={out}", "train.resume=auto", "train.steps=200", "train.checkpoint_seconds=0", "lr.sh0=1e39")
    assert ended.code == 2 and "went wrong at step 4: " in ended.error
    assert f"the checkpoint before it is kept: {out / 'checkpoint.pt'}" in ended.error
    assert (out / "checkpoint.pt").read_bytes() == good
    told = json.loads((out / "broken.json").read_text())
    assert told["step"] == 4 and all("tiny.pack: " in frame["file"] for frame in told["learned from"])
    assert {frame["sensor"] for frame in told["learned from"]} >= {"lidar"}
    assert train(f"out={out}", "train.resume=auto", "train.steps=5", "lr.sh0=0.04").code == 0
    assert not (out / "broken.json").exists(), "it told of another run"


def test_it_stops_within_a_few_steps(train: Train, tmp_path: Path) -> None:
    ended = train(f"out={tmp_path / 'out'}", "train.steps=64", "lr.sh0=1e39")
    step = int(ended.error.partition("at step ")[2].partition(":")[0])
    assert ended.code == 2 and step <= 16


def test_a_scene_that_flies_apart_is_told(train: Train, tmp_path: Path) -> None:
    """Nothing of it is NaN."""
    ended = train(f"out={tmp_path / 'out'}", "train.steps=64", "lr.means=1000", "lr.means_decay=1")
    assert ended.code == 2 and "Gaussians fly " in ended.error and "; smaller lr.* or loss.* may mend it" in ended.error
    assert not (tmp_path / "out/checkpoint.pt").exists()


def test_a_run_that_is_well_is_left_alone(train: Train, tmp_path: Path) -> None:
    assert train(f"out={tmp_path / 'out'}", "train.steps=40", "train.checkpoint_seconds=0").code == 0
    assert load_checkpoint(tmp_path / "out/checkpoint.pt", "cpu")["counters"]["step"] == 40
