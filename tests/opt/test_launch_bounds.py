# SPDX-License-Identifier: Apache-2.0
"""The option `launch_bounds`: its field of the plan, and the registers of its instances. That they compute the same:
tests/opt/test_split_backward.py; the sweep that chooses the bounds: tests/benchmarks/test_bench_launch_bounds.py."""

import re
from dataclasses import replace

import pytest
import torch

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import parameters_of
from scripts.resources import read_budget

BOTH = {name: parameters_of(name) for name in ("split_backward", "launch_bounds")}
REGISTERS = {"Camera": 128, "Lidar": 64}  # at most, as the post has them


def test_the_option_sets_a_field_of_the_plan() -> None:
    stages = build_stages(BOTH, replace(base_stages("native", torch.device("cpu")), device="cuda"))
    assert stages.changes.claims == {f"plan.{name}": name for name in BOTH}
    assert stages.plan is not None and stages.plan.backward == (True, True, False)


def test_it_stands_on_the_split_kernels() -> None:
    with pytest.raises(OptionError, match=r"'launch_bounds' requires 'split_backward'"):
        build_stages({"launch_bounds": {}}, base_stages("native", torch.device("cpu")))


def test_the_order_of_both_does_not_matter() -> None:
    plans = [
        build_stages(options, replace(base_stages("native", torch.device("cpu")), device="cuda")).plan
        for options in (BOTH, dict(reversed(BOTH.items())))
    ]
    assert plans[0] == plans[1]


@pytest.mark.parametrize("sensor", ["Camera", "Lidar"])
def test_a_training_step_s_kernels_keep_their_registers_without_spills(sensor: str) -> None:
    """Those without gradients of rays: on every architecture of the budget."""
    found = 0
    for name, limits in read_budget()[f"raster_tiles/render_backward_{sensor.lower()}.cu"].items():
        bounded = re.search(r"<Launch<128, (\d+), \d+, \d+, \w+, \d+>.*, (\w+)>$", name)
        if bounded and bounded[2] == "false":
            assert isinstance(limits["registers"], int) and limits["registers"] <= REGISTERS[sensor], name
            assert limits["spills"] == limits["stack"] == 0, name
            found += 1
    assert found == {"Camera": 6, "Lidar": 2}[sensor]
