# SPDX-License-Identifier: Apache-2.0
"""The worth of each choice: its runs, and its table."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.ladder import ablation
from benchmarks.ladder.ablation import CHOICES, main
from nurec_lite.base.errors import UserError
from nurec_lite.cli.command import composed

KNOWN = {"psnr": 20.0, "ssim": 0.5, "psnr_actors": None, "lidar_median_abs_m": 0.1, "steps": 7, "seconds_train": 1.0}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Arguments of each run, which ends at once; a scene of one opacity fails."""
    seen: list[list[str]] = []

    def run(out: Path, arguments: Sequence[str], surroundings: dict[str, str]) -> dict[str, Any]:
        seen.append(list(arguments))
        if "model.lidar_opacity=false" in arguments:
            raise UserError("it failed")
        return KNOWN | {"psnr": 20.0 + int(arguments[0].removeprefix("seed="))}

    monkeypatch.setattr(ablation, "metrics_of", run)
    return seen


def test_every_choice_is_one_of_the_command_line() -> None:
    for undone in CHOICES.values():
        composed("train", [*undone, "+recipe=realtime", "device=cpu"])


def test_rows_have_every_seed(runs: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.json"
    main(["--only", "all choices", "no lidar", "--seeds", "3", "4", "--out", str(out), "train.steps=7"])
    assert runs == [
        [f"seed={seed}", "train.steps=7", *undone] for undone in ((), ("train.lidar_rays=0",)) for seed in (3, 4)
    ]
    report = json.loads(out.read_text())
    assert [row["name"] for row in report["rows"]] == ["all choices", "no lidar"]
    assert [run["psnr"] for run in report["rows"][0]["seeds"]] == [23.0, 24.0]
    assert "| no lidar | 23.50 | 23.00, 24.00 | 0.500 |  | 0.100 |" in capsys.readouterr().out
