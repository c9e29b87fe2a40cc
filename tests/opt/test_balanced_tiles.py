# SPDX-License-Identifier: Apache-2.0
"""The option `balanced_tiles`: a field of the plan, and the range of its parameter. Parts give the same as whole lists:
tests/native/test_warp_tiles.py; a training step: tests/opt/test_warp_cull.py."""

from dataclasses import replace

import pytest
import torch

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import parameters_of
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.stages import Stages


def for_a_gpu() -> Stages:
    return replace(base_stages("native", torch.device("cpu")), device="cuda")


@pytest.mark.parametrize("part", [1, 384])
def test_the_option_sets_a_field_of_the_plan(part: int) -> None:
    stages = build_stages({"warp_cull": {}, "balanced_tiles": {"part": part}}, for_a_gpu())
    assert stages.changes.claims == {"plan.warp_tiles": "warp_cull", "plan.segment_entries": "balanced_tiles"}
    assert stages.plan is not None and stages.plan.warp_tiles and stages.plan.segment_entries == part
    assert {
        f.keywords["plan"] for f in (stages.render.tile, stages.render.render_camera, stages.render.render_lidar)
    } == {stages.plan}  # type: ignore[attr-defined]


@pytest.mark.parametrize("part", [0, -1])
def test_parts_hold_something(part: int) -> None:
    with pytest.raises(OptionError, match=f"option 'balanced_tiles': part is {part}, but must be at least 1"):
        build_stages({"warp_cull": {}, "balanced_tiles": {"part": part}}, for_a_gpu())


def test_it_needs_warp_tiles() -> None:
    with pytest.raises(OptionError, match=r"'balanced_tiles' requires 'warp_cull'"):
        build_stages({"balanced_tiles": parameters_of("balanced_tiles")}, for_a_gpu())


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (lambda: base_stages("native", torch.device("cpu")), "it is about the warps of a GPU"),
        (lambda: reference_stages("cuda"), "it changes compiled kernels"),
    ],
)
def test_where_it_cannot_run(record, why: str) -> None:
    with pytest.raises(OptionError, match=f"cannot run here: {why}"):
        build_stages({"warp_cull": {}, "balanced_tiles": parameters_of("balanced_tiles")}, record())
