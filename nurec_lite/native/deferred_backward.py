# SPDX-License-Identifier: Apache-2.0
"""Render functions for warp tiles with a deferred backward pass: backward, a view only accumulates moments of its Gaussians, and
nurec_lite/native/backward_epilogue.py turns the moments of all views into gradients. On CUDA alone.

Each view receives an empty, zero-stride tensor with its Gaussians, its grad slot. Only the slot's gradient matters: the backward pass
returns the accumulated moments there, so autograd orders the epilogue after all views and handles streams. Rows of Gaussians that a view
does not see are not written.

Letters: N Gaussians.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native import warps
from nurec_lite.native.operators.correct_view import pose_vjp
from nurec_lite.native.operators.gaussian_backward import view_gradients
from nurec_lite.native.operators.render_segments import kept_of
from nurec_lite.native.operators.shared import (
    GaussianArrays,
    Outputs,
    gaussian_args,
    given_of,
    has_per_ray_origins,
    packed_view,
    ray_and_list_args,
)
from nurec_lite.scene.gaussians import AnyGaussians, SplitGaussians
from nurec_lite.splat.pose_delta import with_pose_grad
from nurec_lite.splat.reference import Blend
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView, Rays


class GradSlot:
    """The grad slot of a view, for one use."""

    def __init__(self, slot: Tensor) -> None:
        self._tensor: Tensor | None = slot

    @property
    def unused(self) -> bool:
        return self._tensor is not None

    def claim(self) -> Tensor:
        assert self._tensor is not None
        slot, self._tensor = self._tensor, None
        return slot


@dataclass(frozen=True)
class DeferredGaussians(SplitGaussians):
    """Gaussians of a view with deferred gradients."""

    grad_slot: GradSlot = field(kw_only=True)
    blocks: Tensor | None = None  # [1 + blocks] int32 as by visible_blocks: others have no values; None: all have


def grad_accum_floats(n: int) -> int:
    """Returns the floats of a grad slot: 16 of each Gaussian, followed by a byte of each, to a multiple of 16 bytes
    (kernels/raster_warps/backward/gaussian_backward.h)."""
    return 16 * n + (n + 15) // 16 * 4


def with_grad_slot(gaussians: SplitGaussians, slot: Tensor, blocks: Tensor | None = None) -> DeferredGaussians:
    """Returns the Gaussians with a grad slot of grad_accum_floats(N) numbers."""
    values = {f.name: getattr(gaussians, f.name) for f in fields(SplitGaussians)}
    return DeferredGaussians(**values, grad_slot=GradSlot(slot), blocks=blocks)


def blocks_of(gaussians: AnyGaussians) -> Tensor | None:
    """Returns the blocks that a view reads and writes [1 + blocks] int32; None: all. A view that is rendered again reads all."""
    return gaussians.blocks if has_unused_slot(gaussians) else None


def has_unused_slot(gaussians: AnyGaussians) -> TypeGuard[DeferredGaussians]:
    """Returns whether the gradients of these Gaussians are deferred. Those of a view that is rendered again, or without a step, are not."""
    return isinstance(gaussians, DeferredGaussians) and gaussians.grad_slot.unused


def grad_slot_of(gaussians: SplitGaussians, view: CameraView | LidarView) -> Tensor:
    """Returns the grad slot [grad_accum_floats(N)] of the Gaussians, or one with gradients for this view alone."""
    if has_unused_slot(gaussians):
        return gaussians.grad_slot.claim()
    posed: AnyGaussians = gaussians
    if view.pose_delta is not None:  # else the centre is not needed
        posed = with_pose_grad(gaussians, view.pose_delta, view.centre(), pose_vjp)
    args = packed_view(view), isinstance(view, LidarView), has_per_ray_origins(view)
    found: Tensor = _SlotOfView.apply(*args, posed.lidar, *gaussian_args(posed))
    return found


class _SlotOfView(torch.autograd.Function):
    """The grad slot of one view; backward, the epilogue of this view."""

    @staticmethod
    def forward(ctx: Any, view: Tensor, by_lidar: bool, moving: bool, lidar: Tensor, *gaussians: Tensor) -> Tensor:
        ctx.by_lidar, ctx.moving = by_lidar, moving
        ctx.save_for_backward(view, *gaussians)
        return lidar.new_empty_strided((grad_accum_floats(len(lidar)),), (0,))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, moments: Tensor) -> tuple[Tensor | None, ...]:
        view, *gaussians = ctx.saved_tensors
        with span("gaussian_backward", within=BACKWARD):
            found, lidar = view_gradients(GaussianArrays(*gaussians), moments, view, ctx.by_lidar, ctx.moving)
        return None, None, None, lidar if ctx.by_lidar else None, *found


def blend(
    gaussians: DeferredGaussians,  # with an unused slot
    features: Tensor,  # [N, C]
    seen: Rays,
    pairs: PairList,
    view: CameraView | LidarView,
    segment_entries: int,  # at most, by the plan
) -> Blend:
    """Blends as nurec_lite.native.warps.blend does, with deferred gradients: the epilogue makes those of the view's pose delta, too."""
    given = (
        [t.detach() for t in gaussian_args(gaussians)], *ray_and_list_args(seen, pairs), packed_view(view),
        pairs.rows_with(features),
    )  # fmt: skip
    entries = warps.entries_of(pairs, segment_entries, features.device)
    features = features.detach() if isinstance(view, LidarView) else features  # a lidar's are among the moments
    found: tuple[Tensor, ...] = _RenderSegmentsDeferred.apply(
        gaussians.grad_slot.claim(), features, given, has_per_ray_origins(view), entries, gaussians.blocks
    )
    return Blend(*found)


