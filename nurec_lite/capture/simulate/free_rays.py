# SPDX-License-Identifier: Apache-2.0
"""Rays of simulated lidars without rows and columns: rosettes that are alike in all sweeps, or differ from sweep to sweep."""

import math

import torch
from torch import Tensor

from nurec_lite.capture.simulate.world import SimulationConfig
from nurec_lite.geometry.free_lidar import bands_of, free_lidar, rosette
from nurec_lite.geometry.lidar import Lidar, RayTable, azimuth_elevation

_SECOND = -0.64  # turns of the second prism for one of the first, about as Livox has them
_GOLDEN = 0.5 * (math.sqrt(5) - 1)  # step of a wandering pattern, in sweeps


def rays_of(config: SimulationConfig, index: int) -> RayTable:
    """Rays of a sweep, as many as those of a lidar that spins: neighbours on a curve and on the next are about as far apart."""
    count = config.beams * config.azimuth_steps
    first = max(2, round(math.sqrt(count / math.pi)))
    second = next(n for n in range(max(1, round(-_SECOND * first)), 0, -1) if math.gcd(n, first) == 1)
    begun = _GOLDEN * index if config.pattern == "wandering" else 0.0
    return rosette(count, math.radians(config.field_deg), (first, -second), begun)


def lidar_of(config: SimulationConfig, T_rig_lidar: Tensor) -> Lidar:  # [4, 4]
    table = rays_of(config, 0)
    known = None if config.pattern == "wandering" else table
    return free_lidar("lidar", T_rig_lidar, table.directions, config.max_range, known)


def neighbours_first(
    lidar: Lidar,
    directions: Tensor,  # [R, 3]
) -> Tensor:  # [R] int64 order that puts neighbours after one another
    bands = bands_of(lidar, directions) // 8
    return torch.argsort(bands * 8 + azimuth_elevation(directions)[:, 0], stable=True)
