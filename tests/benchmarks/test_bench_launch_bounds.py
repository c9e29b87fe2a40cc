# SPDX-License-Identifier: Apache-2.0
"""The sweep of launch bounds: its variants, the compiler's resources of one, the choice, and that the libraries are called
as they want to be, on a CPU by way of the emulation (tests/emulation)."""

import json
import os
from pathlib import Path
from typing import Any

import emulation
import pytest
import torch
from operators import call
from parity import SHARED as SHARED_PLAN

from benchmarks.opt import bench_launch_bounds
from benchmarks.opt.bench_launch_bounds import checked, main, measure, rounding_of
from benchmarks.opt.sweep_report import choices, pick_of
from benchmarks.opt.sweep_variants import (
    SHARED,
    SOURCE,
    Library,
    Variant,
    occupancy,
    problem_of,
    variants_of,
)
from benchmarks.render.workload import Size, random
from nurec_lite.base.paths import resource
from nurec_lite.native.build import BuildError, find_tools
from scripts.resources import Usage

CPU = torch.device("cpu")
TINY = Size(48, 60, 16, 64, 300, 40, 200)
ONE = Variant("lidar", 128, 8, 1, 128, 4)


@pytest.fixture
def nvcc() -> None:
    try:
        assert find_tools("90").nvcc is not None
    except BuildError as error:
        absent = pytest.fail if os.environ.get("CI") else pytest.skip
        absent(str(error))


# ---- variants


