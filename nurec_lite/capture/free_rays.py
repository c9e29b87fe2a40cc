# SPDX-License-Identifier: Apache-2.0
"""Sweeps of lidars without rows and columns, from points with times: several returns, and rays that did not return.

Letters: n points of a sweep.
"""

import math

import torch
from scipy.spatial import cKDTree
from torch import Tensor

from nurec_lite.geometry.free_lidar import bands_of, same_rays
from nurec_lite.geometry.lidar import Lidar, RayTable, Sweep

NO_TABLE = (
    "Rays without return are not known, since no table of rays is given: training uses returns alone of {name}, which has no rows and "
    "columns."
)
ONE_TIME = "The points of {name} have no times: all of a sweep count as measured at its stamp."
SLOTS = 40  # of a sweep; their mean azimuths show a rotation
TOGETHER = 0.7  # length of the mean direction of a slot's points, at least
STEADY, TURNED = 0.9, 0.15  # share of the slots that turn one way, and part of a turn
NEAR = 0.75  # of the median step between rays: a return that lies nearer to a ray of the table is its own


def turns_steadily(
    azimuth: Tensor,  # [n] radians
    times: Tensor,  # [n]
) -> bool:
    """Whether azimuth follows time, as of a lidar that spins."""
    order = torch.argsort(times, stable=True)
    slots = [part for part in torch.tensor_split(azimuth[order], SLOTS) if len(part)]
    means = torch.stack([torch.stack([part.cos().mean(), part.sin().mean()]) for part in slots])
    together = float(means.norm(dim=1).median())
    steps = torch.atan2(means[:-1, 0] * means[1:, 1] - means[:-1, 1] * means[1:, 0], (means[:-1] * means[1:]).sum(1))
    if len(steps) == 0 or together < TOGETHER:
        return False
    way = float(steps.sum()) / (2 * math.pi)
    one_way = max(float((steps > 0).double().mean()), float((steps < 0).double().mean()))
    return one_way >= STEADY and abs(way) >= TURNED


def free_sweep(
    points: Tensor,  # [n, 5] x, y, z, intensity of 0 to 1, seconds: those that returned
    lidar: Lidar,
    span: tuple[float, float],  # seconds: the sweep
    kept: Tensor,  # [n] bool: not of the vehicle itself
) -> Sweep:
    """The strongest return of each ray, then the rays of the lidar's table that no return has."""
    ranges = points[:, :3].norm(dim=1)
    directions = points[:, :3] / ranges[:, None].clamp(min=1e-9)
    order = torch.argsort(points[:, 3], descending=True, stable=True)  # same_rays keeps the first
    first = torch.empty(len(points), dtype=torch.bool)
    first[order] = ~same_rays(directions[order], points[order, 4])
    missing, times = directions[:0], points[:0, 4]
    if lidar.table is not None:
        missing, times = without_return(lidar.table, directions, points[:, 4], span)
    use = first & kept
    none = ranges.new_zeros(len(missing))
    every = torch.cat([directions[use], missing]).float()
    sweep = Sweep(
        directions=every,
        ranges=torch.cat([ranges[use], none]).float(),
        intensities=torch.cat([points[use, 3], none]).float(),
        times=torch.cat([points[use, 4], times]).clamp(*span),
        rings=bands_of(lidar, every),
        returned=torch.arange(len(every)) < int(use.sum()),
    )
    return sweep.select(torch.argsort(sweep.times, stable=True))


def without_return(
    table: RayTable,
    directions: Tensor,  # [n, 3] of all returns
    times: Tensor,  # [n] seconds
    span: tuple[float, float],  # seconds: the sweep
) -> tuple[Tensor, Tensor]:  # [m, 3] directions and [m] seconds of the rays of the table that no return has
    rays, length = table.directions.double(), span[1] - span[0]
    step = float(rays.diff(dim=0).norm(dim=1).median()) if len(rays) > 1 else 1e-3
    pace = step * len(rays)  # makes a step in time count as much as one in direction
    sent = torch.cat([rays, pace * table.fractions[:, None]], dim=1)
    fractions = (times - span[0]) / length if length > 0 else torch.zeros_like(times)
    seen = torch.cat([directions.double(), pace * fractions[:, None]], dim=1)
    if length <= 0:
        sent, seen = sent[:, :3], seen[:, :3]
    missing = torch.ones(len(rays), dtype=torch.bool)
    if len(seen):
        apart, _ = cKDTree(seen.numpy()).query(sent.numpy())
        missing = torch.from_numpy(apart) > NEAR * step
    return rays[missing], span[0] + table.fractions[missing] * length
