# SPDX-License-Identifier: Apache-2.0
"""Beams that fire together, but look in different directions: the azimuth of each row of an NCore model beside that of its column.

A column is a moment of the revolution for programs that follow NCore's model. Without offsets, a beam that looks 5 degrees ahead of the
others lies in a column that fires 1.4 ms later.
"""

import math

import torch
from torch import Tensor

from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation, wrap_angle

FEWEST = 32  # rays of a row
SHARPER = 0.7  # largest part of the scatter of azimuths that may stay with offsets


def row_offsets(
    lidar: Lidar,
    sweep: Sweep,
    start: float,  # seconds, of the revolution
    end: float,
) -> Tensor:  # [B] radians, of each beam; zeros where the sweep does not show any
    """Returns how far each beam looks beside the direction that the time of its rays suggests."""
    none = no_offsets(lidar)
    seen = sweep.select(sweep.returned)
    if not lidar.spins or not len(seen) or not end > start:
        return none
    turned = (seen.times - start) / (end - start)
    expected = lidar.azimuth_start + turned * (-2 * math.pi if lidar.clockwise else 2 * math.pi)
    beside = wrap_angle(azimuth_elevation(seen.directions.double())[:, 0] - expected)
    found = _medians(beside, seen.rings, none)
    scatter = (beside - beside.median()).abs().mean()
    sharper = float((beside - found[seen.rings]).abs().mean()) < SHARPER * float(scatter)
    wide = float(found.abs().max()) > 2 * math.pi / lidar.azimuth_steps
    return found if wide and sharper else none


def no_offsets(lidar: Lidar) -> Tensor:  # [B] radians
    return torch.zeros(len(lidar.elevations), dtype=torch.float64)


def _medians(values: Tensor, rings: Tensor, none: Tensor) -> Tensor:  # [n], [n], [B] -> [B]
    """Returns the median of each ring; that of all where a ring has few rays."""
    found = torch.full_like(none, float(values.median()))
    for ring in rings.unique().tolist():
        own = values[rings == ring]
        if len(own) >= FEWEST:
            found[ring] = own.median()
    return found
