# SPDX-License-Identifier: Apache-2.0
"""Points that are collected moment by moment, in memory that does not grow with the length of the drive."""

import math

import torch

from nurec_lite.scene.points import Points
from nurec_lite.scene.voxels import Voxels, voxel_means

MOST = 6_000_000  # points held at a time, about 60 sweeps of 64 beams,
A_WANTED = 6  # or so many for each point that is wanted in the end
FINEST = 0.02  # metres, of the first voxels
COARSER = math.sqrt(2)


class Kept:
    """Holds points. When there are more than `most`, points of one node that share a small voxel become their mean, at most half as many.
    Fewer points stay as they are."""

    def __init__(
        self,
        device: torch.device,
        wanted: int,  # points in the end
    ) -> None:
        self.most = max(MOST, A_WANTED * wanted)
        self._size, self._n, self._empty = FINEST, 0, Points.empty(device)
        self._columns: dict[str, list[torch.Tensor]] = {}
        self._merged = False

    def add(self, points: Points) -> None:
        values = points.columns(weighed=self._merged)
        for name, column in values.items():
            self._columns.setdefault(name, []).append(column)
        self._n += len(points)
        if self._n > self.most:
            self._merge()

    def take(self) -> Points:
        """Returns all points and forgets them. Columns are joined one by one, so that only one is in memory twice."""
        if not self._columns:
            return self._empty
        self._n = 0
        columns, self._columns = self._columns, {}
        return Points(**{name: torch.cat(columns.pop(name)) for name in list(columns)})

    def _merge(self) -> None:
        points, self._merged = self.take(), True
        while len(points) > self.most // 2:
            points = voxel_means(points, _keys(points, self._size))
            self._size *= COARSER if len(points) > self.most // 2 else 1
        self.add(points)


def _keys(points: Points, size: float) -> torch.Tensor:  # [n] int64, equal for points of one node and voxel
    return Voxels(points.xyz).key(size).mul_(points.node.amax() + 1).add_(points.node)
