# SPDX-License-Identifier: Apache-2.0
"""The benchmark of ranges: what it counts and times."""

import json
from pathlib import Path

import pytest
import torch
from tiny_capture import tiny_capture

from benchmarks.step import bench_ranges
from benchmarks.step.bench_ranges import Counting, range_us, recorders
from nurec_lite.base.ranges import span, switch
from nurec_lite.capture.pack import write_pack

CPU = torch.device("cpu")


def test_counting() -> None:
    counting = Counting()
    with switch(timing=counting), span("a"), span("b"):
        pass
    assert counting.n == 2


def test_recorders() -> None:
    found = recorders(CPU)
    assert ("nvtx" in found) == torch.backends.cuda.is_built() and {"off", "torch", "timing"} <= found.keys()


def test_the_package_gets_whole_paths_with_their_stage_and_a_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    nvtx = pytest.importorskip("nvtx")
    pushed: list[dict[str, str]] = []

    class Domain:
        popped = 0

        def get_event_attributes(self, **given: str) -> dict[str, str]:
            return given

        def push_range(self, given: dict[str, str]) -> None:
            pushed.append(given)

        def pop_range(self) -> None:
            self.popped += 1

    domain = Domain()
    monkeypatch.setattr(nvtx, "get_domain", lambda name: domain)
    with recorders(CPU)["nvtx_package"](), span("step"), span("render_camera"), span("tile"):
        pass
    assert [given["message"] for given in pushed] == ["step", "step/render_camera", "step/render_camera/tile"]
    assert [given["category"] for given in pushed] == ["step", "render_camera", "render_camera"] and domain.popped == 3
    assert {given["color"] for given in pushed} <= set(bench_ranges.COLOURS)


def test_an_open_recorder_costs_more_than_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_ranges, "STEPS", 8)
    found = {name: range_us(recorder, CPU) for name, recorder in recorders(CPU).items()}
    assert 0 < found["off"] < found["torch"]


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
