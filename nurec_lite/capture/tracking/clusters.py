# SPDX-License-Identifier: Apache-2.0
"""Groups of returns that move: neighbours in place and in time, in one sweep or across the seam between two."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nurec_lite.capture.tracking.cloud import Cloud
from nurec_lite.capture.tracking.smooth import Doubles

REACH = 0.7  # metres between neighbours of a group
WITHIN = 0.25  # sweeps between neighbours of a group
HIGHEST = 2.5  # metres: higher returns hang over the street, and would join traffic below
FEWEST = 4  # returns of a group


@dataclass(frozen=True, eq=False)
class Groups:
    """g groups of the returns of all sweeps; their own returns are listed group after group."""

    times: Doubles  # [g] seconds, mean
    places: Doubles  # [g, 2] metres, middle of the extent
    low: Doubles  # [g, 2] metres, of the extent
    high: Doubles  # [g, 2]
    sizes: NDArray[np.int64]  # [g] returns

    def __len__(self) -> int:
        return len(self.times)


def group(cloud: Cloud) -> Groups:
    used = cloud.moving & (cloud.heights < HIGHEST)
    points, times = cloud.points[used], cloud.times[used]
    if len(points) == 0:
        nowhere = np.zeros((0, 2))
        return Groups(np.zeros(0), nowhere, nowhere, nowhere, np.zeros(0, np.int64))
    number = _connected(points, times, cloud.period)
    order = np.argsort(number, kind="stable")
    first, count = np.unique(number[order], return_index=True, return_counts=True)[1:]
    low = np.minimum.reduceat(points[order, :2], first)
    high = np.maximum.reduceat(points[order, :2], first)
    mean = np.add.reduceat(times[order], first) / count
    kept = np.flatnonzero(count >= FEWEST)
    kept = kept[np.argsort(mean[kept], kind="stable")]
    return Groups(mean[kept], (0.5 * (low + high))[kept], low[kept], high[kept], count[kept])


def _connected(
    points: Doubles,  # [n, 3] metres
    times: Doubles,  # [n] seconds
    period: float,
) -> NDArray[np.int64]:  # [n] number of the group
    space = np.column_stack([points[:, :2], (times - times.min()) * (REACH / (WITHIN * period))])
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import cKDTree

    pairs = cKDTree(space).query_pairs(REACH, output_type="ndarray")
    ones = np.ones(len(pairs), np.int8)
    graph = coo_matrix((ones, (pairs[:, 0], pairs[:, 1])), shape=(len(points), len(points)))
    return connected_components(graph, directed=False)[1].astype(np.int64)
