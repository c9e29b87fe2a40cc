# SPDX-License-Identifier: Apache-2.0
"""Which compiled stages a plan gets."""

from functools import partial

import torch

from nurec_lite.native import deferred_backward, ops, stages, warps
from nurec_lite.native.inference import BatchedRenderer
from nurec_lite.native.operators.expose import expose
from nurec_lite.native.operators.footprints import footprints
from nurec_lite.native.operators.slice_grid import slice_grid
from nurec_lite.native.plan import CPU_PLAN, CUDA_PLAN, RenderPlan


def native_plan(device: torch.device) -> RenderPlan:
    """The plan of the baseline."""
    return CUDA_PLAN if device.type == "cuda" else CPU_PLAN


def native_stages(
    plan: RenderPlan,
) -> dict[str, object]:  # by the names of nurec_lite.training.stages.Stages
    """Compiles the kernels if need be; nurec_lite.native.build.BuildError says what is missing."""
    ops.load()
    renderer = warps if plan.bundles else stages
    kernels = {"kernels": deferred_backward.kernels_of} if plan.told else {}
    planned = {f.__name__: partial(f, plan=plan) for f in (stages.project, renderer.tile)}
    renderers = {f.__name__: partial(f, plan=plan, **kernels) for f in (renderer.render_camera, renderer.render_lidar)}
    together = {"render_views": BatchedRenderer()} if plan.views > 1 else {}
    grouped = {"group_rays": warps.bundled} if plan.bundles else {}
    alone = {
        "correct": stages.correct,
        "expose": expose,
        "slice_grid": slice_grid,
        "footprints": footprints,
    }
    return {**alone, **planned, **renderers, **together, **grouped}
