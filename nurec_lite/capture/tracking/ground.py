# SPDX-License-Identifier: Apache-2.0
"""Height of the ground under a drive: the lowest returns of cells, over all sweeps, where the ground is no steeper than a street."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nurec_lite.capture.tracking.returns import Floats, Sweeps

CELL = 0.8  # metres
LOWEST = 0.05  # share of a cell's returns that may lie below the ground: reflections do
FEWEST = 3  # returns of a cell
STEEPEST = 0.2  # metres a metre
REACH = 6  # cells of hidden ground that are bridged
AROUND, PIT = 11, 0.5  # cells around one, and metres below their usual height: such a cell is no ground
MOST = 600_000  # returns that are looked at, evenly over all
CLEAR = 0.25  # metres above the ground where objects begin


@dataclass(frozen=True, eq=False)
class Ground:
    """A map of heights."""

    heights: Floats  # [X, Y] metres, infinite where nothing is known
    corner: NDArray[np.float64]  # [2] metres
    bridged: NDArray[np.bool_] | None = None  # [X, Y] cells without returns: no ground next to them is steeper

    def below(
        self,
        points: Floats,  # [n, 3] metres
        seen: bool = False,  # bridged cells count as unknown
    ) -> Floats:  # [n] height of the ground below the points
        cell = np.floor((points[:, :2] - self.corner) / CELL).astype(np.int64)
        x, y = (np.clip(cell[:, i], 0, self.heights.shape[i] - 1) for i in (0, 1))
        found = self.heights[x, y]
        return found if not seen or self.bridged is None else np.where(self.bridged[x, y], np.float32(np.inf), found)


def ground_of(sweeps: Sweeps) -> Ground:
    every = 1 + sum(len(s.points) for s in sweeps.sweeps) // MOST
    points = np.concatenate([s.points[::every] for s in sweeps.sweeps])
    corner = points[:, :2].min(0).astype(np.float64) if len(points) else np.zeros(2)
    cell = np.floor((points[:, :2] - corner) / CELL).astype(np.int64)
    shape = cell.max(0) + 1 if len(cell) else np.ones(2, np.int64)
    heights = np.full(shape, np.inf, np.float32)
    cells, z = by_key(cell[:, 0] * shape[1] + cell[:, 1], points[:, 2])
    found, first, count = np.unique(cells, return_index=True, return_counts=True)
    enough = count >= FEWEST
    low = first + (LOWEST * count).astype(np.int64)
    heights.reshape(-1)[found[enough]] = z[low[enough]]
    return Ground(_no_steeper(_without_pits(heights)), corner, ~np.isfinite(heights))


def by_key(
    key: NDArray[np.int64],  # [n] 0 to 2^31
    values: Floats,  # [n]
) -> tuple[NDArray[np.int64], Floats]:  # [n] keys and values, by rising keys, then by rising values
    """One sort of integers, five times as fast as `np.lexsort`. The bits of floats rise with the floats, those of negative ones fall."""
    bits = values.astype(np.float32).view(np.int32)
    rising = np.where(bits < 0, bits ^ 0x7FFFFFFF, bits).astype(np.int64) + 2**31
    both = np.sort(key << 32 | rising)
    rising = ((both & 0xFFFFFFFF) - 2**31).astype(np.int32)
    return both >> 32, np.where(rising < 0, rising ^ 0x7FFFFFFF, rising).view(np.float32)


def _without_pits(heights: Floats) -> Floats:
    """Heights without those far below their surroundings: reflections in windows and puddles."""
    from scipy.ndimage import distance_transform_edt, percentile_filter

    known = np.isfinite(heights)
    if not known.any():
        return heights
    nearest = distance_transform_edt(~known, return_distances=False, return_indices=True)
    filled = heights[tuple(nearest)]
    around = percentile_filter(filled, 30, AROUND, mode="nearest")
    return np.where(known, np.where(heights < around - PIT, around, heights), np.inf).astype(np.float32)


def _no_steeper(heights: Floats) -> Floats:
    """Lowers each cell to the largest height that its neighbours allow."""
    from scipy.ndimage import minimum_filter

    for _ in range(REACH):
        heights = np.minimum(heights, minimum_filter(heights, 3, mode="nearest") + np.float32(STEEPEST * CELL))
    return heights
