# SPDX-License-Identifier: Apache-2.0
"""Quality with each option: the runs, the rest of one that fails, and the table."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.ladder import option_quality
from benchmarks.ladder.option_quality import main, rows_of
from nurec_lite.base.errors import UserError
from nurec_lite.base.options import known_options


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Arguments of each run, which ends at once; with fused_ssim it fails."""
    seen: list[list[str]] = []

    def run(out: Path, arguments: Sequence[str], surroundings: dict[str, str]) -> dict[str, Any]:
        seen.append(list(arguments))
        if "+opt=[fused_ssim]" in arguments:
            raise UserError("-m nurec_lite.train out=somewhere failed: error: no memory")
        return {"psnr": 20.0 + len(seen) / 8, "ssim": 0.5, "psnr_actors": None, "steps": 7}

    monkeypatch.setattr(option_quality, "metrics_of", run)
    return seen


def test_rows_are_the_baseline_all_and_every_option_with_what_it_requires() -> None:
    rows = rows_of(["fused_interp", "no_sync", "fused_adam", "cuda_graph"], 3, None)
    assert [row.name for row in rows[:6]] == ["", "all", "fused_interp", "no_sync", "fused_adam", "cuda_graph"]
    assert sorted(row.name for row in rows[1:]) == sorted({"all", *known_options()})
    options = {row.name: row.options for row in rows}
    assert options["cuda_graph"] == ("fused_interp", "no_sync", "fused_adam", "cuda_graph") and options["all"] == (
        "all",
    )
    assert options["launch_bounds"] == ("split_backward", "launch_bounds")
    assert options["amp"] == ("fused_interp", "fused_adam", "fused_colour", "fused_harmonics", "amp")
    assert [row.repeat for row in rows[:3]] == [3, 1, 1]


def test_a_run_that_fails_stays_with_its_error(
    runs: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "quality.json"
    with pytest.raises(SystemExit) as ended:
        main(
            ["--only", "all", "fused_ssim", "--repeat", "2", "--steps", "9", "--out", str(out), "device=cpu", "seed=4"]
        )
    assert ended.value.code == 1
    assert runs == [
        ["device=cpu", "seed=4", "train.steps=9", "train.seconds=null", "train.evaluate=true", f"+opt=[{options}]"]
        for options in ("", "", "all", "fused_ssim")
    ]
    report = json.loads(out.read_text())
    assert report["spread"] == {"psnr": 0.125, "ssim": 0.0} and report["steps"] == 9
    assert report["rows"] == [
        {"name": "", "options": [], "runs": 2, "psnr": 20.1875, "ssim": 0.5},
        {"name": "all", "options": ["all"], "runs": 1, "psnr": 20.375, "ssim": 0.5},
        {"name": "fused_ssim", "options": ["fused_ssim"], "runs": 0, "error": "error: no memory"},
    ]
    assert "no memory" in capsys.readouterr().out
