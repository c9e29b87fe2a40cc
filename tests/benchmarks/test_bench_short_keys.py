# SPDX-License-Identifier: Apache-2.0
"""The benchmark of short_keys: its orders are checked, over the emulation on a CPU, and its keys are those of the option."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from emulation import EMULATED
from kernel_math import F64, call
from parity import DEVICES

from benchmarks.opt import bench_short_keys as bench
from benchmarks.opt.bench_short_keys import STEPS, Sorting, distances_of, keys_of, of_lists

CPU = torch.device("cpu")
SMALL = ["--distances", "3000", "--rounds", "1", "--warmup", "0", "--copy-mib", "1"]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cpu" and not EMULATED:
        pytest.skip("on a CPU over the emulation alone")
    return torch.device(request.param)


def test_keys_are_those_of_the_kernels() -> None:
    distances = distances_of(1000, torch.Generator().manual_seed(0))
    rows = distances.to(F64)[:, None]
    assert torch.equal(keys_of(distances, 32), call("depth_key", rows)[:, 0].long())
    for bits in (16, 18, 24):
        assert torch.equal(keys_of(distances, bits), call("short_depth_key", rows, float(bits))[:, 0].long())


def test_both_ways_end_with_the_same_lists() -> None:
    """They are the same except for Gaussians that share a key."""
    ways = of_lists(4000, STEPS[0], CPU)
    assert {version for version, _ in ways} == {"two, 32 bits", "two, 24 bits", "two, 16 bits", "one, packed"}
    fine, packed = (
        next(few[-1] for (v, _), few in ways.items() if v == name) for name in ("two, 24 bits", "one, packed")
    )
    assert len(fine.expected) == len(packed.expected) == 6800
    assert float((fine.expected != packed.expected).double().mean()) < 0.02
    assert packed.bits == 32 and fine.bits == 14 and fine.values is not None


def test_all_orders_are_right(device: torch.device, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main([*SMALL, "--device", device.type, "--out", str(tmp_path / "out.json")]) == 0
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["disagreements"] == {} and len(report["rows"]) == 3 * 3 + 2 * 4
    assert "image, 5100 entries" in capsys.readouterr().out


def test_a_wrong_order_is_reported(device: torch.device) -> None:
    sorting = Sorting.of(torch.arange(5000, device=device).flip(0), 32)
    assert sorting.wrong() == 0
    assert replace(sorting, bits=8).wrong() > 0.9
    some = torch.ones(5000, dtype=torch.bool, device=device)
    assert (
        replace(Sorting.of(torch.arange(5000, device=device), 32, wanted=some), expected=torch.arange(4)).wrong() == 1
    )
