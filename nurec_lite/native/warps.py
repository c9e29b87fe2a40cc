# SPDX-License-Identifier: Apache-2.0
"""Lists and segments of warp tiles (kernels/raster_warps/bin, kernels/raster_warps/blend). A warp tile of an image has a list, one of a
sweep has two, for its lower and its upper beams. On CUDA alone.

Letters: A warp tiles, L entries, R rays.
"""

from functools import lru_cache

import torch
from torch import Tensor

from nurec_lite.native.operators.rays import rays
from nurec_lite.native.operators.render_segments import render_segments
from nurec_lite.native.operators.shared import Grid, gaussian_args, packed_view, wants_pose_grad
from nurec_lite.native.operators.warp_tiles import BEAMS, BoundsInPlace, CandidatesInPlace, WarpTiles
from nurec_lite.native.plan import UNCUT
from nurec_lite.scene.gaussians import AnyGaussians
from nurec_lite.splat.project import Projection
from nurec_lite.splat.reference import Blend
from nurec_lite.splat.tiles import PairList, RayRows
from nurec_lite.splat.views import CameraView, LidarView, Rays

WIDTH, HEIGHT = 8, 4  # pixels of an image's warp tile
SIDE = 4  # warp tiles of an image's super-tile; their lists are made together
RESIDENT_WARPS = 32  # of a multiprocessor
SWEEP_SHARE = (
    3  # a segment of a sweep has so many times fewer entries: a warp takes two at once, and waits for the longer one
)
MIN_ENTRIES = 64  # least entries of a segment: a shorter one costs more at its start than it saves
WARP = 32  # rays that a warp takes
LISTS = 2  # of a sweep's warp tile
MAX_LISTS = 1 << 20  # of all views of a launch, as the operators take them


@torch.no_grad()
def list_warp_tiles(
    projection: Projection,  # for warp tiles
    view: CameraView | LidarView,
    capacity: int | None,  # entries; with it the host waits for nothing
    tight_lists: bool,  # lists hold only Gaussians that may hit a ray
) -> PairList:
    """Returns the lists of a view's warp tiles."""
    assert projection.gaussians is not None and projection.shapes is not None
    made, grid, size = image_warp_tiles(view) if isinstance(view, CameraView) else (*swept(projection), [])
    seen, most = rays(view, with_origins=False), -1 if capacity is None else capacity
    offsets, listed, needed = torch.ops.nurec_lite.list_warp_tiles(
        gaussian_args(projection.gaussians), packed_view(view), places(projection), projection.shapes,
        (seen.directions, seen.delays), made, grid, size, tight_lists, most,
    )  # fmt: skip
    shared = None if wants_pose_grad(view) else seen  # these rays have no gradients of it
    is_camera = isinstance(view, CameraView)
    rays_of_lists = made.rays.view(-1, WARP if is_camera else WARP // LISTS)
    read = None if is_camera or not tight_lists else RayRows(projection.shapes, projection.gaussians.lidar)
    return PairList(rays_of_lists, offsets, listed, None if capacity is None else needed, shared, projection.seen, read)


def places(projection: Projection) -> BoundsInPlace | CandidatesInPlace:
    """Bounds or candidates of the Gaussians; ValueError where projection made the other kind."""
    count, bounds, candidates = projection.count, projection.bounds, projection.candidates
    if count is not None and candidates is not None:
        return CandidatesInPlace(projection.index, count, *candidates)
    if count is None or bounds is None:
        raise ValueError("the projection is not for warp tiles: project by a plan that has them, too")
    return BoundsInPlace(projection.index, count, bounds)


def swept(projection: Projection) -> tuple[WarpTiles, Grid]:
    if projection.warp_tiles is None:
        raise ValueError("the projection is not for a lidar's warp tiles: project by a plan that has them, too")
    return projection.warp_tiles


def image_warp_tiles(view: CameraView) -> tuple[WarpTiles, Grid, list[int]]:
    """Returns the warp tiles of an image, patches of 8x4 pixels, super-tile by super-tile."""
    camera, device = view.camera, view.T_world_sensor_start.device
    none = torch.empty(0, device=device)
    tiles = WarpTiles(patches(camera.width, camera.height, device), none.int(), none.int(), none)
    return tiles, Grid(none, none), [camera.width, camera.height, WIDTH, HEIGHT]


def lists_of(view: CameraView | LidarView) -> int:
    """The number of the view's warp tiles, or a few more."""
    if isinstance(view, CameraView):
        return SIDE**2 * -(-view.camera.width // (SIDE * WIDTH)) * -(-view.camera.height // (SIDE * HEIGHT))
    return LISTS * (len(view.directions) // WARP + -(-len(view.lidar.elevations) // BEAMS) + 1)


def _in_super_tiles(pixels: int, side: int, device: torch.device) -> Tensor:
    n = -(-pixels // (SIDE * side))
    return torch.arange(n * SIDE * side, device=device).view(n, SIDE, side)


@lru_cache(maxsize=32)
def patches(width: int, height: int, device: torch.device) -> Tensor:
    """[A, 32] pixels of each patch, row by row in super-tiles of 4x4 patches, these row by row, too; -1 beyond the image's edges. Made once
    and kept: nothing may be written into it."""
    x, y = (
        _in_super_tiles(n, side, device) for n, side in ((width, WIDTH), (height, HEIGHT))
    )  # [super-tiles, SIDE, pixels]
    x, y = x[None, :, None, :, None, :], y[:, None, :, None, :, None]
    return torch.where((x < width) & (y < height), y * width + x, -1).flatten(4).flatten(0, 3)


def blend(
    gaussians: AnyGaussians,
    features: Tensor,  # [N, C]
    seen: Rays,
    pairs: PairList,
    view: CameraView | LidarView,
    segment_entries: int,  # at most, by the plan
) -> Blend:
    """Blends the Gaussians of each warp tile's list over its rays, in segments that occupy the GPU."""
    return render_segments(gaussians, features, seen, pairs, view, entries_of(pairs, segment_entries, features.device))


def entries_of(pairs: PairList, segment_entries: int, device: torch.device) -> int:
    """Returns the entries of a segment at most, for these lists."""
    return balanced_entries(len(pairs.gaussians), segment_entries, pairs.rays.shape[1], device)


def balanced_entries(
    entries: int,  # of all lists
    most: int,  # that a warp takes
    rays: int,  # of a list, as many lanes take a segment
    device: torch.device,
) -> int:
    """Returns the entries of a segment at most: fewer where segments would leave lanes of the GPU without work; uncut lists stay whole."""
    if most == UNCUT:
        return UNCUT
    at_once = WARP // rays
    most = most if at_once == 1 else -(-most // SWEEP_SHARE)
    return min(most, max(MIN_ENTRIES, entries // (at_once * warps_of(device))))


@lru_cache(maxsize=8)
def warps_of(device: torch.device) -> int:
    """Returns the warps that may run at once; one where that is not known."""
    return (
        1 if device.type != "cuda" else RESIDENT_WARPS * torch.cuda.get_device_properties(device).multi_processor_count
    )
