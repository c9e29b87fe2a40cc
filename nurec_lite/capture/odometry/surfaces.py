# SPDX-License-Identifier: Apache-2.0
"""Points of sweeps as a map of surfaces, and which of them other points meet. Letters: n points that look, m points of a map."""

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
class Map:
    """m points in the world."""

    points: Tensor  # [m, 3]
    tree: "small_gicp.KdTree | None"  # None: too few points to make a surface

    def surfaces(
        self,
        points: Tensor,  # [n, 3] world
        reach: float,  # metres
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rows [k] of the points that meet a surface, the nearest point of the map [k], and the normals there [k, 3]."""
        none, threads = torch.zeros(0, dtype=torch.int64), torch.get_num_threads()
        if self.tree is None:  # the library reads beyond an empty tree
            return none, none, self.points.new_zeros(0, 3)
        nearest, squares = self.tree.batch_nearest_neighbor_search(points.numpy(), num_threads=threads)
        rows = torch.from_numpy(np.flatnonzero(np.asarray(squares) < reach * reach))
        at = torch.from_numpy(np.asarray(nearest).astype(np.int64))[rows]
        places, group = at.unique(return_inverse=True)
        if not len(places):
            return none, none, self.points.new_zeros(0, 3)
        groups, _ = self.tree.batch_knn_search(self.points[places].numpy(), NEIGHBOURS, num_threads=threads)
        normals, thick, wide = planes(self.points[torch.from_numpy(np.asarray(groups).astype(np.int64))])
        flat = ((thick < THICK) & (thick < 0.4 * wide))[group]
        return rows[flat], at[flat], normals[group[flat]]


def surface_map(
    points: Tensor,  # [m, 3] world
) -> Map:
    import small_gicp  # a start that needs no poses goes without it

    points = points.contiguous()
    tree = small_gicp.KdTree(points.numpy(), torch.get_num_threads()) if len(points) >= NEIGHBOURS else None
    return Map(points, tree)
