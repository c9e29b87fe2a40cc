# SPDX-License-Identifier: Apache-2.0
"""The quality gate: its runs, and its verdict on their metrics."""

import json
from pathlib import Path

import pytest
from tiny_capture import tiny_capture

from benchmarks.ladder import quality_gate
from benchmarks.ladder.quality_gate import Run, runs_of, table, verdicts
from nurec_lite.capture.pack import write_pack


def found(baseline: list[float], again: list[float], own: list[float], metric: str) -> dict[Run, dict[str, float]]:
    runs = {Run("", seed, 0): {metric: value} for seed, value in enumerate(baseline)}
    runs |= {Run("", 0, k): {metric: value} for k, value in enumerate(again, 1)}
    return runs | {Run("a,b", seed, 0): {metric: value} for seed, value in enumerate(own)}


def test_the_runs() -> None:
    runs = runs_of(["a", "a,b"], [5, 6], 3)
    assert [(r.options, r.seed, r.repeat) for r in runs] == [
        ("", 5, 0), ("", 6, 0), ("", 5, 1), ("", 5, 2), ("a", 5, 0), ("a", 6, 0), ("a,b", 5, 0), ("a,b", 6, 0),
    ]  # fmt: skip
    assert len({r.folder() for r in runs}) == len(runs)


@pytest.mark.parametrize(
    ("metric", "own", "passed"),
    [
        ("psnr", [22.0, 22.5, 23.0], True),  # the same mean
        ("psnr", [21.8, 22.3, 22.8], True),  # 0.2 less: twice the spread of 0.1
        ("psnr", [21.7, 22.2, 22.8], False),
        ("psnr", [30.0, 30.0, 30.0], True),  # better is not worse
        ("lidar_median_abs_m", [22.2, 22.7, 23.2], True),
        ("lidar_median_abs_m", [22.3, 22.8, 23.2], False),
        ("lidar_median_abs_m", [1.0, 1.0, 1.0], True),
    ],
)
def test_worse_by_twice_the_spread_of_one_seed_passes(metric: str, own: list[float], passed: bool) -> None:
    (verdict,) = verdicts(found([22.0, 22.5, 23.0], [22.1, 22.05], own, metric), "a,b")
    assert verdict.baseline == pytest.approx(22.5) and verdict.spread == pytest.approx(0.1)
    assert verdict.passed == passed


def test_metrics_that_some_run_lacks_are_not_judged() -> None:
    runs = found([1.0], [], [1.0], "psnr")
    assert [v.metric for v in verdicts(runs, "a,b")] == ["psnr"]
    runs[Run("a,b", 9, 0)] = {}
    assert verdicts(runs, "a,b") == []


def test_the_table() -> None:
    text = table({"a,b": verdicts(found([22.0], [22.5], [20.0], "psnr"), "a,b")})
    assert text.splitlines()[-1] == "| a,b | psnr | 22.000 | 20.000 | 0.500 | worse |"


def test_whole_runs(tmp_path: Path) -> None:
    """Two steps of the tiny drive: on a CPU runs of one seed are the same."""
    write_pack(tiny_capture(), tmp_path / "tiny.pack")
    model = [f"model.{name}={n}" for name, n in (("points", 200), ("raised_points", 20), ("far_points", 20))]
    keys = [
        "data=pack",
        f"data.root={tmp_path / 'tiny.pack'}",
        "device=cpu",
        *model,
        "train.lidar_rays=64",
        "density.cap=300",
    ]
    arguments = [
        "--opt",
        "collect_once",
        "--seeds",
        "0",
        "--repeat",
        "2",
        "--steps",
        "2",
        "--out",
        str(tmp_path / "q"),
        *keys,
    ]
    code = quality_gate.main(arguments)
    report = json.loads((tmp_path / "q/quality.json").read_text())
    assert report["runs"]["baseline-seed0-0"]["psnr"] == report["runs"]["baseline-seed0-1"]["psnr"] > 3
    assert (
        code == (0 if report["passed"] else 3) and "| collect_once | psnr |" in (tmp_path / "q/quality.md").read_text()
    )