def test_variants_fill_a_tile_with_whole_blocks() -> None:
    found = variants_of("camera", [64, 96, 128], [512, 640, 700], [1, 2, 4], [128], [1])
    sizes = {(v.threads, v.min_blocks, v.rays) for v in found}
    assert sizes == {(t, r // t, n) for t, n in ((64, 1), (64, 2), (64, 4), (128, 1), (128, 2)) for r in (512, 640)}
    assert all(v.sensor == "camera" and v.rows == 128 for v in found) and len(found) == len(sizes)


def test_variants_have_no_more_blocks_than_a_multiprocessor_takes() -> None:
    assert [v.min_blocks for v in variants_of("lidar", [32], [1024, 1280], [1], [64], [1])] == [32]
    assert [v.ahead for v in variants_of("lidar", [64], [512], [1], [64], [1, 3, 4, 16])] == [1, 4, 16]


@pytest.mark.parametrize(
    ("usage", "threads", "architecture", "share"),
    [
        (Usage(registers=64, shared=10240), 128, "90", 8 * 4 / 64),  # 2048 registers a warp
        (Usage(registers=60, shared=22528), 256, "90", 4 * 8 / 64),  # rounded up to 64
        (Usage(registers=122, shared=21504), 256, "90", 2 * 8 / 64),
        (Usage(registers=64, shared=22528), 128, "89", 4 * 4 / 48),  # 100 KB of shared memory hold four
        (Usage(registers=16, shared=0), 32, "90", 32 / 64),  # 32 blocks at most
        (Usage(registers=16, shared=0), 256, "90", 1.0),
        (Usage(registers=16), 128, "75", None),
    ],
)
def test_occupancy(usage: Usage, threads: int, architecture: str, share: float | None) -> None:
    assert occupancy(usage, threads, architecture) == share


# ---- without a GPU


def test_registers_without_a_gpu(nvcc: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = "--threads 128 --resident 1024 --rays 1 --rows 128 --ahead 4 --sensors lidar --device cpu"
    main(["--compile-only", *chosen.split(), "--out", str(tmp_path / "out")])
    report = json.loads((tmp_path / "out/sweep.json").read_text())
    shared, one = report["rows"]
    assert shared["status"] == "both sensors" and shared["shared"] == 22528 and shared["min_blocks"] is None
    assert one | {"registers": 64, "occupancy": 0.5} == {
        "workload": None, "sensor": "lidar", "architecture": "90", "threads": 128, "min_blocks": 8, "rays": 1, "rows": 128, "ahead": 4,
        "registers": 64, "spills": 0, "shared": 10240, "occupancy": 0.5, "status": None,
    }  # fmt: skip
    assert 32 < one["registers"] <= 64 and one["occupancy"] >= 0.5 and report["choices"] == []
    assert report["command"].startswith("python benchmarks/opt/bench_launch_bounds.py --compile-only")
    shown = capsys.readouterr().out
    assert "| lidar | 90 | 128 | 8 | 1 | 128 | 4 |" in shown and "0 | 22528 | 50% |" in shown and "| ms |" not in shown
    assert shown.strip() in (tmp_path / "out/sweep.md").read_text()


# ---- files


def rows() -> list[dict[str, Any]]:
    base = {
        "workload": "random",
        "sensor": "lidar",
        "architecture": "90",
        "registers": 64,
        "spills": 0,
        "shared": 10240,
        "ahead": 4,
    }
    return [
        base | {"threads": 256, "min_blocks": None, "rays": 1, "rows": 256, "ms": 2.0, "status": "both sensors"},
        base | {"threads": 128, "min_blocks": 8, "rays": 1, "rows": 128, "ms": 1.25, "difference": 2e-6, "status": None},
        base | {"threads": 64, "min_blocks": 8, "rays": 2, "rows": 128, "ms": 1.5, "difference": 3e-6, "status": None},
        base | {"threads": 64, "min_blocks": 16, "rays": 4, "rows": 128, "difference": 0.5, "status": "disagrees: off by 5e-01"},
        base | {"sensor": "camera", "threads": 64, "min_blocks": 8, "rays": 2, "rows": 128, "ms": 3.0, "status": None},
    ]  # fmt: skip


def test_the_fastest_of_those_that_agree_is_picked() -> None:
    picked = choices(rows())
    assert [(row["sensor"], row["threads"], row["ms"]) for row in picked] == [("lidar", 128, 1.25), ("camera", 64, 3.0)]
    assert pick_of(picked[0]) == (
        "random, lidar, sm_90: {128, 8, 1, 4} with 128 rows, 1.2500 ms, 64 registers, 0 bytes of spills"
    )


def test_gradients_that_differ_are_named() -> None:
    one = {"means": torch.tensor([3.0, 4.0]), "scales": torch.zeros(2)}
    assert checked(one, one) == {"difference": 0.0, "status": None}
    off = checked({"means": torch.tensor([3.0, 4.5]), "scales": torch.zeros(2)}, one)
    assert off == {"difference": pytest.approx(0.1), "status": "disagrees: off by 1.0e-01"}
    assert checked({"means": one["means"], "scales": torch.ones(2)}, one)["status"] is not None  # where there is none
    assert checked({"means": torch.tensor([3.0, 4.5]), "scales": torch.zeros(2)}, one, 0.04)["status"] is not None
    assert (
        checked({"means": torch.tensor([3.0, 4.5]), "scales": torch.zeros(2)}, one, 0.06)["status"] is None
    )  # twice 0.06


# ---- calls


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Library]:
    """The shared kernel and a variant for each sensor."""
    variants = {"lidar": ONE, "camera": Variant("camera", 64, 4, 2, 128, 2)}
    defines = {"both sensors": SHARED} | {sensor: v.defines(moving=sensor == "lidar") for sensor, v in variants.items()}
    found = {}
    for name, own in defines.items():
        folder, root = tmp_path_factory.mktemp("sweep"), resource("kernels")
        files = {folder / path.relative_to(root): path for path in root.rglob("*/*") if path.is_file()}
        emulation._rewrite(files | {folder / "raster_tiles" / SOURCE.name: SOURCE})
        pairs = [d.removeprefix("-D").replace("=", " ") for d in own]
        wrapper = folder / "raster_tiles" / "variant.cu"
        wrapper.write_text("".join(f"#define {pair}\n" for pair in pairs) + f'#include "{SOURCE.name}"\n')
        found[name] = Library(emulation._compiled([wrapper], folder))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_a_variant_is_compared_and_timed(
    sensor: str, emulated: dict[str, Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the tiles of a CPU's plan: the shared kernel agrees with the operator of the CPU, and the variant with it."""
    workload = random(TINY, 0, None, CPU)
    problem = problem_of(workload, sensor, CPU)
    assert problem.moving == (sensor == "lidar")
    libraries = {"both sensors": emulated["both sensors"], sensor: emulated[sensor]}
    expected = libraries["both sensors"].gradients(problem)
    rest = {"moving": problem.moving, "ray_gradients": False, **SHARED_PLAN._asdict()}
    found = call("render_backward", problem.tensors | rest)
    truth = {name: value.double() for name, value in zip(expected, found, strict=True)}
    assert checked(expected, truth)["difference"] < 1e-4 and truth["means"].any() and truth["features"].any()
    row = checked(libraries[sensor].gradients(problem), expected)
    assert row["status"] is None and 0 < row["difference"] < 1e-4
    assert 1e-8 < rounding_of(libraries["both sensors"], expected, workload, sensor, CPU) < 1e-3
    problem.sums.zero_()
    taken = measure(libraries, problem, 1, 3, CPU)
    assert {name: len(samples) for name, samples in taken.items()} == {"both sensors": 3, sensor: 3}
    monkeypatch.setattr(bench_launch_bounds, "TOLERANCE", 0.0)
    assert (checked(libraries[sensor].gradients(problem), expected)["status"] or "").startswith("disagrees")
