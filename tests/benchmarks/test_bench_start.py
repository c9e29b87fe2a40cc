# SPDX-License-Identifier: Apache-2.0
"""The benchmark of starts: its phases add up, and a start imports nothing that it does not need."""

import json
from pathlib import Path

import pytest
from tiny_capture import tiny_capture

from benchmarks.step import bench_start
from benchmarks.step.bench_start import medians, phases
from nurec_lite.capture.pack import write_pack


def test_phases_lie_between_the_marks() -> None:
    assert phases({"a": 1.0, "b": 1.5, "c": 4.5}) == {"a": 1.0, "b": 0.5, "c": 3.0}
    assert medians([{"a": 1.0, "b": 2.0}, {"a": 3.0}, {"a": 2.0, "b": 5.0}]) == {"a": 2.0, "b": 2.0}


def test_the_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pack(tiny_capture(), tmp_path / "tiny.pack")
    model = [f"model.{name}={n}" for name, n in (("points", 200), ("raised_points", 20), ("far_points", 20))]
    keys = ["data=pack", f"data.root={tmp_path / 'tiny.pack'}", "device=cpu", "ops=reference", *model]
    bench_start.main([*keys, "--runs", "1", "--warmup", "0", "--out", str(tmp_path / "b.json")])
    report = json.loads((tmp_path / "b.json").read_text())
    assert list(report["phases"])[:3] == ["interpreter", "torch", "imports"] and min(report["phases"].values()) >= 0
    assert sum(report["phases"].values()) == pytest.approx(report["runs"][0]["since_start"]["second step"])
    assert 0 < report["first_step_after_torch_s"] < report["first_step_s"] < sum(report["phases"].values())
    assert report["scene"]["scene/moments"] > 0 and report["scene"]["scene/disks/neighbours"] > 0
    assert sum(s for name, s in report["scene"].items() if name.count("/") == 1) <= report["scene"]["scene"]
    assert report["first_step_cpu_s"] > 0 and report["first_step_s_of_runs"] == [report["first_step_s"]]
    assert report["runs"][0]["heavy_modules"] == ["scipy"]  # for the tree of a CPU
    said = capsys.readouterr().out
    assert "first step after" in said and "scene/moments" in said and "heavy ones: scipy" in said
