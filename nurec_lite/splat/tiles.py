# SPDX-License-Identifier: Apache-2.0
"""Lists of the Gaussians that each group of rays has to look at.

Rays come in tiles: 4x4 pixels of a camera, or the rays of one (azimuth, elevation) cell of a lidar. Small tiles waste few
responses on rays that a Gaussian does not reach, and these decide the time on a CPU.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from nurec_lite.geometry.lidar import Cells
from nurec_lite.splat.project import Projection
from nurec_lite.splat.views import CameraView, LidarView, Rays

TILE = 4  # pixels
MAX_CELL_RAYS = 32  # a lidar cell with more rays is split


@dataclass(frozen=True)
class RayRows:
    """Rows of N Gaussians for a lidar's rays, as kernels have them, with these features."""

    rows: Tensor  # [N, 16]
    features: Tensor  # [N, 2]

    def of(self, features: Tensor) -> Tensor | None:
        """Returns the rows [N, 16]; None: they were made with other features."""
        return self.rows if features is self.features else None


@dataclass(frozen=True)
class PairList:
    """T tiles of at most P rays; tile i looks at `gaussians[offsets[i] : offsets[i + 1]]`, nearest first."""

    rays: Tensor  # [T, P] int64 index of the ray, -1 where the tile has fewer than P
    offsets: Tensor  # [T + 1] int64
    gaussians: Tensor  # [L] int64, or int32 of warp tiles, into the Gaussians that were projected
    needed: Tensor | None = None  # [1] int64, length of a list with all entries; None: all are there
    seen: Rays | None = None  # the view's, where they were found on the way
    visible: Tensor | None = None  # [N] uint8, 0 for Gaussians that are in no list, where that is known
    read: RayRows | None = None  # where they were made on the way

    def rows_with(self, features: Tensor) -> Tensor | None:
        """Returns packed rows [N, 16] of the Gaussians with these features [N, 2]; None: no earlier stage made them."""
        return None if self.read is None else self.read.of(features)

    def part(self, start: int, stop: int) -> "PairList":
        """The lists of the tiles from start to before stop."""
        offsets = self.offsets[start : stop + 1]
        first = int(offsets[0])
        return PairList(self.rays[start:stop], offsets - first, self.gaussians[first : int(offsets[-1])])


@torch.no_grad()
def tile(
    projection: Projection,
    view: CameraView | LidarView,
    capacity: int | None = None,  # entries at most; not needed: these lists are as long as they need
) -> PairList:
    """Pair list of a camera's 4x4-pixel tiles or of a lidar's cells."""
    if isinstance(view, CameraView):
        return _camera_tiles(projection, view)
    return _lidar_cells(projection, view)


def all_pairs(
    n: int,
    view: CameraView | LidarView,
    order: Tensor,  # [n] int64, Gaussians from near to far
) -> PairList:
    """One tile of all rays that looks at all Gaussians: no bound can lose anything (tests)."""
    n_rays = view.camera.width * view.camera.height if isinstance(view, CameraView) else len(view.fractions)
    rays = torch.arange(n_rays, device=order.device)[None]
    return PairList(rays, torch.tensor([0, n], device=order.device), order)