class _RenderSegmentsDeferred(torch.autograd.Function):
    """The operator render_segments; its backward pass accumulates moments, and returns gradients of a camera's features alone."""

    @staticmethod
    def forward(
        ctx: Any, slot: Tensor, features: Tensor, given: Any, moving: bool, length: int, blocks: Tensor | None
    ) -> Any:
        gaussians, rays, lists, view, rows = given
        found = torch.ops.nurec_lite.render_segments(
            gaussians, features, rays, lists, view, moving, length, rows, blocks
        )
        outputs, median, kept = Outputs(*found[:3]), found[3], kept_of(found[4:], rows)
        ctx.mark_non_differentiable(median)
        ctx.set_materialize_grads(False)
        ctx.groups = _Groups.of(gaussians, rays, lists, kept, outputs)
        ctx.save_for_backward(features, view, *gaussians, *rays, *lists, *kept, *outputs)
        ctx.moving, ctx.length, ctx.blocks = moving, length, blocks
        return *outputs, median

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        features, view, *saved = ctx.saved_tensors
        gaussians, rays, lists, kept, outputs = ctx.groups.split(saved)
        with span("render", within=BACKWARD):
            found, d_features, _ = torch.ops.nurec_lite.render_backward_accumulate(
                gaussians, features, rays, lists, view, ctx.moving, ctx.length, kept, outputs,
                *given_of(grads, Outputs(*outputs)), ctx.needs_input_grad[1], False, ctx.blocks,
            )  # fmt: skip
        return found, d_features if ctx.needs_input_grad[1] else None, None, None, None, None


@dataclass(frozen=True)
class _Groups:
    """Sizes of the lists that a row of tensors is joined from."""

    sizes: tuple[int, ...]

    @staticmethod
    def of(*groups: Sequence[Tensor]) -> "_Groups":
        return _Groups(tuple(map(len, groups)))

    def split(self, row: Sequence[Tensor]) -> list[list[Tensor]]:
        ends = [sum(self.sizes[: k + 1]) for k in range(len(self.sizes))]
        return [list(row[end - size : end]) for end, size in zip(ends, self.sizes, strict=True)]
