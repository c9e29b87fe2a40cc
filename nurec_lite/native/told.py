# SPDX-License-Identifier: Apache-2.0
"""Kernels of the stages render_camera and render_lidar for bundles of rays that only tell, backward, what they know of each Gaussian:
who collected the Gaussians makes gradients of what all views tell (nurec_lite/native/finish.py). On CUDA alone.

What is told stands where autograd expects the gradient of a tensor that holds nothing, a slip that each view gets with its Gaussians:
so autograd orders the work, and streams, as ever. Of Gaussians that a view does not see it holds anything.

Letters: N Gaussians.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native import bundles
from nurec_lite.native.operators.render_segments import kept_of
from nurec_lite.native.operators.shared import Outputs, given_of
from nurec_lite.native.plan import RenderPlan
from nurec_lite.native.stages import arrays_of, felt, moves, placed, row_of
from nurec_lite.scene.gaussians import AnyGaussians, PartedGaussians
from nurec_lite.splat import nudge
from nurec_lite.splat.reference import Blend
from nurec_lite.splat.render import Kernels
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView, Rays


class Slip:
    """What a view writes on, once."""

    def __init__(self, paper: Tensor) -> None:
        self._paper: Tensor | None = paper

    @property
    def blank(self) -> bool:
        return self._paper is not None

    def take(self) -> Tensor:
        assert self._paper is not None
        paper, self._paper = self._paper, None
        return paper


@dataclass(frozen=True)
class ToldGaussians(PartedGaussians):
    """Whose view tells of them on a slip."""

    slip: Slip = field(kw_only=True)


def told_floats(n: int) -> int:
    """Numbers on a slip: 16 of each Gaussian, and behind them a byte of each (kernels/raster_warps/backward/gaussian_backward.h)."""
    return 16 * n + (n + 3) // 4


def with_slip(gaussians: PartedGaussians, paper: Tensor) -> ToldGaussians:
    """`paper` has told_floats(N) numbers."""
    values = {f.name: getattr(gaussians, f.name) for f in fields(PartedGaussians)}
    return ToldGaussians(**values, slip=Slip(paper))


def blend(
    gaussians: AnyGaussians,
    features: Tensor,  # [N, C]
    seen: Rays,
    pairs: PairList,
    view: CameraView | LidarView,
    plan: RenderPlan,
) -> Blend:
    """As nurec_lite.native.bundles.blend."""
    if not (isinstance(gaussians, ToldGaussians) and gaussians.slip.blank):
        return bundles.blend(gaussians, features, seen, pairs, view, plan)
    part = bundles.part_of(len(pairs.gaussians), plan.part, pairs.rays.shape[1], features.device)
    given = (
        [t.detach() for t in placed(gaussians)], *arrays_of(seen, pairs), row_of(view), pairs.rows_with(features)
    )  # fmt: skip
    features = features.detach() if isinstance(view, LidarView) else features  # a lidar's are told
    found: tuple[Tensor, ...] = _Told.apply(gaussians.slip.take(), features, given, moves(view), part)
    return Blend(*found)


def nudged(gaussians: AnyGaussians, by: Tensor | None, centre: Tensor) -> AnyGaussians:
    """Of Gaussians with a slip, who reads that gives the nudge its gradient."""
    if isinstance(gaussians, ToldGaussians) and gaussians.slip.blank:
        return gaussians
    return nudge.nudged(gaussians, by, centre, felt)


class _Told(torch.autograd.Function):
    """The operator render_segments, whose backward pass tells, and gives gradients to nobody but a camera's features."""

    @staticmethod
    def forward(ctx: Any, paper: Tensor, features: Tensor, given: Any, moving: bool, length: int) -> Any:
        gaussians, rays, lists, view, rows = given
        found = torch.ops.nurec_lite.render_segments(gaussians, features, rays, lists, view, moving, length, rows)
        outputs, median, kept = Outputs(*found[:3]), found[3], kept_of(found[4:], rows)
        ctx.mark_non_differentiable(median)
        ctx.set_materialize_grads(False)
        ctx.groups = _Groups.of(gaussians, rays, lists, kept, outputs)
        ctx.save_for_backward(features, view, *gaussians, *rays, *lists, *kept, *outputs)
        ctx.moving, ctx.length = moving, length
        return *outputs, median

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        features, view, *saved = ctx.saved_tensors
        gaussians, rays, lists, kept, outputs = ctx.groups.split(saved)
        with span("render", within=BACKWARD):
            found, d_features = torch.ops.nurec_lite.render_backward_accumulate(
                gaussians, features, rays, lists, view, ctx.moving, ctx.length, kept, outputs,
                *given_of(grads, Outputs(*outputs)), ctx.needs_input_grad[1],
            )  # fmt: skip
        return found, d_features if ctx.needs_input_grad[1] else None, None, None, None


@dataclass(frozen=True)
class _Groups:
    """How many tensors of a row belong to each list."""

    sizes: tuple[int, ...]

    @staticmethod
    def of(*groups: Sequence[Tensor]) -> "_Groups":
        return _Groups(tuple(map(len, groups)))

    def split(self, row: Sequence[Tensor]) -> list[list[Tensor]]:
        ends = [sum(self.sizes[: k + 1]) for k in range(len(self.sizes))]
        return [list(row[end - size : end]) for end, size in zip(ends, self.sizes, strict=True)]


def kernels_of(plan: RenderPlan) -> Kernels:
    return replace(bundles.kernels_of(plan), blend=partial(blend, plan=plan), nudged=nudged)
