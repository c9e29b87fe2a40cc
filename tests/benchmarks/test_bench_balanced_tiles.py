# SPDX-License-Identifier: Apache-2.0
"""The benchmark of balanced_tiles: the sets of options that it puts side by side, and what it says on a CPU."""

from dataclasses import replace

import pytest
import torch

from benchmarks.opt import bench_balanced_tiles
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of


def test_pairs_differ_by_the_option_alone() -> None:
    for before, after in bench_balanced_tiles.PAIRS:
        assert [*before.split(","), "balanced_tiles"] == after.split(",")
        for names in (before, after):  # they can be given together
            options = {n: parameters_of(n) for n in names.split(",")}
            build_stages(options, replace(base_stages("native", torch.device("cpu")), device="cuda"))
    assert set(bench_balanced_tiles.SETS) == {name for pair in bench_balanced_tiles.PAIRS for name in pair}


def test_a_cpu_has_no_bundles(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench_balanced_tiles.main(["--workloads", "random", "--device", "cpu", "--no-peer"])
    assert ended.value.code == 2
    said = "error: option 'warp_cull' cannot run here: it is about the warps of a GPU; use device=cuda"
    assert said in capsys.readouterr().err
