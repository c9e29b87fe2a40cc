# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of split_backward and shared_memory: the sets of options that they put side by side, and that a set which disagrees is
not timed."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from benchmarks.opt import bench_shared_memory, bench_split_backward
from benchmarks.render import bench_render
from benchmarks.render.contenders import Own
from benchmarks.render.workload import SIZES, Size
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.opt import launch_bounds, shared_memory, split_backward

BOTH = [(bench_split_backward, "split_backward"), (bench_shared_memory, "shared_memory")]
NAMES = [name for _, name in BOTH]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "small", Size(48, 60, 16, 64, 300, 40, 150))
    for option in (split_backward, launch_bounds, shared_memory):  # refused on a CPU, where they change nothing
        monkeypatch.setattr(option, "unavailable", lambda stages: None)


def report(benchmark: ModuleType, tmp_path: Path, *arguments: str) -> dict[str, Any]:
    out = tmp_path / "out.json"
    small = ["--workloads", "random", "--device", "cpu", "--rounds", "2", "--warmup", "0", "--no-peer"]
    benchmark.main([*small, "--out", str(out), *arguments])
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@pytest.mark.parametrize(("benchmark", "name"), BOTH, ids=NAMES)
def test_pairs_differ_by_the_option_alone(benchmark: ModuleType, name: str) -> None:
    for before, after in benchmark.PAIRS:
        assert [*filter(None, before.split(",")), name] == after.split(",")
        options = {n: parameters_of(n) for n in after.split(",")}
        build_stages(options, base_stages("native", torch.device("cpu")))  # they can be given together
    assert set(benchmark.SETS) == {name for pair in benchmark.PAIRS for name in pair}


@pytest.mark.parametrize(("benchmark", "name"), BOTH, ids=NAMES)
def test_report(benchmark: ModuleType, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(benchmark, tmp_path)
    assert found["command"].startswith(f"python benchmarks/opt/bench_{name}.py --workloads random")
    assert [view["sensor"] for view in found["views"]] == ["camera", "lidar"]
    for view in found["views"]:
        assert list(view["rows"]) == [f"own {options}".strip() for options in benchmark.SETS]
        assert all(row["status"] is None and row["ms"]["backward"]["median"] > 0 for row in view["rows"].values())
        assert all(row["difference"] == 0 for row in view["rows"].values())  # a CPU has one kernel for all
    shown = capsys.readouterr().out
    for _, after in benchmark.PAIRS:
        assert "random, lidar: backward " in shown and f" ms by {after}\n" in shown


@pytest.mark.parametrize(("benchmark", "name"), BOTH, ids=NAMES)
def test_a_set_that_disagrees_is_not_timed(
    benchmark: ModuleType,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Off by more than rounding explains; the program fails, and the file says why."""

    def difference(a: Own, b: Own) -> float:
        plans = a.stages.plan, b.stages.plan
        return 0.0 if plans[0] == plans[1] else 0.5

    monkeypatch.setattr(bench_render, "difference", difference)
    with pytest.raises(SystemExit):
        report(benchmark, tmp_path, "--sensors", "lidar")
    (view,) = json.loads((tmp_path / "out.json").read_text())["views"]
    first, *others = view["rows"].values()
    assert first["status"] is None and all(row["status"] == "disagrees: off by 5.0e-01" for row in others)
    assert "not timed" in capsys.readouterr().out


@pytest.mark.parametrize(("benchmark", "name"), BOTH, ids=NAMES)
def test_other_sets_may_be_named(
    benchmark: ModuleType, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = report(benchmark, tmp_path, "--sensors", "camera", "--opt", "", "fused_interp")
    assert list(found["views"][0]["rows"]) == ["own", "own fused_interp"]
    assert "ms by" not in capsys.readouterr().out
