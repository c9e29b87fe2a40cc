# SPDX-License-Identifier: Apache-2.0
"""The operators tile_camera and tile_lidar: lists of block tiles."""

from typing import NamedTuple

import torch
from torch import Tensor

from nurec_lite.native.operators.shared import grid_args
from nurec_lite.splat.project import Projection
from nurec_lite.splat.tiles import PairList, camera_rays
from nurec_lite.splat.views import CameraView, LidarView


class Bounds(NamedTuple):
    """Arrays of nurec_lite.splat.project.Projection."""

    indices: Tensor  # [V] int64
    low: Tensor  # [V, 2]
    high: Tensor  # [V, 2]


class LidarCells(NamedTuple):
    """The size of a lidar's cells."""

    beams: int  # rays of a full sweep in a cell: beams
    steps: int  # and steps of azimuth
    rays: int  # a cell with more is split


@torch.no_grad()
def list_block_tiles(
    projection: Projection,
    view: CameraView | LidarView,
    capacity: int | None,  # entries
    side: int,  # pixels along either side of a camera's tile
    cells: LidarCells,
) -> PairList:
    """Returns the lists of a camera's square tiles or of a lidar's cells. With a capacity the host waits for nothing: the list is as long
    as the capacity, entries beyond it are left out, and `needed` holds the number of all."""
    bounds, most = Bounds(projection.index, projection.low, projection.high), -1 if capacity is None else capacity
    if isinstance(view, CameraView):
        size = view.camera.width, view.camera.height
        rays = camera_rays(*size, side, projection.low.device)
        offsets, members, needed = torch.ops.nurec_lite.tile_camera(bounds, *size, side, most)
    else:
        grid, columns = grid_args(view, projection.low.device, cells.beams, cells.steps)
        rays, offsets, members, needed = torch.ops.nurec_lite.tile_lidar(bounds, grid, columns, cells.rays, most)
    return PairList(rays, offsets, members, None if capacity is None else needed, visible=projection.seen)
