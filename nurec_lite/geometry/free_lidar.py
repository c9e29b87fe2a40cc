# SPDX-License-Identifier: Apache-2.0
"""Lidars without rows and columns: rosettes, solid-state and flash lidars, any set of ray directions with times.

Their rings are bands of elevation with about equally many rays, so that cells, pictures and free space work as for beams.
"""

import math

import torch
from torch import Tensor

from nurec_lite.geometry.lidar import Lidar, RayTable, azimuth_elevation

MOST_BANDS = 128
SAME_RAY = 2e-4  # radians between two returns of one ray, which differ by the rounding of their coordinates
_SLICES = 360  # of azimuth, to measure the covered part of a turn


def free_lidar(
    name: str,
    T_rig_lidar: Tensor,  # [4, 4] float64
    directions: Tensor,  # [R, 3] of one sweep
    max_range: float = 120.0,  # metres
    table: RayTable | None = None,  # if every sweep has the same rays
) -> Lidar:
    """The lidar whose bands and steps of azimuth are about as far apart as its rays."""
    azimuth, elevation = azimuth_elevation(directions.double()).unbind(-1)
    count = len(elevation)
    if not count:
        raise ValueError(f"lidar {name} has no rays")
    covered = len(((azimuth / (2 * math.pi) + 0.5) * _SLICES).long().unique()) / _SLICES  # of a turn
    height = float(elevation.max() - elevation.min())
    spacing = math.sqrt(2 * math.pi * covered * height / count)
    bands = min(max(1, round(height / spacing)) if spacing > 0 else 1, MOST_BANDS, count)
    middles = elevation.sort().values[((torch.arange(bands) + 0.5) * count / bands).long()]
    steps = max(1, round(count / (bands * covered)))
    return Lidar(name, T_rig_lidar, middles, max_range, steps, spins=False, table=table)


def bands_of(
    lidar: Lidar,
    directions: Tensor,  # [R, 3]
) -> Tensor:  # [R] int64, the ring of each ray: its nearest band of elevation
    ascending, place = lidar.elevations.double().sort(stable=True)
    edges = 0.5 * (ascending[1:] + ascending[:-1])
    elevation = azimuth_elevation(directions.double())[:, 1].contiguous()
    return place[torch.bucketize(elevation, edges)]


def rosette(
    rays: int,
    field: float,  # radians, the full angle of the cone about the lidar's x axis, below pi
    turns: tuple[float, float] = (31.0, -13.0),  # of the two prisms in a sweep
    begun: float = 0.0,  # sweeps before this one; with whole turns all sweeps are alike
) -> RayTable:
    """Rays of a lidar with two turning prisms, which bend by equal angles (Risley prisms, as Livox has them)."""
    fractions = (torch.arange(rays, dtype=torch.float64) + 0.5) / rays
    first, second = (2 * math.pi * n * (fractions + begun) for n in turns)
    bend = 0.25 * field
    left, up = bend * (first.cos() + second.cos()), bend * (first.sin() + second.sin())
    away = torch.hypot(left, up)  # radians from the axis
    aside = torch.sinc(away / math.pi)
    return RayTable(torch.stack([away.cos(), aside * left, aside * up], dim=1).float(), fractions)


def same_rays(
    directions: Tensor,  # [R, 3] unit
    times: Tensor,  # [R] seconds
) -> Tensor:  # [R] bool: another ray before it has the same time and direction
    """Compares rays of equal times that are neighbours by their azimuth."""
    azimuth = azimuth_elevation(directions.double())[:, 0]
    order = torch.argsort(azimuth, stable=True)
    order = order[torch.argsort(times[order], stable=True)]
    near = (directions[order].double().diff(dim=0).norm(dim=1) < SAME_RAY) & (times[order].diff() == 0)
    same = torch.zeros(len(times), dtype=torch.bool)
    same[order[1:]] = near
    return same
