# SPDX-License-Identifier: Apache-2.0
"""Sweeps of files in KITTI's layout: ring and time of every point, and the rays that did not return.

A `.bin` file holds x, y, z, reflectance as float32. KITTI's HDL-64E stores ring after ring from the top one to the bottom one,
each by increasing azimuth from 0 (forward) to 2 pi; `order.py` has the orders of other programs. Only points that returned are
stored, and nothing is motion compensated. The sensor turns the other way: it starts behind (azimuth pi), faces forward half a
period later, and ends behind (-pi).
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nurec_lite.capture.files import mark_of_file
from nurec_lite.capture.kitti.gaps import missing_angles
from nurec_lite.capture.kitti.points import read_points
from nurec_lite.capture.kitti.scan import Scan, degree_of, on_vehicle
from nurec_lite.capture.kitti.turns import TURN
from nurec_lite.geometry.lidar import Sweep, unit_directions


def make_sweep(
    points: Tensor,  # [n, 4] float64, in the order of the file
    scan: Scan,
    forward_time: float,  # seconds, when the sensor faces forward
    period: float,  # seconds of one turn
    missing_rays: bool = True,
    name: str = "sweep",  # for messages
) -> Sweep:  # rays ordered by ring, then by azimuth from 0 to 2 pi
    """Makes a sweep of points; a ray's time follows from its azimuth."""
    points, angles, rings = scan.arrange(points, name)
    new_angles, new_rings = missing_angles(angles, rings)
    new_keep = ~scan.blocked[new_rings, degree_of(new_angles[:, 0])] & missing_rays
    keep = ~on_vehicle(points)
    points, new_angles = points[keep], new_angles[new_keep]
    ranges = points[:, :3].norm(dim=1)
    zeros = ranges.new_zeros(len(new_angles))
    azimuth = torch.cat([angles[keep, 0], new_angles[:, 0]])
    sweep = Sweep(
        directions=torch.cat([points[:, :3] / ranges[:, None], unit_directions(new_angles)]).float(),
        ranges=torch.cat([ranges, zeros]).float(),
        intensities=torch.cat([points[:, 3].clamp(0, 1), zeros]).float(),
        times=forward_time + scan.turned(azimuth) * (period / TURN),
        rings=torch.cat([rings[keep], new_rings[new_keep]]),
        returned=torch.arange(len(azimuth)) < len(points),
    )
    return sweep.select(torch.argsort(sweep.rings * TURN + azimuth % TURN, stable=True))


@dataclass(frozen=True)
class SweepFile:
    """Loads one `.bin` file. Plain data, so that it pickles."""

    path: Path
    scan: Scan
    forward_time: float  # seconds
    period: float  # seconds
    missing_rays: bool = True

    def returns(
        self,
        every: int = 1,
    ) -> tuple[Tensor, Tensor]:  # points [n, 3] metres, times [n] seconds; without rings and missing rays
        points = read_points(self.path, every)
        points = points[~on_vehicle(points), :3]
        azimuth = torch.atan2(points[:, 1], points[:, 0])
        return points, self.forward_time + self.scan.turned(azimuth) * (self.period / TURN)

    def __call__(self) -> Sweep:
        points = read_points(self.path)
        return make_sweep(points, self.scan, self.forward_time, self.period, self.missing_rays, str(self.path))

    def mark(self, thorough: bool) -> tuple[int, int]:
        return mark_of_file(self.path, thorough)
