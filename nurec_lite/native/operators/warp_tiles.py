# SPDX-License-Identifier: Apache-2.0
"""The operators group_sweep_rays and occupied_cells, and the arguments of list_warp_tiles: lists of warp tiles. On CUDA alone.

Letters: N Gaussians, V of them visible; A warp tiles, B bands of elevation.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from nurec_lite.native.operators.shared import Grid, visibility_grid
from nurec_lite.splat.views import LidarView, RayGroups

BEAMS = 4  # of a lidar in a band of elevation: eight steps of azimuth of a full sweep make a warp tile


class BoundsInPlace(NamedTuple):
    """Arrays of nurec_lite.splat.project.Projection for warp tiles."""

    indices: Tensor  # [V] int64
    number: Tensor  # [1] int64, so many of the V count
    bounds: Tensor  # [N, 4]


class CandidatesInPlace(NamedTuple):
    """Arrays of nurec_lite.splat.project.Projection for a lidar, whose warp tiles exist already."""

    indices: Tensor  # [V] int64
    number: Tensor  # [1] int64
    candidates: Tensor  # [N, 8] kernels/project/warp_tiles.h
    counts: Tensor  # [N] int32, how many they are


class BandTiles(NamedTuple):
    """A lidar's warp tiles without their rays, and the grid of their bands."""

    first: Tensor  # this field and the following ones as in WarpTiles
    bins: Tensor
    heights: Tensor
    directions: Tensor  # and these as Grid
    edges: Tensor


class WarpTiles(NamedTuple):
    """A warp tiles of 32 rays, those of a sweep by elevation; the last three belong to a lidar, with B bands of elevation."""

    rays: Tensor  # [A, 32] int64, -1 where a warp tile has fewer
    first: Tensor  # [B + 1] int32 first warp tile of a band
    bins: Tensor  # [B, 2048, 2] int32 first warp tile beyond the begin of a bin of azimuth, and first after its end
    heights: Tensor  # [B, 2] radians of elevation: lower and upper limit of a band's rays


def sweep_warp_tiles(view: LidarView) -> tuple[WarpTiles, Grid]:
    """Returns a sweep's warp tiles by band of elevation, then by azimuth: full with any pattern of the rays, but for one a band."""
    grid, known = band_grid(view), view.ray_groups
    found = torch.ops.nurec_lite.group_sweep_rays(grid) if known is None else known.lists()
    return WarpTiles(*found), grid


def band_grid(view: LidarView) -> Grid:
    directions = view.directions.contiguous()
    return Grid(directions, view.lidar.cells(BEAMS, device=directions.device).edges)


def band_args(tiles: WarpTiles, grid: Grid) -> BandTiles:
    return BandTiles(tiles.first, tiles.bins, tiles.heights, grid.directions, grid.edges)


def occupied_cells(view: LidarView) -> Tensor:
    """Returns the table of cells that hold rays as RayGroups has it; makes it where the view has none."""
    if view.ray_groups is not None:
        return view.ray_groups.occupied
    found: Tensor = torch.ops.nurec_lite.occupied_cells(*visibility_grid(view, view.directions.device))
    return found


def group_rays(view: LidarView) -> LidarView:
    """Returns the view with groups of its rays, for a view that is listed many times."""
    rays, first, bins, heights = torch.ops.nurec_lite.group_sweep_rays(band_grid(view))
    return replace(view, ray_groups=RayGroups(rays, first, bins, heights, occupied_cells(view)))
