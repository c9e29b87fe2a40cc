# SPDX-License-Identifier: Apache-2.0
"""A sweep's rays in bundles, which projection looks at and lists are made of. On CUDA alone."""

import torch

from nurec_lite.native.operators.shared import Grid
from nurec_lite.native.operators.warp_tiles import BandTiles, WarpTiles
from nurec_lite.splat.views import LidarView

BEAMS = 4  # of a lidar in a band of elevation: eight steps of azimuth of a full sweep make a bundle


def sweep_warp_tiles(view: LidarView) -> tuple[WarpTiles, Grid]:
    """Warp tiles of a sweep by band of elevation, then by azimuth: all full, for any pattern of rays, except one a
    band."""
    grid, known = beams(view), view.bundles
    found = torch.ops.nurec_lite.group_sweep_rays(grid) if known is None else known.lists()
    return WarpTiles(*found), grid


def beams(view: LidarView) -> Grid:
    directions = view.directions.contiguous()
    return Grid(directions, view.lidar.cells(BEAMS, device=directions.device).edges)


def bands_of(bundles: WarpTiles, grid: Grid) -> BandTiles:
    return BandTiles(bundles.first, bundles.bins, bundles.heights, grid.directions, grid.edges)
