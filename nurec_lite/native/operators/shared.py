# SPDX-License-Identifier: Apache-2.0
"""Tensors that several operators take as one list, and code that their gradients share.

Letters: S static Gaussians and A dynamic ones, N = S + A, V of them visible; C features; R rays; T tiles of P rays, L entries of all
tiles' lists.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from nurec_lite.geometry.lidar import Cells
from nurec_lite.scene.gaussians import AnyGaussians, SplitGaussians
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.view_row import view_row
from nurec_lite.splat.views import CameraView, LidarView, Rays, View

_NO_RAYS, _NO_CELLS = torch.zeros(0, 3), Cells(torch.zeros(0), 1)


class GaussianArrays(NamedTuple):
    """Gaussians in world space, in metres; the operators subtract the centre of the view from means when they read them."""

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
    gaussians: Tensor  # [L] int64, or int32 of warp tiles
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


def gaussian_args(gaussians: AnyGaussians) -> GaussianArrays:
    g = gaussians
    if isinstance(g, SplitGaussians):
        still = g.still_means, g.still_quats
    else:
        still = g.means.new_empty(0, 3), g.quats.new_empty(0, 4)
    return GaussianArrays(*still, g.means, g.quats, g.velocities, g.scales, g.opacities)


def ray_and_list_args(rays: Rays, pairs: PairList) -> tuple[RayArrays, Lists]:
    targets = rays.delays.new_empty(0, 2) if rays.targets is None else rays.targets
    of_rays = RayArrays(rays.origins, rays.directions, rays.delays, targets)
    visible = rays.delays.new_empty(0, dtype=torch.uint8) if pairs.visible is None else pairs.visible
    return of_rays, Lists(pairs.rays, pairs.offsets, pairs.gaussians, visible)


def packed_view(view: CameraView | LidarView) -> Tensor:
    """Returns the view as a row [84] on its device; packs it if the view has no row, or if its poses are learned and change."""
    if view.row is None or wants_pose_grad(view):
        return view_row(view).to(view.T_world_sensor_start.device)
    return view.row


def grid_args(view: CameraView | LidarView, device: torch.device, *size: int, closed: bool = False) -> tuple[Grid, int]:
    """Returns a lidar's cells, of this size and closed or open as Lidar.cells has them, and their number of columns; for a camera, none."""
    cells = view.lidar.cells(*size, device=device, closed=closed) if isinstance(view, LidarView) else _NO_CELLS
    return Grid(lidar_directions(view), cells.edges), cells.columns


def visibility_grid(view: CameraView | LidarView, device: torch.device) -> tuple[Grid, int]:
    """Returns the cells that the projection tests Gaussians with; for a camera, none."""
    return grid_args(view, device, closed=True)


def lidar_directions(view: CameraView | LidarView) -> Tensor:
    """Returns a lidar's rays [R, 3]; [0, 3] for a camera, since its pixels give the rays."""
    return view.directions.contiguous() if isinstance(view, LidarView) else _NO_RAYS


def has_per_ray_origins(view: CameraView | LidarView) -> bool:
    """Returns whether each ray has its own origin or delay, or origins need a gradient."""
    return isinstance(view, LidarView) or view.camera.shutter != "global" or wants_pose_grad(view)


def has_lens(view: CameraView | LidarView) -> bool:
    """Returns whether the view's row has a lens of kernels/math/lens.cuh."""
    return isinstance(view, CameraView) and not view.camera.is_plain


def wants_pose_grad(view: View) -> bool:
    """Returns whether the view's poses need gradients, through its rays."""
    return view.T_world_sensor_start.requires_grad or view.T_world_sensor_end.requires_grad


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
