# SPDX-License-Identifier: Apache-2.0
"""The operator render: blends the lists of block tiles."""

from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.operators.shared import GaussianArrays, Lists, Outputs, RayArrays, given_of, no_second_gradients

_RAYS = 2  # the argument `rays`


class BackwardPlan(NamedTuple):
    """The instance of the backward kernels, in the order of the last arguments of the operators."""

    split: bool
    launch_bounds: bool
    half_staging: bool


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
