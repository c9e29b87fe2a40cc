# SPDX-License-Identifier: Apache-2.0
"""The benchmark of ranges: its counts and times."""

import json
from pathlib import Path

import pytest
import torch
from tiny_capture import tiny_capture

from benchmarks.step import bench_ranges
from benchmarks.step.bench_ranges import Counting, recorders
from nurec_lite.base.ranges import in_span, span, switch
from nurec_lite.capture.pack import write_pack

CPU = torch.device("cpu")


def test_counting() -> None:
    counting = Counting()
    with switch(timing=counting), span("a"), span("b"):
        pass
    assert counting.n == 2


def test_the_package_costs_nothing_while_no_tool_listens() -> None:
    """There is no recorder; no times are compared."""
    pytest.importorskip("nvtx")
    with recorders(CPU)["nvtx_package"]():
        assert in_span("name", len) is len


def test_the_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pack(tiny_capture(), tmp_path / "tiny.pack")
    model = [f"model.{name}={n}" for name, n in (("points", 200), ("raised_points", 20), ("far_points", 20))]
    keys = ["data=pack", f"data.root={tmp_path / 'tiny.pack'}", "device=cpu", "ops=reference", *model]
    bench_ranges.main([*keys, "--steps", "2", "--warmup", "1", "--counted", "1", "--out", str(tmp_path / "b.json")])
    report = json.loads((tmp_path / "b.json").read_text())
    assert report["ranges_a_step"] > 15 and report["step_ms"] > 0
    for cost in report["recorders"].values():
        assert cost["share_of_a_step"] == pytest.approx(
            cost["us_a_range"] * report["ranges_a_step"] / 1e3 / report["step_ms"]
        )
    assert "ranges a step" in capsys.readouterr().out
