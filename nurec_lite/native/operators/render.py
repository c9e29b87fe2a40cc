# SPDX-License-Identifier: Apache-2.0
"""The operator render: blends the lists of block tiles."""

from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.operators.shared import (
    GaussianArrays,
    Lists,
    Outputs,
    RayArrays,
    gaussian_args,
    given_of,
    has_per_ray_origins,
    no_second_gradients,
    packed_view,
    ray_and_list_args,
)
from nurec_lite.scene.gaussians import AnyGaussians
from nurec_lite.splat.reference import Blend
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView, Rays

_RAYS = 2  # the argument `rays`


class BackwardPlan(NamedTuple):
    """The instance of the backward kernels, in the order of the last arguments of the operators."""

    split: bool
    launch_bounds: bool
    half_staging: bool


def render(
    gaussians: AnyGaussians,
    features: Tensor,  # [N, C]
    rays: Rays,
    pairs: PairList,
    view: CameraView | LidarView,
    plan: BackwardPlan,
) -> Blend:
    """Blends the Gaussians of each tile's list over the tile's rays."""
    out = torch.ops.nurec_lite.render(
        gaussian_args(gaussians), features, *ray_and_list_args(rays, pairs), packed_view(view),
        has_per_ray_origins(view), *plan,
    )  # fmt: skip
    return Blend(*out)


def register() -> None:
    torch.library.register_autograd("nurec_lite::render", _render_gradients, setup_context=_keep)
    torch.library.register_autograd("nurec_lite::render_backward", no_second_gradients)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    gaussians, features, rays, lists, view, ctx.moving, *plan = inputs
    *outputs, median = output
    ctx.mark_non_differentiable(median)
    ctx.set_materialize_grads(False)  # that nothing depends on the distance spares its share of the backward pass
    ctx.save_for_backward(*gaussians, features, *rays, *lists, view, *outputs)
    ctx.plan = BackwardPlan(*plan)


def _render_gradients(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    saved = iter(ctx.saved_tensors)
    gaussians, features, rays, lists, view, outputs = (
        GaussianArrays(*islice(saved, 7)), next(saved), RayArrays(*islice(saved, 4)), Lists(*islice(saved, 4)),
        next(saved), Outputs(*saved),
    )  # fmt: skip
    wants_rays = any(ctx.needs_input_grad[_RAYS])
    given = given_of(grads, outputs)
    with span("render", within=BACKWARD):
        d_gaussians, d_features, d_rays = torch.ops.nurec_lite.render_backward(
            gaussians, features, rays, lists, view, ctx.moving, outputs, *given, wants_rays, *ctx.plan
        )
    return d_gaussians, d_features, [*(d_rays or (None, None)), None, None], [None] * 4, *[None] * 5
