# SPDX-License-Identifier: Apache-2.0
"""The stages tile, render_camera and render_lidar for bundles of 32 neighbouring rays (kernels/raster_warps/bin,
kernels/raster_warps/blend). An image's has a list, a sweep's two, one for its lower and one for its upper beams. On CUDA alone.

Letters: A bundles, L entries, R rays.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

import torch
from torch import Tensor

from nurec_lite.native.operators.shared import Grid
from nurec_lite.native.operators.warp_tiles import BoundsInPlace, CandidatesInPlace, WarpTiles
from nurec_lite.native.plan import WHOLE, RenderPlan
from nurec_lite.native.stages import CUDA_KERNELS, arrays_of, grid_of, learned, moves, parts_of, placed, rays, row_of
from nurec_lite.native.sweep_tiles import BEAMS, beams
from nurec_lite.scene.gaussians import AnyGaussians
from nurec_lite.splat import render
from nurec_lite.splat.project import Projection
from nurec_lite.splat.reference import Blend
from nurec_lite.splat.render import CameraImage, Kernels, LidarReturns
from nurec_lite.splat.tiles import PairList, RayRows
from nurec_lite.splat.views import CameraView, LidarView, RayBundles, Rays

WIDTH, HEIGHT = 8, 4  # pixels of an image's bundle
SIDE = 4  # warp tiles along a super-tile of an image
RESIDENT = 32  # warps of a multiprocessor
OF_A_SWEEP = 3  # a part has so many times fewer entries than an image's: a warp takes two side by side, and waits for the longer one
LEAST = 64  # entries of a part, below which its beginning costs more than it saves
WARP = 32  # rays that a warp takes
LISTS = 2  # of a sweep's bundle
MOST_LISTS = 1 << 20  # of all views of a launch, as the operators take them


@torch.no_grad()
def tile(
    projection: Projection,
    view: CameraView | LidarView,
    room: int | None = None,  # entries
    *,
    plan: RenderPlan,
) -> PairList:
    """Lists as by nurec_lite.native.stages.tile, with a warp tile for a tile."""
    assert projection.gaussians is not None and projection.shapes is not None
    made, grid, size = image_warp_tiles(view) if isinstance(view, CameraView) else (*swept(projection), [])
    seen, most = rays(view, with_origins=False), -1 if room is None else room
    offsets, listed, needed = torch.ops.nurec_lite.list_warp_tiles(
        placed(projection.gaussians), row_of(view), places(projection), projection.shapes,
        (seen.directions, seen.delays), made, grid, size, plan.exact, most,
    )  # fmt: skip
    shared = None if learned(view) else seen  # these rays have no gradients of it
    is_camera = isinstance(view, CameraView)
    rays_of_lists = made.rays.view(-1, WARP if is_camera else WARP // LISTS)
    read = None if is_camera or not plan.exact else RayRows(projection.shapes, projection.gaussians.lidar)
    return PairList(rays_of_lists, offsets, listed, None if room is None else needed, shared, projection.seen, read)


def places(projection: Projection) -> BoundsInPlace | CandidatesInPlace:
    """Bounds or candidates of the Gaussians; ValueError where projection made the other kind."""
    count, bounds, candidates = projection.count, projection.bounds, projection.candidates
    if count is not None and candidates is not None:
        return CandidatesInPlace(projection.index, count, *candidates)
    if count is None or bounds is None:
        raise ValueError("the projection is not for bundles: project by a plan that has them, too")
    return BoundsInPlace(projection.index, count, bounds)


def swept(projection: Projection) -> tuple[WarpTiles, Grid]:
    if projection.bundles is None:
        raise ValueError("the projection is not for a lidar's bundles: project by a plan that has them, too")
    return projection.bundles


def image_warp_tiles(view: CameraView) -> tuple[WarpTiles, Grid, list[int]]:
    """Patches of 8x4 pixels, cluster by cluster."""
    camera, device = view.camera, view.T_world_sensor_start.device
    none = torch.empty(0, device=device)
    bundles = WarpTiles(patches(camera.width, camera.height, device), none.int(), none.int(), none)
    return bundles, Grid(none, none), [camera.width, camera.height, WIDTH, HEIGHT]


def bundled(view: LidarView) -> LidarView:
    """With what its rays alone say, where the same view is to be listed many times."""
    rays, first, bins, heights = torch.ops.nurec_lite.group_sweep_rays(beams(view))
    occupied = torch.ops.nurec_lite.occupied_cells(*grid_of(view, view.directions.device))
    return replace(view, bundles=RayBundles(rays, first, bins, heights, occupied))


def lists_of(view: CameraView | LidarView) -> int:
    """The number of the view's warp tiles, or a few more."""
    if isinstance(view, CameraView):
        return SIDE**2 * -(-view.camera.width // (SIDE * WIDTH)) * -(-view.camera.height // (SIDE * HEIGHT))
    return LISTS * (len(view.directions) // WARP + -(-len(view.lidar.elevations) // BEAMS) + 1)


def _in_clusters(pixels: int, side: int, device: torch.device) -> Tensor:
    n = -(-pixels // (SIDE * side))
    return torch.arange(n * SIDE * side, device=device).view(n, SIDE, side)


@lru_cache(maxsize=32)
def patches(width: int, height: int, device: torch.device) -> Tensor:
    """[A, 32] pixels of each patch, row by row in clusters of 4x4 patches, these row by row, too; -1 beyond the image's edges. Made once
    and kept: nothing may be written into it."""
    x, y = (_in_clusters(n, side, device) for n, side in ((width, WIDTH), (height, HEIGHT)))  # [clusters, SIDE, pixels]
    x, y = x[None, :, None, :, None, :], y[:, None, :, None, :, None]
    return torch.where((x < width) & (y < height), y * width + x, -1).flatten(4).flatten(0, 3)


def blend(
    gaussians: AnyGaussians,
    features: Tensor,  # [N, C]
    seen: Rays,
    pairs: PairList,
    view: CameraView | LidarView,
    plan: RenderPlan,
) -> Blend:
    """Blends the Gaussians of each warp tile's list over its rays. Medians of an image are not needed and are zeros."""
    part = part_of(len(pairs.gaussians), plan.part, pairs.rays.shape[1], features.device)
    out, distance, transmittance, median, *_ = torch.ops.nurec_lite.render_segments(
        placed(gaussians), features, *arrays_of(seen, pairs), row_of(view), moves(view), part,
        pairs.rows_with(features),
    )  # fmt: skip
    return Blend(out, distance, transmittance, median)


def part_of(
    entries: int,  # of all lists
    most: int,  # that a warp takes
    rays: int,  # of a list, as many lanes take a part
    device: torch.device,
) -> int:
    """Entries of a part at most: fewer where parts would leave lanes of the GPU without work; lists that are not cut stay whole."""
    if most == WHOLE:
        return WHOLE
    together = WARP // rays
    most = most if together == 1 else -(-most // OF_A_SWEEP)
    return min(most, max(LEAST, entries // (together * warps_of(device))))


@lru_cache(maxsize=8)
def warps_of(device: torch.device) -> int:
    """That may run at once; one where that cannot be told."""
    return 1 if device.type != "cuda" else RESIDENT * torch.cuda.get_device_properties(device).multi_processor_count


def kernels_of(plan: RenderPlan) -> Kernels:
    return replace(CUDA_KERNELS, blend=partial(blend, plan=plan), **parts_of(plan))


def render_camera(
    gaussians: AnyGaussians,
    view: CameraView,
    pairs: PairList,
    sky: Tensor,  # [3, H, W] logits of the environment map
    *,
    plan: RenderPlan,
    kernels: Callable[[RenderPlan], Kernels] = kernels_of,
) -> CameraImage:
    """Image as by nurec_lite.splat.render, which specifies it."""
    return render.render_camera(gaussians, view, pairs, sky, kernels(plan))


def render_lidar(
    gaussians: AnyGaussians,
    view: LidarView,
    pairs: PairList,
    *,
    plan: RenderPlan,
    kernels: Callable[[RenderPlan], Kernels] = kernels_of,
) -> LidarReturns:
    """Returns as by nurec_lite.splat.render, which specifies them."""
    return render.render_lidar(gaussians, view, pairs, kernels(plan))
