# SPDX-License-Identifier: Apache-2.0
"""Points by cubes of space: groups of points, the size of cubes for a wanted number, and the mean of each cube."""

import math

import torch
from torch import Tensor

from nurec_lite.scene.points import Points

SMALLEST, LARGEST = 0.01, 10.0  # metres, of the smallest voxel
ROUNDS = 12  # of the search for a size
SLACK = 0.02  # share of the number wanted that may be missing


class Voxels:
    """Voxels of points, for one size after the other, in the same memory."""

    def __init__(
        self,
        xyz: Tensor,  # [n, 3] metres, float64
        level: Tensor | None = None,  # [n] how often the voxels double; None: never
    ) -> None:
        self.level = torch.zeros_like(xyz[:, 0], dtype=torch.int64) if level is None else level.long()
        self.scaled = xyz.T.contiguous() if level is None else xyz.T.contiguous() / torch.exp2(level)
        self.low, self.high = self.scaled.amin(1), self.scaled.amax(1)
        self.room, self.whole = torch.empty_like(self.scaled[0]), torch.empty_like(self.level)
        self.keys = torch.empty_like(self.level)

    def key(
        self,
        size: float,  # metres, of the smallest
    ) -> Tensor:  # [n] int64, equal for points of one voxel; the next call overwrites it
        counts = (self.high / size).floor() - (self.low / size).floor() + 1
        self.keys.copy_(self.level)
        for along, count in zip(self.scaled, counts.long().tolist(), strict=True):
            self.whole.copy_(torch.div(along, size, out=self.room).floor_())
            self.keys.mul_(count).add_(self.whole)
        return self.keys

    def distinct(self, size: float) -> int:
        """Number of different voxels with a point."""
        ordered = self.key(size).sort().values
        return int((ordered[1:] != ordered[:-1]).sum()) + 1

    def size_for(
        self,
        n: int,
        slack: float = SLACK,
    ) -> float:  # metres
        """The size that lets about n voxels have a point: from n less the slack to n, or as near below as it gets.

        Surfaces have a number of voxels that falls with the square of their size, about, so a few sizes are tried.
        """
        low, high = SMALLEST, LARGEST  # more than n, and n at most
        size, wanted = math.sqrt(low * high), (1 - 0.5 * slack) * n
        for _ in range(ROUNDS):
            found = self.distinct(size)
            low, high = (size, high) if found > n else (low, size)
            if (1 - slack) * n <= found <= n:
                break
            size *= math.sqrt(found / wanted)
            if not low < size < high:
                size = math.sqrt(low * high)
        return high


def voxel_means(
    points: Points,
    key: Tensor,  # [n] int64, equal for points of one voxel, which are of one node
) -> Points:
    """A point for every voxel; sums go in the order of the points, so that they are the same every time."""
    ordered, order = key.sort(stable=True)
    lengths = torch.unique_consecutive(ordered, return_counts=True)[1]

    def total(values: Tensor) -> Tensor:  # [n, C] in the order of the voxels -> [voxels, C] float64
        return torch.segment_reduce(values, "sum", lengths=lengths, axis=0, unsafe=True)

    weights = points.weighed()[order]
    sums = total(weights)
    (all_of, seen), (own, lit) = sums.split(1, dim=1), weights.split(1, dim=1)
    colour = torch.where(seen > 0, total(points.colour[order] * lit) / seen.clamp(min=1e-9), 0.5)
    intensity = (total(points.intensity[order, None] * own) / all_of)[:, 0]
    xyz, node = total(points.xyz[order] * own) / all_of, points.node[order[lengths.cumsum(0) - lengths]]
    return Points(xyz, node, colour.float(), seen[:, 0] > 0, intensity.float(), sums)
