# SPDX-License-Identifier: Apache-2.0
"""The option `shared_memory`: its field of the plan, and the staging of its instances. tests/opt/test_split_backward.py compares their
results."""

import re
from dataclasses import replace

import pytest
import torch

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import parameters_of
from scripts.resources import read_budget

BOTH = {name: parameters_of(name) for name in ("split_backward", "shared_memory")}


def staged(rows: int) -> list[int]:
    """Bytes of shared memory of the instances that stage so many rows."""
    found = []
    for kernels in read_budget().values():
        for name, limits in kernels.items():
            launch = re.match(r"renderBackward(?:Camera|Lidar)_kernel<Launch<\d+, \d+, \d+, (\d+), \w+, \d+>", name)
            if launch and int(launch[1]) == rows:
                assert isinstance(limits["shared"], int)
                found.append(limits["shared"])
    return found


def test_the_option_sets_a_field_of_the_plan() -> None:
    stages = build_stages(BOTH, replace(base_stages("native", torch.device("cpu")), device="cuda"))
    assert stages.changes.claims == {
        f"plan.{f}": o for f, o in (("split_backward", "split_backward"), ("half_staging", "shared_memory"))
    }
    assert stages.plan is not None and stages.plan.backward == (True, False, True)


def test_it_stands_on_the_split_kernels() -> None:
    with pytest.raises(
        OptionError, match=r"'shared_memory' requires 'split_backward'; use \+opt=\[split_backward,shared_memory\]"
    ):
        build_stages({"shared_memory": {}}, base_stages("native", torch.device("cpu")))


def test_a_block_stages_less_than_half() -> None:
    """128 rows of 80 bytes, against 256 with their indices; the kernel of both sensors stages 22528 bytes."""
    assert set(staged(128)) == {128 * 80} and set(staged(256)) == {256 * 84}
    assert len(staged(128)) == len(staged(256)) == 14
    assert read_budget()["raster_tiles/render_backward_shared.cu"]["renderBackward_kernel<false>"]["shared"] == 22528
