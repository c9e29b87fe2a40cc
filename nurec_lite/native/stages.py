# SPDX-License-Identifier: Apache-2.0
"""The stages project, tile, render_camera and render_lidar by compiled kernels; the plain torch ones specify what they compute.

Letters: N Gaussians, V of them visible, R rays.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from nurec_lite.geometry.camera import pixel_directions, pixel_fractions
from nurec_lite.geometry.lidar import Cells
from nurec_lite.native import rank1_sh
from nurec_lite.native.operators.correct_view import CalibrationArgs
from nurec_lite.native.operators.over_sky import over_sky
from nurec_lite.native.operators.shared import GaussianArrays, Grid, Lists, RayArrays
from nurec_lite.native.operators.tile import Bounds
from nurec_lite.native.operators.view_colour import PlacementArrays
from nurec_lite.native.plan import CPU_PLAN, RenderPlan
from nurec_lite.native.sweep_tiles import bands_of, sweep_warp_tiles
from nurec_lite.native.torch_fallbacks import torch_fallbacks
from nurec_lite.scene.calibration import POSES, Calibration
from nurec_lite.scene.gaussians import AnyGaussians, PartedGaussians
from nurec_lite.splat import corrected as plain
from nurec_lite.splat import nudge, render
from nurec_lite.splat.project import Projection
from nurec_lite.splat.reference import Blend
from nurec_lite.splat.render import CameraImage, Kernels, LidarReturns
from nurec_lite.splat.tiles import PairList, camera_rays
from nurec_lite.splat.view_row import view_row
from nurec_lite.splat.views import CameraView, LidarView, Rays, View

_NO_RAYS, _NO_CELLS = torch.zeros(0, 3), Cells(torch.zeros(0), 1)


@torch.no_grad()
def project(
    gaussians: AnyGaussians,
    view: CameraView | LidarView,
    room: int | None = None,  # entries that lists may have
    plan: RenderPlan = CPU_PLAN,
) -> Projection:
    """Bounds of all Gaussians that may reach a ray of the view. With a room, the host waits for nothing: it then need not know how
    many are seen, and behind them rows without bounds follow, up to N."""
    grid, columns = grid_of(view, gaussians.means.device)
    known = view.bundles.occupied if isinstance(view, LidarView) and view.bundles else None
    exact = plan.bundles and plan.exact
    made = sweep_warp_tiles(view) if plan.bundles and isinstance(view, LidarView) else None
    index, low, high, seen, shapes, count, *candidates = torch.ops.nurec_lite.project(
        placed(gaussians), row_of(view), isinstance(view, CameraView), grid, columns, bands_of(*made) if made else [],
        room is not None, plan.depth_bits, exact, known, plan.bundles, gaussians.lidar if exact and made else None,
    )  # fmt: skip
    if made:
        return Projection(index, high, high, gaussians, seen, shapes, count, None, (candidates[0], candidates[1]), made)
    if plan.bundles:
        return Projection(index, low[:, :2], low[:, 2:], gaussians, seen, shapes, count, low)
    return Projection(index, low, high, gaussians, seen, shapes)


def placed(gaussians: AnyGaussians) -> GaussianArrays:
    g = gaussians
    if isinstance(g, PartedGaussians):
        still = g.still_means, g.still_quats
    else:
        still = g.means.new_empty(0, 3), g.quats.new_empty(0, 4)
    return GaussianArrays(*still, g.means, g.quats, g.velocities, g.scales, g.opacities)


def row_of(view: CameraView | LidarView) -> Tensor:
    """[62] on the view's device; made there if the view does not bring it, or if its poses change while they are learned."""
    if view.row is None or learned(view):
        return view_row(view).to(view.T_world_sensor_start.device)
    return view.row


def grid_of(view: CameraView | LidarView, device: torch.device, *size: int) -> tuple[Grid, int]:
    """A lidar's cells, and how many columns they have; of a camera none."""
    cells = view.lidar.cells(*size, device=device) if isinstance(view, LidarView) else _NO_CELLS
    return Grid(_directions(view), cells.edges), cells.columns


