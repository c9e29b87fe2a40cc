# SPDX-License-Identifier: Apache-2.0
"""Tensors that several operators take as one list, and what their gradients share.

Letters: S static Gaussians and A dynamic ones, N = S + A, V of them visible; C features; R rays; T tiles of P rays, L entries of all
tiles' lists.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor


class GaussianArrays(NamedTuple):
    """In world space, in metres; the operators subtract the centre of the view from means when they read them."""

    still_means: Tensor  # [S, 3]
    still_quats: Tensor  # [S, 4] unit, wxyz
    means: Tensor  # [A, 3]
    quats: Tensor  # [A, 4]
    velocities: Tensor  # [A, 3] metres a second
    scales: Tensor  # [N, 3]
    opacities: Tensor  # [N]


class RayArrays(NamedTuple):
    """Arrays of nurec_lite.splat.views.Rays."""

    origins: Tensor  # [R, 3] metres, relative to the centre of the view
    directions: Tensor  # [R, 3] unit
    delays: Tensor  # [R] seconds after the middle of the view
    targets: Tensor  # [R, 2] metres, or [0, 2]: none


class Lists(NamedTuple):
    """Arrays of nurec_lite.splat.tiles.PairList."""

    rays: Tensor  # [T, P] int64
    offsets: Tensor  # [T + 1] int64
    gaussians: Tensor  # [L] int64, or int32 of bundles
    visible: Tensor  # [N] uint8, or [0]: not known


class Grid(NamedTuple):
    """Cells over a lidar's sphere, and the rays that lie in them."""

    directions: Tensor  # [R, 3] unit, lidar frame
    edges: Tensor  # [bands - 1] radians of elevation, ascending


class Outputs(NamedTuple):
    """Results of the forward pass that the backward pass needs."""

    out: Tensor  # [R, C] sum of w times feature
    distance: Tensor  # [R] metres, sum of w t
    transmittance: Tensor  # [R]


def given_of(grads: tuple[Tensor | None, ...], outputs: Outputs) -> tuple[Tensor, Tensor | None, Tensor]:
    """Gradients of the outputs; None for a distance that nothing depends on."""
    d_out, d_distance, d_transmittance = (None if grad is None else grad.contiguous() for grad in grads[:3])
    return _or_zeros(d_out, outputs.out), d_distance, _or_zeros(d_transmittance, outputs.transmittance)


def _or_zeros(gradient: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if gradient is None else gradient


def keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def no_second_gradients(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
    raise RuntimeError("compiled kernels have no second derivatives; nurec_lite.splat.render, in plain torch, has them")
