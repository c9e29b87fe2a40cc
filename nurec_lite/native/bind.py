# SPDX-License-Identifier: Apache-2.0
"""The compiled stages of a plan."""

from functools import partial

import torch

from nurec_lite.native import ops, stages
from nurec_lite.native.inference import BatchedRenderer
from nurec_lite.native.operators.correct_view import correct
from nurec_lite.native.operators.expose import expose
from nurec_lite.native.operators.footprints import footprints
from nurec_lite.native.operators.slice_grid import slice_grid
from nurec_lite.native.operators.warp_tiles import group_rays
from nurec_lite.native.plan import CPU_PLAN, CUDA_PLAN, RenderPlan


def native_plan(device: torch.device) -> RenderPlan:
    """The plan of the baseline."""
    return CUDA_PLAN if device.type == "cuda" else CPU_PLAN


def native_stages(
    plan: RenderPlan,
) -> dict[str, object]:  # by the names of nurec_lite.training.stages.Stages
    """Compiles the kernels if need be; nurec_lite.native.build.BuildError names a missing tool."""
    ops.load()
    by_plan = stages.project, stages.tile, stages.render_camera, stages.render_lidar
    batched = {"render_views": BatchedRenderer()} if plan.max_views > 1 else {}
    grouped = {"group_rays": group_rays} if plan.warp_tiles else {}
    others = {"correct": correct, "expose": expose, "slice_grid": slice_grid, "footprints": footprints}
    return {**{f.__name__: partial(f, plan=plan) for f in by_plan}, **others, **batched, **grouped}
