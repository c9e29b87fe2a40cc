# SPDX-License-Identifier: Apache-2.0
"""The benchmark of warp_cull: the sets of options that it puts side by side, and what it says on a CPU."""

from dataclasses import replace

import pytest
import torch

from benchmarks.opt import bench_warp_cull
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of


def test_pairs_differ_by_the_option_alone() -> None:
    for before, after in bench_warp_cull.PAIRS:
        assert [*before.split(","), "warp_cull"] == after.split(",")
        for names in (before, after):  # they can be given together
            options = {n: parameters_of(n) for n in names.split(",")}
            build_stages(options, replace(base_stages("native", torch.device("cpu")), device="cuda"))
    assert set(bench_warp_cull.SETS) == {name for pair in bench_warp_cull.PAIRS for name in pair}


def test_a_cpu_has_no_bundles(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench_warp_cull.main(["--workloads", "random", "--device", "cpu", "--no-peer"])
    assert ended.value.code == 2
    said = "error: option 'split_backward' cannot run here: it changes kernels of the GPU alone; use device=cuda"
    assert said in capsys.readouterr().err
