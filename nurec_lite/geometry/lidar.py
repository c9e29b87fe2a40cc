# SPDX-License-Identifier: Apache-2.0
"""Spinning lidar: spherical coordinates and the rays of a sweep.

Lidar frame: x forward, y left, z up; azimuth = atan2(y, x) grows counter-clockwise, elevation is positive upwards.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Lidar:
    """Mounting and beams of one lidar."""

    name: str
    T_rig_lidar: Tensor  # [4, 4] float64
    elevations: Tensor  # [B] radians, of ring 0 to B - 1
    max_range: float = 120.0  # metres


@dataclass(frozen=True)
class Sweep:
    """R rays of one revolution. Directions are in the lidar's frame at the ray's own time: nothing is motion compensated."""

    directions: Tensor  # [R, 3] unit, float32
    ranges: Tensor  # [R] metres, 0 where nothing returned
    intensities: Tensor  # [R] 0 to 1, 0 where nothing returned
    times: Tensor  # [R] seconds, float64, on the clock of the capture
    rings: Tensor  # [R] int64, index of the beam
    returned: Tensor  # [R] bool

    def __len__(self) -> int:
        return len(self.ranges)

    def select(
        self,
        index: Tensor,  # [n] indices or [R] mask
    ) -> "Sweep":
        return Sweep(*(getattr(self, f)[index] for f in self.__dataclass_fields__))


def azimuth_elevation(
    directions: Tensor,  # [..., 3], not necessarily unit
) -> Tensor:  # [..., 2] radians: azimuth in [-pi, pi], elevation
    x, y, z = directions.unbind(-1)
    return torch.stack([torch.atan2(y, x), torch.atan2(z, torch.hypot(x, y))], dim=-1)


def unit_directions(
    angles: Tensor,  # [..., 2] azimuth, elevation in radians
) -> Tensor:  # [..., 3] unit
    azimuth, elevation = angles.unbind(-1)
    c = torch.cos(elevation)
    return torch.stack([c * torch.cos(azimuth), c * torch.sin(azimuth), torch.sin(elevation)], dim=-1)
