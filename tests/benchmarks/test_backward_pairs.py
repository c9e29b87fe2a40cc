# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of options of the renderer: the sets of options that they compare, and a run on a CPU."""

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from benchmarks.opt import (
    bench_balanced_tiles,
    bench_shared_memory,
    bench_split_backward,
    bench_tile_cull,
    bench_warp_cull,
)
from benchmarks.render.workload import SIZES, Size
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.opt.lab import shared_memory
from nurec_lite.opt.post import launch_bounds, split_backward

BENCHMARKS = [bench_balanced_tiles, bench_shared_memory, bench_split_backward, bench_tile_cull, bench_warp_cull]


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda module: module.__name__.rpartition("_")[0])
def test_pairs_differ_by_the_option_alone(benchmark: ModuleType) -> None:
    name = benchmark.__name__.rpartition("bench_")[2]
    for before, after in benchmark.PAIRS:
        assert [*filter(None, before.split(",")), name] == after.split(",")
        for names in filter(None, (before, after)):  # they can be given together
            options = {n: parameters_of(n) for n in names.split(",")}
            build_stages(options, replace(base_stages("native", torch.device("cpu")), device="cuda"))
    assert set(benchmark.SETS) == {name for pair in benchmark.PAIRS for name in pair}


def test_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(SIZES, "small", Size(48, 60, 16, 64, 300, 40, 150))
    for option in (split_backward, launch_bounds, shared_memory):  # refused on a CPU, where they change nothing
        monkeypatch.setattr(option, "unavailable", lambda stages: None)
    out = tmp_path / "out.json"
    small = ["--workloads", "random", "--device", "cpu", "--rounds", "2", "--warmup", "0", "--no-peer"]
    bench_split_backward.main([*small, "--out", str(out)])
    for view in json.loads(out.read_text())["views"]:
        assert list(view["rows"]) == [f"own {options}".strip() for options in bench_split_backward.SETS]
        assert all(row["status"] is None and row["ms"]["backward"]["median"] > 0 for row in view["rows"].values())
        assert all(row["difference"] == 0 for row in view["rows"].values())  # a CPU has one kernel for all
    assert "random, lidar: backward " in capsys.readouterr().out
