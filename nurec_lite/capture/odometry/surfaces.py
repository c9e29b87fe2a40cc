# SPDX-License-Identifier: Apache-2.0
"""Points of sweeps as a map of surfaces, and which of them other points meet. Letters: n points that look, m points of a map.

The library holds Python's lock, so that one call at a time uses all threads. The work of torch can go on in other threads.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.odometry.planes import planes

if TYPE_CHECKING:
    import small_gicp

NEIGHBOURS = 10  # points that make a surface
THICK = 0.06  # metres: standard deviation of a surface's points along its normal, at most


@dataclass(frozen=True)
class Met:
    """Points that have a point of a map within reach, and the neighbours of the latter."""

    rows: Tensor  # [n] of the points that look
    at: Tensor  # [n] of the map
    groups: Tensor  # [g, NEIGHBOURS] of the map
    group: Tensor  # [n] of each point

    def surfaces(
        self,
        points: Tensor,  # [m, 3] of the map
    ) -> tuple[Tensor, Tensor, Tensor]:  # rows and at of those that meet a surface [k], and its normals [k, 3]
        normals, thick, wide = planes(points[self.groups])
        flat = ((thick < THICK) & (thick < 0.4 * wide))[self.group]
        return self.rows[flat], self.at[flat], normals[self.group[flat]]


@dataclass(frozen=True)
class Map:
    """m points in the world."""

    points: Tensor  # [m, 3]
    tree: "small_gicp.KdTree | None"  # None: too few points to make a surface
    threads: int

    def met(
        self,
        points: Tensor,  # [n, 3] world
        reach: float,  # metres
    ) -> Met:
        if self.tree is None:  # the library reads beyond an empty tree
            none = torch.zeros(0, dtype=torch.int64)
            return Met(none, none, none.new_zeros(0, NEIGHBOURS), none)
        nearest, squares = self.tree.batch_nearest_neighbor_search(points.numpy(), num_threads=self.threads)
        rows = torch.from_numpy(np.flatnonzero(np.asarray(squares) < reach * reach))
        at = torch.from_numpy(np.asarray(nearest).astype(np.int64))[rows]
        places, group = at.unique(return_inverse=True)
        if not len(places):
            return Met(rows, at, at.new_zeros(0, NEIGHBOURS), group)
        groups, _ = self.tree.batch_knn_search(self.points[places].numpy(), NEIGHBOURS, num_threads=self.threads)
        return Met(rows, at, torch.from_numpy(np.asarray(groups).astype(np.int64)), group)

    def surfaces(self, points: Tensor, reach: float) -> tuple[Tensor, Tensor, Tensor]:
        """Rows [k] of the points that meet a surface, the nearest point of the map [k], and the normals there [k, 3]."""
        return self.met(points, reach).surfaces(self.points)


def surface_map(
    points: Tensor,  # [m, 3] world
    threads: int | None = None,  # that look for neighbours; None: all of the process
) -> Map:
    import small_gicp  # a start that needs no poses goes without it

    threads = threads or torch.get_num_threads()
    points = points.contiguous()
    tree = small_gicp.KdTree(points.numpy(), threads) if len(points) >= NEIGHBOURS else None
    return Map(points, tree, threads)