def _camera_tiles(projection: Projection, view: CameraView) -> PairList:
    width, height = view.camera.width, view.camera.height
    nx, ny = -(-width // TILE), -(-height // TILE)
    # pixel centres of tile i lie in [4 i + 0.5, 4 i + 3.5]
    low = torch.ceil((projection.low - (TILE - 0.5)) / TILE).long().clamp(min=0)
    high = torch.floor((projection.high - 0.5) / TILE).long()
    high = torch.minimum(high, high.new_tensor([nx - 1, ny - 1]))
    gaussian, column, row = _boxes(low, high)
    return _sorted_pairs(projection, gaussian, row * nx + column, camera_rays(width, height, TILE, low.device))


@lru_cache(maxsize=32)
def camera_rays(width: int, height: int, tile: int, device: torch.device) -> Tensor:
    """[T, tile * tile] pixels of each tile, -1 beyond the image's edges. Made once and kept: nothing may be written into it."""
    x, y = (torch.arange(-(-n // tile) * tile, device=device).view(-1, tile) for n in (width, height))
    rays = torch.where(
        (x < width)[None, :, None, :] & (y < height)[:, None, :, None],
        y[:, None, :, None] * width + x[None, :, None, :],
        -1,
    )
    return rays.flatten(2).flatten(0, 1)


def _boxes(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All cells of the boxes [low, high] (inclusive, [V, 2]), box after box: number of the box, column and row, each [L]."""
    size = (high - low + 1).clamp(min=0)
    count = size[:, 0] * size[:, 1]
    box, width, x, y, nth = _repeat(count, torch.arange(len(low), device=low.device), size[:, 0], low[:, 0], low[:, 1])
    row = torch.div(nth, width, rounding_mode="floor")
    return box, x + nth - row * width, y + row


def _sorted_pairs(projection: Projection, nth: Tensor, tiles: Tensor, rays: Tensor) -> PairList:
    """Pairs come nearest Gaussian first, so a stable sort by tile keeps the order of depth within each tile."""
    order = torch.sort(tiles.int(), stable=True).indices
    counts = torch.bincount(tiles, minlength=len(rays))
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return PairList(rays, offsets, projection.index[nth[order]])


def _lidar_cells(projection: Projection, view: LidarView) -> PairList:
    cells = view.lidar.cells()
    rays, first, chunks = _fill_cells(cells.of(view.directions), len(cells))
    nth, cell = _cell_pairs(projection, cells)
    occupied = chunks[cell] > 0
    nth, cell = nth[occupied], cell[occupied]
    repeat = chunks[cell]  # a crowded cell stands several times, with MAX_CELL_RAYS rays each
    nth, cell, copy = _repeat(repeat, nth, cell)
    return _sorted_pairs(projection, nth, first[cell] + copy, rays)


def _repeat(count: Tensor, *columns: Tensor) -> tuple[Tensor, ...]:
    """Each column with row i repeated count[i] times, and last which repetition a row is."""
    total = torch.cumsum(count, 0)
    row = torch.repeat_interleave(torch.arange(len(count), device=count.device), count)
    nth = torch.arange(len(row), device=count.device) - (total - count)[row]
    return (*(column[row] for column in columns), nth)


def _fill_cells(cell: Tensor, n_cells: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ray table [T, P]; for each cell its first row there and its number of rows (0 where it has no ray)."""
    counts = torch.bincount(cell, minlength=n_cells)
    width = int(counts.max().clamp(1, MAX_CELL_RAYS))
    chunks = -torch.div(-counts, width, rounding_mode="floor")
    first = chunks.cumsum(0) - chunks
    order = torch.sort(cell, stable=True).indices
    cell = cell[order]
    nth = torch.arange(len(cell), device=cell.device) - (counts.cumsum(0) - counts)[cell]
    rays = cell.new_full((int(chunks.sum()), width), -1)
    rays[first[cell] + torch.div(nth, width, rounding_mode="floor"), nth % width] = order
    return rays, first, chunks


def _cell_pairs(projection: Projection, cells: Cells) -> tuple[Tensor, Tensor]:
    """(number in the projection, cell) of all cells that the bounds touch; azimuth wraps around."""
    n = cells.columns
    first, last = cells.column(projection.low[:, 0]), cells.column(projection.high[:, 0])
    last = torch.minimum(last, first + n - 1)
    low, high = cells.band(projection.low[:, 1]), cells.band(projection.high[:, 1])
    nth, column, row = _boxes(torch.stack([first, low], dim=-1), torch.stack([last, high], dim=-1))
    return nth, row * n + torch.remainder(column, n)
