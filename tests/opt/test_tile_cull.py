# SPDX-License-Identifier: Apache-2.0
"""The option `tile_cull`: a field of the plan. That exact lists render the same bit for bit: tests/native/test_warp_tiles.py; a training
step: tests/opt/test_warp_cull.py; the bound itself: tests/native/test_math_ray_pyramid.py."""

from dataclasses import replace

import pytest
import torch

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.training.baseline import reference_stages

BOTH: dict[str, dict] = {"warp_cull": {}, "tile_cull": {}}


def test_the_option_sets_a_field_of_the_plan() -> None:
    stages = build_stages(BOTH, replace(base_stages("native", torch.device("cpu")), device="cuda"))
    assert stages.changes.claims == {"plan.warp_tiles": "warp_cull", "plan.tight_lists": "tile_cull"}
    assert stages.plan is not None and stages.plan.warp_tiles and stages.plan.tight_lists
    assert {
        f.keywords["plan"] for f in (stages.render.tile, stages.render.render_camera, stages.render.render_lidar)
    } == {stages.plan}  # type: ignore[attr-defined]


def test_it_needs_warp_tiles() -> None:
    with pytest.raises(OptionError, match=r"'tile_cull' requires 'warp_cull'; use \+opt=\[warp_cull,tile_cull\]"):
        build_stages({"tile_cull": {}}, replace(base_stages("native", torch.device("cpu")), device="cuda"))


def test_it_needs_a_gpu_because_warp_tiles_do() -> None:
    with pytest.raises(
        OptionError, match="'warp_cull' cannot run here: it is about the warps of a GPU; use device=cuda"
    ):
        build_stages(BOTH, base_stages("native", torch.device("cpu")))


def test_it_needs_compiled_kernels() -> None:
    with pytest.raises(OptionError, match="cannot run here: it changes compiled kernels; use ops=native"):
        build_stages(BOTH, reference_stages("cuda"))
