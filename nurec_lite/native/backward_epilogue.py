# SPDX-License-Identifier: Apache-2.0
"""The Gaussians of a step as its views see them, and the backward epilogue: one pass over all Gaussians turns the accumulated moments of
the views (nurec_lite/native/deferred_backward.py) into gradients of the stored parameters (kernels/raster_warps/backward). On CUDA alone.

Letters: N Gaussians, S static and A dynamic ones; V views, each at its own time; K nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.deferred_backward import grad_accum_floats
from nurec_lite.native.operators.gaussian_backward import BackwardScene, MovedArrays, UpstreamGrads
from nurec_lite.native.operators.move_actors import ActorArrays, MovedGrads
from nurec_lite.native.operators.shared import has_per_ray_origins, packed_view, wants_pose_grad
from nurec_lite.scene.gaussians import LIDAR_VALUES, Gaussians
from nurec_lite.splat.views import CameraView, LidarView

MAX_VIEWS = 16  # of a step, as the operator takes them
AnyView = CameraView | LidarView
Maybe = Tensor | None


class Values(NamedTuple):
    """Values of N Gaussians, activated or stored."""

    means: Tensor  # [N, 3]
    quats: Tensor  # [N, 4] unit, or of any length
    scales: Tensor  # [N, 3], or their logarithms
    opacities: Tensor  # [N], or their logits
    lidar_opacities: Maybe  # [N]; None: the lidar has none of its own, or they are a column of the next
    lidar: Tensor  # [N, 2], or [N, C] logits


class Shared(NamedTuple):
    """Tensors that the views share; regularisers read them, too."""

    still_means: Tensor  # [S, 3]
    still_quats: Tensor  # [S, 4] unit
    scales: Tensor  # [N, 3]
    opacities: Tensor  # [N]
    lidar_opacities: Maybe  # [N]; None: the lidar has none of its own
    lidar: Tensor  # [N, 2]


class Moved(NamedTuple):
    """Dynamic Gaussians in the world at the time of a view."""

    means: Tensor  # [A, 3]
    quats: Tensor  # [A, 4] unit
    velocities: Tensor  # [A, 3] metres a second
    rotations: Tensor  # [K, 4] unit, world from node


class DeferredScene(NamedTuple):
    shared: Shared
    moved: tuple[Moved, ...]  # V
    grad_slots: tuple[Tensor, ...]  # [grad_accum_floats(N)] of each view


def as_stored(g: Gaussians) -> Values:
    return Values(g.means, g.quats, g.log_scales, g.opacity_logits, None, g.lidar_logits)


def unsupported_reason(views: Sequence[AnyView]) -> str | None:
    """Returns why the gradients of these views cannot be deferred; None: they can."""
    if len(views) > MAX_VIEWS:
        return f"a step has {len(views)} views, more than {MAX_VIEWS}"
    return "poses ask for gradients of rays" if any(map(wants_pose_grad, views)) else None


def deferred_scene(
    views: Sequence[AnyView],  # as `unsupported_reason` allows
    values: Values,
    stored: bool,  # they are activated here
    still: int,  # S
    tracks: tuple[Tensor, ...],  # starts and the later fields of ActorArrays, with the time of each view
    seen_only: bool = False,  # regularisers give gradients to Gaussians alone whose mean has one
    blocks: Maybe = None,  # as by visible_blocks: others are not activated and get no gradient; with `stored` alone
) -> DeferredScene:
    asked = [view.pose_delta is not None and view.pose_delta.requires_grad for view in views]
    by_lidar, moving = [isinstance(view, LidarView) for view in views], [has_per_ray_origins(view) for view in views]
    way = _BackwardSpec(stored, still, by_lidar, moving, asked, seen_only, blocks)
    pose_deltas = [view.pose_delta if wanted else None for view, wanted in zip(views, asked, strict=True)]
    found = _DeferredScene.apply(way, *map(packed_view, views), *tracks, *values, *pose_deltas)
    shared, of_views, grad_slots = _parts_of(found)
    moved = tuple(Moved(*of_views[k : k + _MOVED]) for k in range(0, len(of_views), _MOVED))
    return DeferredScene(Shared(*shared), moved, grad_slots)


@dataclass(frozen=True)
class _BackwardSpec:
    """Arguments on the host; lists have an item a view."""

    stored: bool
    still: int
    by_lidar: list[bool]
    moving: list[bool]
    wants_pose_delta: list[bool]
    seen_only: bool
    blocks: Maybe


_TRACKS, _SHARED, _MOVED = len(ActorArrays._fields) - 2, len(Shared._fields), len(Moved._fields)


def _parts_of(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], ...]:
    """Splits values into those that views share, four of each view, and one of each view."""
    end = len(values) - (len(values) - _SHARED) // (_MOVED + 1)
    return values[:_SHARED], values[_SHARED:end], values[end:]


class _DeferredScene(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, way: _BackwardSpec, *tensors: Any) -> tuple[Maybe, ...]:
        rest = iter(tensors)
        rows, tracks = list(islice(rest, len(way.moving))), list(islice(rest, _TRACKS))
        values = Values(*islice(rest, len(Values._fields)))
        arrays, still = _activated(values, way.blocks) if way.stored else _alias(values), way.still
        moved = torch.ops.nurec_lite.move_actors(_actors(arrays, still, tracks))
        ctx.set_materialize_grads(False)
        ctx.way, ctx.columns = way, values.lidar.shape[1] if way.stored else 0
        ctx.own = ctx.columns > LIDAR_VALUES or values.lidar_opacities is not None
        ctx.save_for_backward(*rows, *tracks, *arrays, *moved)
        grad_slots = [values.means.new_empty_strided((grad_accum_floats(len(values.means)),), (0,)) for _ in way.moving]
        shared = Shared(
            arrays.means[:still], arrays.quats[:still], arrays.scales, arrays.opacities,
            arrays.lidar_opacities if ctx.own else None, arrays.lidar,
        )  # fmt: skip
        each = (
            t[v] for v in range(len(grad_slots)) for t in moved
        )  # one by one: else autograd puts gradients together
        return *shared, *each, *grad_slots

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Maybe) -> tuple[Maybe, ...]:
        saved = iter(ctx.saved_tensors)
        rows, tracks = list(islice(saved, len(ctx.way.moving))), list(islice(saved, _TRACKS))
        arrays, moved = BackwardScene(*islice(saved, len(BackwardScene._fields))), MovedArrays(*saved)
        shared, of_moved, of_rays = _parts_of(grads)
        given = Shared(*shared), of_moved, of_rays
        with span("gaussian_backward", within=BACKWARD):
            asked = _asked(ctx, *given)
            found, d_moved, d_pose_deltas = _finished(ctx, rows, arrays, moved, given, asked)
        d_tracks: Sequence[Maybe] = (None,) * _TRACKS
        if asked[0]:
            d_tracks = _move_back(ctx, arrays, tracks, found, MovedGrads(*d_moved))
        d_values = [d if wanted else None for d, wanted in zip(found, asked, strict=True)]
        pose_deltas = [d_pose_deltas[v] if wanted else None for v, wanted in enumerate(ctx.way.wants_pose_delta)]
        return None, *[None] * len(rows), *d_tracks, *d_values, *pose_deltas


def _activated(values: Values, blocks: Maybe) -> BackwardScene:
    unit, scales, opacities, lidar, own = torch.ops.nurec_lite.activate(
        values.quats, values.scales, values.opacities, values.lidar, blocks
    )
    return BackwardScene(values.means, unit, scales, opacities, own, lidar, values.quats)


def _alias(values: Values) -> BackwardScene:
    """Returns the same numbers as new tensors; their gradients arrive here."""
    of_all = values.scales, values.opacities, values.lidar
    own = values.means.new_empty(0) if values.lidar_opacities is None else values.lidar_opacities
    scales, opacities, lidar, own = (t.view_as(t) for t in (*of_all, own))
    return BackwardScene(values.means, values.quats, scales, opacities, own, lidar, values.quats.new_empty(0, 4))


def _actors(arrays: BackwardScene, still: int, tracks: Sequence[Tensor]) -> ActorArrays:
    return ActorArrays(arrays.means[still:], arrays.quats[still:], *tracks)


def _asked(ctx: Any, shared: Shared, moved: Sequence[Maybe], of_rays: Sequence[Maybe]) -> list[bool]:
    """Returns which Values anything depends on; for the others Adam must not apply its momentum."""
    by_lidar = any(d is not None and lidar for d, lidar in zip(of_rays, ctx.way.by_lidar, strict=True))
    by_camera = any(d is not None and not lidar for d, lidar in zip(of_rays, ctx.way.by_lidar, strict=True))
    seen = by_lidar or by_camera
    poses = seen or any(d is not None for d in (*shared[:2], *moved))
    opacities = by_camera or (by_lidar and not ctx.own) or shared.opacities is not None
    own = ctx.own and (by_lidar or shared.lidar_opacities is not None)
    lidar = by_lidar or shared.lidar is not None
    if ctx.way.stored:
        lidar, own = lidar or own, False
    return [poses, poses, seen or shared.scales is not None, opacities, own, lidar]


def _finished(
    ctx: Any,
    rows: list[Tensor],  # [84] of each view
    arrays: BackwardScene,
    moved: MovedArrays,
    grads: tuple[Shared, Sequence[Maybe], Sequence[Maybe]],  # the second four of each view
    asked: list[bool],
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    (still_means, still_quats, *numbers), of_moved, of_rays = grads
    given = UpstreamGrads(*map(_contiguous, (still_means, still_quats)), *map(_numbers, numbers))
    way = ctx.way
    found: tuple[list[Tensor], list[Tensor], Tensor] = torch.ops.nurec_lite.gaussian_backward(
        arrays,
        moved,
        rows,
        list(of_rays),
        way.by_lidar,
        way.moving,
        way.wants_pose_delta,
        given,
        list(map(_contiguous, of_moved)),
        asked,
        ctx.columns,
        way.seen_only,
        way.blocks,
    )
    return found


def _contiguous(d: Maybe) -> Maybe:
    return None if d is None else d.contiguous()


def _numbers(d: Maybe) -> Maybe:
    """Flattens a gradient, or returns one number that stands for all, as regularisers give it."""
    if d is None or not d.numel():
        return d if d is None else d.flatten()
    return d[(0,) * d.dim()].view(1) if not any(d.stride()) else d.contiguous().view(-1)


def _move_back(
    ctx: Any,
    arrays: BackwardScene,
    tracks: Sequence[Tensor],
    found: Sequence[Tensor],  # rows of moving Gaussians are filled in
    d_moved: MovedGrads,
) -> tuple[Maybe, ...]:
    """Differentiates the interpolation of actors; returns the gradients of the tracks."""
    still = ctx.way.still
    d_means, d_quats, *d_keys = torch.ops.nurec_lite.move_actors_backward(_actors(arrays, still, tracks), d_moved)
    if len(d_means):
        found[0][still:] = d_means
        found[1][still:] = _stored(ctx, arrays, d_quats) if ctx.way.stored else d_quats
    return None, None, None, *d_keys, None


def _stored(ctx: Any, arrays: BackwardScene, d_unit: Tensor) -> Tensor:
    """Returns gradients of stored quaternions of dynamic Gaussians."""
    of_all = arrays.stored_quats, arrays.scales, arrays.opacities, arrays.lidar, arrays.lidar_opacities
    moving = [t[ctx.way.still :] if len(t) else t for t in of_all]
    found: tuple[Tensor, ...] = torch.ops.nurec_lite.activate_backward(
        *moving, ctx.columns, d_unit, None, None, None, None
    )
    return found[0]