@torch.no_grad()
def tile(
    projection: Projection,
    view: CameraView | LidarView,
    room: int | None = None,  # entries
    plan: RenderPlan = CPU_PLAN,
) -> PairList:
    """Pair list of a camera's square tiles or of a lidar's cells. With a room, the host waits for nothing: the list is as long as the
    room, entries that find none are left out, and `needed` says how many there are."""
    bounds, most = Bounds(projection.index, projection.low, projection.high), -1 if room is None else room
    if isinstance(view, CameraView):
        size = view.camera.width, view.camera.height
        rays = camera_rays(*size, plan.tile, projection.low.device)
        offsets, members, needed = torch.ops.nurec_lite.tile_camera(bounds, *size, plan.tile, most)
    else:
        grid, columns = grid_of(view, projection.low.device, plan.cell_beams, plan.cell_steps)
        found = torch.ops.nurec_lite.tile_lidar(bounds, grid, columns, plan.cell_rays, most)
        rays, offsets, members, needed = found
    return PairList(rays, offsets, members, None if room is None else needed, visible=projection.seen)


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
        placed(gaussians), features, *arrays_of(rays, pairs), row_of(view), moves(view), *plan.backward
    )
    return Blend(*out)


def arrays_of(rays: Rays, pairs: PairList) -> tuple[RayArrays, Lists]:
    targets = rays.delays.new_empty(0, 2) if rays.targets is None else rays.targets
    of_rays = RayArrays(rays.origins, rays.directions, rays.delays, targets)
    visible = rays.delays.new_empty(0, dtype=torch.uint8) if pairs.visible is None else pairs.visible
    return of_rays, Lists(pairs.rays, pairs.offsets, pairs.gaussians, visible)


def colour(
    gaussians: AnyGaussians,
    directions: Tensor,  # [N, 3] unit
) -> Tensor:  # [N, 3] at least 0
    g = gaussians
    bands = (g.sh0, g.sh_rest) if isinstance(g, PartedGaussians) else (g.sh, None)
    return torch.ops.nurec_lite.sh_colour(*bands, directions)


def seen_colour(gaussians: PartedGaussians, eye: Tensor, seen: Tensor | None = None) -> Tensor:
    """[N, 3] at least 0: `colour` in the directions of nurec_lite.splat.render.local_directions, in one kernel. Of those that are not
    `seen` [N] 0: their harmonics are not read."""
    g = gaussians
    placements = PlacementArrays(g.still_means, g.means, g.rotations, g.nodes)
    return torch.ops.nurec_lite.view_colour(placements, g.sh0, g.sh_rest, eye, seen)


def rays(view: CameraView | LidarView, with_origins: bool = True) -> Rays:
    """Rays of the view, in one kernel; origins are [0, 3] if neither values nor gradients need them."""
    if learned(view):
        return view.rays()
    known = (_directions(view), view.fractions.contiguous()) if isinstance(view, LidarView) else _pixels(view)
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.nurec_lite.rays(row_of(view), *known, with_origins)
    return Rays(*found, targets=view.targets if isinstance(view, LidarView) else None)


def _pixels(view: CameraView) -> tuple[Tensor, Tensor]:
    """Directions [R, 3] and fractions [R], or [1] if the sensor exposes all pixels at once."""
    device = view.T_world_sensor_start.device
    fractions = pixel_fractions(view.camera, torch.float32, device).flatten()
    directions = pixel_directions(view.camera, torch.float32, device).flatten(0, 1)
    return directions, fractions[:1] if view.camera.shutter == "global" else fractions


def correct(view: plain.AnyView, calibration: Calibration | None) -> plain.AnyView:
    """View as by nurec_lite.splat.corrected.corrected, in one kernel."""
    if calibration is None or view.row is None or learned(view):
        return plain.corrected(view, calibration)
    ends, c = (view.T_world_sensor_start, view.T_world_sensor_end), calibration
    camera = c.camera_row(view.sensor)
    velocity = still(view.row.device) if view.velocity is None else view.velocity
    parts = (getattr(c, name) for name in (*POSES, "exposure_drift", "camera_offsets"))
    known = CalibrationArgs(c.knots, view.moment(), c.mount(view.sensor), velocity, *parts)
    row, moved, nudge, drift, moment = torch.ops.nurec_lite.correct_view(
        view.row, *ends, known, -1 if camera is None else camera
    )
    return plain.at(view, moved[0], moved[1], row, nudge, None if camera is None else drift, moment)


