# SPDX-License-Identifier: Apache-2.0
"""A run that turns wrong, from the command line: one sentence, the last good checkpoint, and the names of the last frames."""

import json
import re
from pathlib import Path

import pytest
import torch
from shell import Shell, Train

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
    assert "holds the scene as it was before the first step" in ended.error
    assert load_checkpoint(tmp_path / "out/checkpoint.pt", "cpu")["counters"]["step"] == 0


def test_the_last_good_checkpoint_stays_and_the_batch_is_reported(train: Train, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert train(f"out={out}", "train.steps=3").code == 0
    good = (out / "checkpoint.pt").read_bytes()
    ended = train(f"out={out}", "train.resume=auto", "train.steps=200", "train.checkpoint_seconds=0", "lr.sh0=1e39")
    assert ended.code == 2 and "went wrong at step 4: " in ended.error
    assert (
        f"the checkpoint before it is kept: {out / 'checkpoint.pt'}, and train.resume=auto goes on from there"
        in ended.error
    )
    assert (out / "checkpoint.pt").read_bytes() == good
    found = json.loads((out / "broken.json").read_text())
    assert found["step"] == 4 and all("tiny.pack: " in frame["file"] for frame in found["learned from"])
    assert {frame["sensor"] for frame in found["learned from"]} >= {"lidar"}
    assert train(f"out={out}", "train.resume=auto", "train.steps=5", "lr.sh0=0.04").code == 0
    assert not (out / "broken.json").exists(), "it told of another run"


def test_it_stops_within_a_few_steps(train: Train, tmp_path: Path) -> None:
    ended = train(f"out={tmp_path / 'out'}", "train.steps=64", "lr.sh0=1e39")
    step = int(ended.error.partition("at step ")[2].partition(":")[0])
    assert ended.code == 2 and step <= 16


def test_a_scene_that_flies_apart_is_reported(train: Train, tmp_path: Path) -> None:
    """The report comes although nothing of the scene is NaN."""
    ended = train(f"out={tmp_path / 'out'}", "train.steps=64", "lr.means=1000", "lr.means_decay=1")
    assert ended.code == 2 and "Gaussians fly " in ended.error and "; smaller lr.* or loss.* may mend it" in ended.error
    assert "holds the scene as it is now, to be looked at" in ended.error
    assert load_checkpoint(tmp_path / "out/checkpoint.pt", "cpu")["counters"]["step"] >= 16


def flown(path: Path, rows: int, metres: float) -> None:
    """Moves `rows` Gaussians of a checkpoint that far away."""
    content = torch.load(path, weights_only=False)
    means = content["scene"]["parameters"]["means"]
    means[torch.arange(rows) * 7, torch.arange(rows) % 3] = metres
    torch.save(content, path)


OPTIONS = "+opt=[fused_interp,no_sync,fused_activate,morton_order,fused_adam]"


@pytest.mark.parametrize(
    ("how", "metres"),
    [
        ([], -8e3),
        (["density.stop=0"], 1e8),
        (["ops=reference"], 1e8),
        ([OPTIONS], -8e3),
        ([OPTIONS, "density.stop=0"], 1e8),
    ],
)
def test_a_few_that_fly_away_are_counted(train: Train, trained: Path, how: list[str], metres: float) -> None:
    """They are counted with relocations behind them and without."""
    flown(trained, 4, metres)
    out = trained.parent
    rest = ["train.resume=auto", "train.steps=22", "density.every=10", "density.start=0", "train.evaluate=true"]
    ended = train(f"out={out}", "ops=native", *rest, *how)
    assert ended.code == 0, ended.error
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["gaussians_left_scene"] == 4 and metrics["psnr"] > 5
    assert re.search(r"Left the scene +4\n", ended.out) and "Left the scene" in (out / "report.html").read_text()
    means = load_checkpoint(trained, "cpu")["scene"]["parameters"]["means"]
    assert means.abs().max() < 3000


def test_the_count_goes_on_and_evaluate_repeats_it(shell: Shell, train: Train, trained: Path) -> None:
    for k in (1, 2):
        flown(trained, 2, 1e5)
        assert train(f"out={trained.parent}", "train.resume=auto", f"train.steps={2 + 2 * k}").code == 0
    assert shell("evaluate", f"checkpoint={trained}", f"out={trained.parent / 'e'}").code == 0
    assert json.loads((trained.parent / "e/metrics.json").read_text())["gaussians_left_scene"] == 4


def test_a_run_without_any_says_nothing_of_them(train: Train, tmp_path: Path) -> None:
    ended = train(f"out={tmp_path / 'out'}", "train.steps=1", "train.evaluate=true")
    assert "gaussians_left_scene" not in json.loads((tmp_path / "out/metrics.json").read_text())
    assert "Left the scene" not in ended.out


def test_a_run_that_is_well_is_left_alone(train: Train, tmp_path: Path) -> None:
    assert train(f"out={tmp_path / 'out'}", "train.steps=40", "train.checkpoint_seconds=0").code == 0
    assert load_checkpoint(tmp_path / "out/checkpoint.pt", "cpu")["counters"]["step"] == 40
