# SPDX-License-Identifier: Apache-2.0
"""Which compiled stages a plan gets."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from nurec_lite.native import bundles, ops, stages, told
from nurec_lite.native.look import Look
from nurec_lite.native.operators.expose import expose
from nurec_lite.native.operators.footprints import footprints
from nurec_lite.native.operators.slice_grid import slice_grid
from nurec_lite.native.plan import CPU_PLAN, CUDA_PLAN, RenderPlan


def native_plan(device: torch.device) -> RenderPlan:
    """Of the baseline."""
    return CUDA_PLAN if device.type == "cuda" else CPU_PLAN


def native_stages(
    plan: RenderPlan,
) -> dict[str, Callable[..., Any]]:  # by the names of nurec_lite.training.stages.Stages
    """Compiles the kernels if need be; nurec_lite.native.build.BuildError says what is missing."""
    ops.load()
    room = bundles if plan.bundles else stages
    kernels = {"kernels": told.kernels_of} if plan.told else {}
    planned = {f.__name__: partial(f, plan=plan) for f in (stages.project, room.tile)}
    renderers = {f.__name__: partial(f, plan=plan, **kernels) for f in (room.render_camera, room.render_lidar)}
    together = {"render_views": Look()} if plan.views > 1 else {}
    grouped = {"bundle": bundles.bundled} if plan.bundles else {}
    alone: dict[str, Callable[..., Any]] = {
        "correct": stages.correct,
        "expose": expose,
        "slice_grid": slice_grid,
        "footprints": footprints,
    }
    return {**alone, **planned, **renderers, **together, **grouped}
