# SPDX-License-Identifier: Apache-2.0
"""The operator render_views_train with deferred gradients (kernels/raster_warps/views/train.h): backward, a launch accumulates the moments
of each of its views in the view's grad slot, as a view alone does (nurec_lite/native/deferred_backward.py). Colours get their gradients
here: rank-1 products, an image each, where the step expects them. On CUDA alone.

Letters: V views, N Gaussians, S static and A moving; R rays of all views.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.operators.render_views import NodeRotations, SavedViews, SceneArrays, SensorRays
from nurec_lite.native.operators.shared import Outputs, given_of
from nurec_lite.native.operators.view_colour import PlacementArrays
from nurec_lite.native.rank1_sh import DeferredShGrad, stacked

_OUTPUTS, _OTHERS = len(Outputs._fields), 2  # others: the median, and entries that the views need


@dataclass(frozen=True)
class Launch:
    """Arguments of a launch that get no gradient."""

    views: Tensor  # [V, 84]
    rays: SensorRays
    targets: Tensor  # [R, 2] of sweeps, or [0, 2]
    size: list[int]  # pixels of an image and of a warp tile; empty for a lidar
    columns: int
    moving: bool  # rays have origins or delays
    lenses: bool  # some view has a lens of kernels/math/lens.cuh
    segment_entries: int
    capacity: int  # -1: as the lists need
    depth_bits: int
    rank1_sh: DeferredShGrad | None
    eyes: tuple[Tensor, ...]  # [3] of each image


@dataclass(frozen=True)
class Blended:
    """Outputs of all rays, and the required capacity of each view's lists."""

    features: Tensor  # [R, C]
    distance: Tensor  # [R]
    transmittance: Tensor  # [R]
    median: Tensor  # [R]
    needed: Tensor  # [V] int64 entries
    directions: Tensor  # [R, 3] unit, world


def render_views(scene: SceneArrays, nodes: NodeRotations, launch: Launch, grad_slots: Sequence[Tensor]) -> Blended:
    """Blends all views of a launch. Gradients go into the grad slots [grad_accum_floats(N)], one a view; those of colours to harmonics
    and placements."""
    if launch.rank1_sh is not None and launch.size:
        for _ in grad_slots:
            launch.rank1_sh.use(scene.sh0, scene.sh_rest)
    return Blended(*_RenderViewsDeferred.apply(launch, *scene, *nodes, *grad_slots))


class _RenderViewsDeferred(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, launch: Launch, *tensors: Tensor) -> tuple[Tensor, ...]:
        rest = iter(tensors)
        scene, nodes = SceneArrays(*islice(rest, len(SceneArrays._fields))), NodeRotations(*islice(rest, 2))
        r = launch
        found = torch.ops.nurec_lite.render_views_train(
            scene,
            r.views,
            r.rays,
            r.targets,
            r.size,
            r.columns,
            r.moving,
            r.lenses,
            r.segment_entries,
            r.capacity,
            r.depth_bits,
        )
        others, kept = found[_OUTPUTS : _OUTPUTS + _OTHERS], SavedViews(*found[_OUTPUTS + _OTHERS :])
        ctx.launch, ctx.harmonics = launch, (scene.sh0, scene.sh_rest)  # the parameters themselves, to know them again
        ctx.mark_non_differentiable(*others, kept.directions)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*scene, *nodes, *found[:_OUTPUTS], *kept)
        return *found[:_OUTPUTS], *others, kept.directions

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = iter(ctx.saved_tensors)
        scene, nodes = SceneArrays(*islice(saved, len(SceneArrays._fields))), NodeRotations(*islice(saved, 2))
        outputs = Outputs(*islice(saved, _OUTPUTS))
        r, kept, is_rank1 = ctx.launch, SavedViews(*saved), _is_rank1(ctx)
        with span("render", within=BACKWARD):
            moments, d_features = torch.ops.nurec_lite.render_views_accumulate(
                scene,
                r.views,
                r.targets,
                r.moving,
                r.segment_entries,
                kept,
                outputs,
                *given_of(grads, outputs),
                is_rank1,
            )
        d_scene: dict[str, Tensor] = {}
        if r.size:
            with span("view_colour", within=BACKWARD):
                d_scene = _rank1(ctx, scene, nodes, d_features) if is_rank1 else _colours(r, scene, nodes, moments)
        d_rotations = d_scene.pop("rotations", None)
        return None, *(d_scene.get(name) for name in SceneArrays._fields), d_rotations, None, *moments.unbind(0)


def _is_rank1(ctx: Any) -> bool:
    """Returns whether harmonics get their gradient as products, one an image, where the step expects them."""
    r = ctx.launch
    return bool(r.size) and r.rank1_sh is not None and r.rank1_sh.takes(*ctx.harmonics, views=len(r.views))


def _rank1(
    ctx: Any,
    scene: SceneArrays,
    nodes: NodeRotations,
    d_colours: Tensor,  # [V, N, 3]
) -> dict[str, Tensor]:
    placed = []
    for v, eye in enumerate(ctx.launch.eyes):
        places = PlacementArrays(scene.still_means, scene.means[v], nodes.rotations[v], nodes.node)
        *d_placed, directions, colours = torch.ops.nurec_lite.view_colour_rank1(
            places, scene.sh0, scene.sh_rest, eye, d_colours[v]
        )
        placed.append(d_placed)
        ctx.launch.rank1_sh.put(directions, colours, eye)
    still_means, means, rotations = zip(*placed, strict=True)
    return {
        "still_means": sum(still_means[1:], still_means[0]),
        "means": stacked(means),
        "rotations": stacked(rotations),
    }


def _colours(launch: Launch, scene: SceneArrays, nodes: NodeRotations, moments: Tensor) -> dict[str, Tensor]:
    names = "still_means", "means", "rotations", "sh0", "sh_rest"
    found = torch.ops.nurec_lite.render_views_colour_backward(scene, nodes, launch.views, moments)
    return dict(zip(names, found, strict=True))
