# SPDX-License-Identifier: Apache-2.0
"""The stages project, tile, render_camera and render_lidar by compiled kernels; the plain torch ones specify what they compute.

Letters: N Gaussians, V of them visible, R rays.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nurec_lite.geometry.camera import pixel_directions, pixel_fractions
from nurec_lite.geometry.lidar import Cells
from nurec_lite.native import ops
from nurec_lite.native.plan import CPU_PLAN, CUDA_PLAN, RenderPlan
from nurec_lite.native.view_numbers import centre_of, trajectory, view_numbers
from nurec_lite.scene.gaussians import AnyGaussians, PartedGaussians
from nurec_lite.splat import render
from nurec_lite.splat.project import Projection
from nurec_lite.splat.reference import Blend
from nurec_lite.splat.render import CameraImage, Kernels, LidarReturns, local_directions
from nurec_lite.splat.tiles import PairList, camera_rays
from nurec_lite.splat.views import CameraView, LidarView, Rays, View

_NO_RAYS, _NO_CELLS = torch.zeros(0, 3), Cells(torch.zeros(0), 1)


def native_plan(device: torch.device) -> RenderPlan:
    """Of the baseline."""
    return CUDA_PLAN if device.type == "cuda" else CPU_PLAN


def native_stages(
    plan: RenderPlan,
) -> dict[str, Callable[..., Any]]:  # by the names of nurec_lite.training.stages.Stages
    """Compiles the kernels if need be; nurec_lite.native.build.BuildError says what is missing."""
    ops.load()
    planned = {f.__name__: partial(f, plan=plan) for f in (tile, render_camera, render_lidar)}
    return {"project": project, **planned}


@torch.no_grad()
def project(
    gaussians: AnyGaussians,
    view: CameraView | LidarView,
    room: int | None = None,
) -> Projection:
    """Bounds of all Gaussians that may reach a ray of the view."""
    if room is not None:
        return project_all(gaussians, view)
    return Projection(*torch.ops.nurec_lite.project(*_seen_from(gaussians, view)))


@torch.no_grad()
def project_all(
    gaussians: AnyGaussians,
    view: CameraView | LidarView,
) -> Projection:
    """The same of all Gaussians, the others last, with bounds that hold nothing. The host need not know how many are seen."""
    return Projection(*torch.ops.nurec_lite.project_all(*_seen_from(gaussians, view)))


def _seen_from(gaussians: AnyGaussians, view: CameraView | LidarView) -> tuple[Any, ...]:
    cells = view.lidar.cells(device=gaussians.means.device) if isinstance(view, LidarView) else _NO_CELLS
    return *placed(gaussians), view_numbers(view), _directions(view), cells.edges, cells.columns, centre_of(view)


def placed(
    gaussians: AnyGaussians,
) -> tuple[Tensor, ...]:
    """As operators take Gaussians: means and quaternions of those that stand still, then of those that may move, with velocities;
    scales and opacities of all. The operators subtract the centre of the view from means when they read them."""
    g = gaussians
    if isinstance(g, PartedGaussians):
        still = g.still_means, g.still_quats
    else:
        still = g.means.new_empty(0, 3), g.quats.new_empty(0, 4)
    return *still, g.means, g.quats, g.velocities, g.scales, g.opacities


@torch.no_grad()
def tile(
    projection: Projection,
    view: CameraView | LidarView,
    room: int | None = None,
    plan: RenderPlan = CPU_PLAN,
) -> PairList:
    """Pair list of a camera's square tiles or of a lidar's cells."""
    if room is not None:
        pairs, needed = tile_within(projection, view, room, plan)
        return replace(pairs, needed=needed)
    low, high, index = projection.low, projection.high, projection.index
    if isinstance(view, CameraView):
        size = view.camera.width, view.camera.height
        offsets, members = torch.ops.nurec_lite.tile_camera(low, high, index, *size, plan.tile)
        return PairList(camera_rays(*size, plan.tile, low.device), offsets, members)
    cells = view.lidar.cells(plan.cell_beams, plan.cell_steps, low.device)
    return PairList(
        *torch.ops.nurec_lite.tile_lidar(
            low, high, index, _directions(view), cells.edges, cells.columns, plan.cell_rays
        )
    )


@torch.no_grad()
def tile_within(
    projection: Projection,
    view: CameraView | LidarView,
    room: int,  # entries
    plan: RenderPlan = CPU_PLAN,
) -> tuple[PairList, Tensor]:  # the list, and [1] int64 how many entries it would have to hold
    """`tile` without waiting for the number of entries: those that find no room are left out."""
    bounds = projection.low, projection.high, projection.index
    if isinstance(view, CameraView):
        size = view.camera.width, view.camera.height
        *lists, needed = torch.ops.nurec_lite.tile_camera_within(*bounds, *size, plan.tile, room)
        return PairList(camera_rays(*size, plan.tile, projection.low.device), *lists), needed
    cells = view.lidar.cells(plan.cell_beams, plan.cell_steps, projection.low.device)
    grid = _directions(view), cells.edges, cells.columns
    *lists, needed = torch.ops.nurec_lite.tile_lidar_within(*bounds, *grid, plan.cell_rays, room)
    return PairList(*lists), needed


def blend(
    gaussians: AnyGaussians,
    features: Tensor,  # [N, C]
    rays: Rays,
    pairs: PairList,
    view: CameraView | LidarView,
    plan: RenderPlan = CPU_PLAN,
) -> Blend:
    """Blends the Gaussians of each tile's list over the tile's rays."""
    out = torch.ops.nurec_lite.render(
        *placed(gaussians), features, rays.origins, rays.directions, rays.delays,
        pairs.rays, pairs.offsets, pairs.gaussians, moves(view), plan.backward, centre_of(view),
    )  # fmt: skip
    return Blend(*out)


def colour(
    gaussians: AnyGaussians,
    view: View,
) -> Tensor:  # [N, 3] at least 0
    return torch.ops.nurec_lite.sh_colour(gaussians.sh, local_directions(gaussians, view.eye()))


def rays(view: CameraView | LidarView) -> Rays:
    """As view.rays(), in one kernel."""
    if _learned(view):
        return view.rays()
    if isinstance(view, LidarView):
        directions, fractions = _directions(view), view.fractions.contiguous()
    else:
        directions, fractions = _pixels(view)
    return Rays(*torch.ops.nurec_lite.rays(trajectory(view), directions, fractions))


def _pixels(view: CameraView) -> tuple[Tensor, Tensor]:
    """Directions [R, 3] and fractions [R], or [1] if the sensor exposes all pixels at once."""
    device = view.T_world_sensor_start.device
    fractions = pixel_fractions(view.camera, torch.float32, device).flatten()
    directions = pixel_directions(view.camera, torch.float32, device).flatten(0, 1)
    return directions, fractions[:1] if view.camera.shutter == "global" else fractions


CPU_KERNELS = Kernels(colour, blend, rays=rays)
# a GPU spends more on gathering the listed Gaussians than on the colours of all
CUDA_KERNELS = replace(CPU_KERNELS, listed=lambda gaussians, pairs: (gaussians, pairs))


def _kernels(gaussians: AnyGaussians) -> Kernels:
    return CUDA_KERNELS if gaussians.means.is_cuda else CPU_KERNELS


def _planned(gaussians: AnyGaussians, plan: RenderPlan) -> Kernels:
    return replace(_kernels(gaussians), blend=partial(blend, plan=plan))


def render_camera(
    gaussians: AnyGaussians,
    view: CameraView,
    pairs: PairList,
    sky: Tensor,  # [3, H, W] logits of the environment map
    plan: RenderPlan = CPU_PLAN,
) -> CameraImage:
    """As nurec_lite.splat.render has it, which says what it computes."""
    return render.render_camera(gaussians, view, pairs, sky, _planned(gaussians, plan))


def render_lidar(
    gaussians: AnyGaussians,
    view: LidarView,
    pairs: PairList,
    plan: RenderPlan = CPU_PLAN,
) -> LidarReturns:
    """Likewise."""
    return render.render_lidar(gaussians, view, pairs, _planned(gaussians, plan))


def moves(view: CameraView | LidarView) -> bool:
    """Whether rays have origins or delays of their own, or their origins want a gradient."""
    return isinstance(view, LidarView) or view.camera.shutter != "global" or _learned(view)


def _learned(view: View) -> bool:
    return view.T_world_sensor_start.requires_grad or view.T_world_sensor_end.requires_grad


def _directions(view: CameraView | LidarView) -> Tensor:
    """[R, 3] of a lidar's rays; none for a camera, whose rays are its pixels."""
    return view.directions.contiguous() if isinstance(view, LidarView) else _NO_RAYS
