# SPDX-License-Identifier: Apache-2.0
"""The rig's speed among vehicles of the same speed: these fit where the rig stands still, and the world fits at one speed on both sides.

Source: the points that one motion explains are taken away, and the next motion is looked for among the rest (sequential RANSAC; Torr 1998).
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import small_gicp

UPRIGHT = 0.5  # 1 minus the square of a normal's vertical part
SPEEDS = np.arange(-12, 45, 0.5)  # metres a second that are tried; nobody reverses faster
STILL = 3.0  # metres a second: slower is no other motion
WITH = 0.35  # metres: nearer to a point of the other sweep, a point may move along with the rig
NEAR = 0.5  # metres from a point of the rest to one of the other sweep's rest
PART, LEAST, EACH = 0.22, 8, 0.2  # of the rest, points on either side, and part of those that fit
MIDDLE = 3.0  # metres to the left or right: nearer points are on no side


def speed_of_rest(
    before: "small_gicp.PointCloud", after: "small_gicp.PointCloud", seconds: float
) -> float | None:  # metres a second ahead; None: the rest agrees on none
    """Speed of a rig that lays most of the upright points onto each other, without those that lie so where the rig stands still."""
    first, second = _apart(before, after), _apart(after, before)
    if not len(first) or not len(second):
        return None
    tree = _tree(first)
    ahead = np.array([seconds, 0.0, 0.0])
    fits = [_near(tree, second + speed * ahead, NEAR) for speed in SPEEDS]
    best = max(range(len(fits)), key=lambda k: int(fits[k].sum()))
    fit, across, speed = fits[best], second[:, 1], float(SPEEDS[best])
    side = min(int((fit & (across > MIDDLE)).sum()), int((fit & (across < -MIDDLE)).sum()))
    agrees = fit.sum() > PART * len(second) and side >= max(LEAST, EACH * fit.sum())
    return speed if agrees and abs(speed) > STILL else None


def upright(cloud: "small_gicp.PointCloud") -> NDArray[np.float64]:  # [n, 4]
    return cloud.points()[np.array([surface[2, 2] > UPRIGHT for surface in cloud.covs()], dtype=np.bool_)]


def _apart(cloud: "small_gicp.PointCloud", other: "small_gicp.PointCloud") -> NDArray[np.float64]:  # [n, 3]
    """Upright points with no point of the other sweep nearby, as a rig that stands would see them."""
    points = upright(cloud)[:, :3] if len(cloud.points()) else np.zeros((0, 3))
    if not len(points) or not len(other.points()):
        return points
    return points[~_near(_tree(other.points()[:, :3]), points, WITH)]


def _tree(
    points: NDArray[np.float64],
) -> "small_gicp.KdTree":  # [n, 3], not empty: the library reads beyond an empty tree
    import small_gicp

    return small_gicp.KdTree(np.ascontiguousarray(points))


def _near(tree: "small_gicp.KdTree", points: NDArray[np.float64], reach: float) -> NDArray[np.bool_]:  # [n, 3] -> [n]
    squares = tree.batch_nearest_neighbor_search(np.ascontiguousarray(points))[1]
    return np.asarray(squares) < reach * reach