@lru_cache(maxsize=8)
def still(device: torch.device) -> Tensor:  # [6]
    """The velocity of a view that knows of none. Nothing may be written into it."""
    return torch.zeros(6, device=device)


def felt(
    centre: Tensor,  # [3]
    placed: list[Tensor],  # means [N, 3] and quaternions [N, 4], of one set of Gaussians or two
    grads: list[Tensor],
) -> Tensor:  # [6]
    """Pose gradient as by nurec_lite.splat.nudge.felt_by_torch, in two kernels."""
    return torch.ops.nurec_lite.pose_gradient(centre, placed, [grad.contiguous() for grad in grads])


def all_of(gaussians: AnyGaussians, pairs: PairList) -> tuple[AnyGaussians, PairList]:
    """Those too that no tile looks at."""
    return gaussians, pairs


CPU_KERNELS = Kernels(colour=colour, blend=blend, rays=rays, nudged=partial(nudge.nudged, felt=felt))
# a GPU spends more on gathering the listed Gaussians than on the colours of all
CUDA_KERNELS = replace(CPU_KERNELS, listed=all_of)


def _kernels(gaussians: AnyGaussians) -> Kernels:
    return CUDA_KERNELS if gaussians.means.is_cuda else CPU_KERNELS


def _planned(gaussians: AnyGaussians, plan: RenderPlan) -> Kernels:
    return replace(_kernels(gaussians), blend=partial(blend, plan=plan), **parts_of(plan))


def parts_of(plan: RenderPlan) -> dict[str, Callable[..., Any]]:
    """Functions of both renderers, by the names of nurec_lite.splat.render.Kernels."""
    parts = torch_fallbacks(plan.compiled)
    if plan.sky:
        parts = parts | {"over_sky": partial(over_sky, otherwise=parts["over_sky"])}
    return parts | _colour_parts(plan)


def _colour_parts(plan: RenderPlan) -> dict[str, Callable[..., Any]]:
    if plan.outer is not None:  # the update knows the store's own tensors, not what was gathered of them
        by_outer = partial(rank1_sh.seen_colour, deferred=plan.outer, otherwise=seen_colour)
        return {"seen_colour": by_outer, "listed": all_of}
    return {"seen_colour": seen_colour} if plan.colour else {}


def render_camera(
    gaussians: AnyGaussians,
    view: CameraView,
    pairs: PairList,
    sky: Tensor,  # [3, H, W] logits of the environment map
    plan: RenderPlan = CPU_PLAN,
) -> CameraImage:
    """Image as by nurec_lite.splat.render, which specifies it."""
    return render.render_camera(gaussians, view, pairs, sky, _planned(gaussians, plan))


def render_lidar(
    gaussians: AnyGaussians,
    view: LidarView,
    pairs: PairList,
    plan: RenderPlan = CPU_PLAN,
) -> LidarReturns:
    """Returns as by nurec_lite.splat.render, which specifies them."""
    return render.render_lidar(gaussians, view, pairs, _planned(gaussians, plan))


def moves(view: CameraView | LidarView) -> bool:
    """Whether rays have origins or delays of their own, or their origins want a gradient."""
    return isinstance(view, LidarView) or view.camera.shutter != "global" or learned(view)


def learned(view: View) -> bool:
    """Whether its poses ask for gradients."""
    return view.T_world_sensor_start.requires_grad or view.T_world_sensor_end.requires_grad


def _directions(view: CameraView | LidarView) -> Tensor:
    """[R, 3] of a lidar's rays; none for a camera, whose rays are its pixels."""
    return view.directions.contiguous() if isinstance(view, LidarView) else _NO_RAYS
