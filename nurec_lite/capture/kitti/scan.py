# SPDX-License-Identifier: Apache-2.0
"""Scan pattern and file layout of a drive's lidar: found once, from a few sweeps spread over the drive."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.capture.kitti.order import SAME_RAY, Order
from nurec_lite.capture.kitti.turns import TURN
from nurec_lite.geometry.lidar import azimuth_elevation

_VEHICLE = (2.5, 1.6)  # metres: returns within +-x, +-y of the lidar are the vehicle's own roof, mirrors and bonnet


@dataclass(frozen=True)
class Scan:
    """The common pattern of a drive's sweeps. Plain data, so that it pickles."""

    order: Order
    blocked: Tensor  # [B, 360] bool, by beam and degree of azimuth from -180: directions without missing rays
    several: bool = False  # files hold several returns of a ray
    clockwise: bool = True  # seen from above
    start: float = math.pi  # radians, where a turn begins
    azimuth_steps: int = 2048  # rays that a beam sends in a turn, about
    notes: tuple[str, ...] = ()  # sentences for the user

    @property
    def elevations(self) -> Tensor:  # [B] radians, from the top
        return self.order.elevations

    @property
    def forward_fraction(self) -> float:
        """Fraction of the turn when the lidar faces forward."""
        return (self.start if self.clockwise else -self.start) / TURN % 1

    def turned(
        self,
        azimuth: Tensor,  # [n] radians, within +-pi
    ) -> Tensor:  # [n] radians that the lidar turns from forward to there, negative before it faces forward
        if self.clockwise:
            return -torch.where(azimuth > self.start, azimuth - TURN, azimuth)
        return torch.where(azimuth < self.start, azimuth + TURN, azimuth)

    def arrange(
        self,
        points: Tensor,  # [n, 4 or more] in the order of the file
        name: str,  # for messages
        rings: Tensor | None = None,  # [n] int64; None: by the order of the points
    ) -> tuple[Tensor, Tensor, Tensor]:  # points [m, 4 or more], azimuth and elevation [m, 2], rings [m]
        """Arranges points ring after ring from the top, each by rising azimuth, with one return of a ray."""
        angles = azimuth_elevation(points[:, :3])
        rings, in_order = self.order.rings(angles, name) if rings is None else (rings, False)
        if in_order and not self.several:
            return points, angles, rings
        index = torch.argsort(rings * TURN + angles[:, 0] % TURN, stable=True)
        if self.several:
            index = index[_strongest(points[index, 3], same_ray(angles[index], rings[index]))]
        return points[index], angles[index], rings[index]


def same_ray(
    angles: Tensor,  # [n, 2] ring after ring, each by rising azimuth
    rings: Tensor,  # [n]
) -> Tensor:  # [n] bool: the point is a further return of the ray of the point before
    same = (angles.diff(dim=0).abs() < SAME_RAY).all(dim=1) & (rings.diff() == 0)
    return torch.cat([same.new_zeros(min(1, len(rings))), same])


def _strongest(
    intensities: Tensor,  # [n] 0 to 1
    same: Tensor,  # [n] bool, of same_ray
) -> Tensor:  # [rays] index of the strongest return of each ray, the first of equal ones
    ray = (~same).long().cumsum(0)
    index = torch.argsort(ray - 0.5 * intensities.clamp(0, 1), stable=True)
    return index[torch.cat([same.new_ones(1), ray[index].diff() > 0])]


def degree_of(azimuth: Tensor) -> Tensor:  # [n] radians -> [n] int64, 0 to 359
    return torch.rad2deg(azimuth + math.pi).long() % 360


def on_vehicle(
    points: Tensor,  # [n, 3 or more] metres, lidar frame
) -> Tensor:  # [n] bool: the lidar saw the car that carries it
    return (points[:, 0].abs() < _VEHICLE[0]) & (points[:, 1].abs() < _VEHICLE[1])
