# SPDX-License-Identifier: Apache-2.0
"""Lidars of NCore without rows and columns, as NCore's own converters of other data sets write them: returns with times.

Beams, and the rays that did not return, are found as in a recording: from the elevations and the order of the returns of some sweeps.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nurec_lite.capture.kitti.survey import spread
from nurec_lite.capture.ncore.rays import Rays
from nurec_lite.capture.rosbag.clouds import Cloud
from nurec_lite.capture.rosbag.mapping import VEHICLE, LidarEntry
from nurec_lite.capture.rosbag.pattern import Pattern, PointClock, find_pattern, sensor_of, spin_of
from nurec_lite.capture.rosbag.sweeps import assembled, outside
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.free_lidar import bands_of
from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation

LEAST = 100  # returns of a sweep that tell beams
LEAST_RANGE = 80.0  # metres that a lidar sees at least
USUAL = 0.1  # seconds of a turn


@dataclass(frozen=True)
class FoundSweep:
    """Loads the rays of one revolution. It pickles."""

    rays: Rays
    pattern: Pattern
    start: float  # seconds
    end: float

    def __call__(self) -> Sweep:
        if self.pattern.free is not None:
            return self._free(self.pattern.free)
        points = _points(self.rays)
        if not len(points):
            raise CaptureError(f"{self.rays.where} holds no return; write its sweep anew")
        arranged = self.pattern.scan.arrange(points, self.rays.where)
        return assembled(*arranged, self.pattern, (self.start, self.end), VEHICLE)

    def _free(self, lidar: Lidar) -> Sweep:
        sweep = self.rays.load(_none(self.rays))
        sweep = sweep.select(~sweep.returned | outside(sweep.directions * sweep.ranges[:, None], VEHICLE))
        return replace(sweep, rings=bands_of(lidar, sweep.directions))

    def mark(self, thorough: bool) -> tuple[int, int]:
        return self.rays.mark(thorough)


def _none(rays: Rays) -> Tensor:  # [N] rings that nothing says
    return torch.zeros(rays.stamps.shape, dtype=torch.int64)


def _points(rays: Rays) -> Tensor:  # [n, 5] x, y, z, intensity, seconds: those that returned, in the order of the store
    sweep = rays.load(_none(rays))
    known = sweep.select(sweep.returned)
    places = known.directions.double() * known.ranges.double()[:, None]
    return torch.cat([places, known.intensities.double()[:, None], known.times[:, None]], dim=1)


def found_pattern(
    frames: list[Rays],
    spans: list[tuple[float, float]],  # seconds of each
    name: str,  # of the lidar
) -> Pattern:
    """Finds the scan pattern of a lidar; CaptureError if the returns show no beams."""
    some = [points for rays in spread(frames) if len(points := _points(rays)) >= LEAST]
    if not some:
        raise CaptureError(
            f"{frames[0].where} and other sweeps hold too few returns to tell beams; give the lidar a model"
        )
    clouds = [Cloud(p[:, :3], p[:, 3], None, p[:, 4]) for p in some]
    timed = all(float(p[:, 4].max() - p[:, 4].min()) > 0 for p in some)
    lasting = torch.tensor([end - start for start, end in spans], dtype=torch.float64)
    period = float(lasting.median()) or USUAL
    pattern = find_pattern(clouds, LidarEntry(name, name), PointClock(1.0, "capture") if timed else None, period, name)
    if pattern.free is not None and not all(bool(rays.load(_none(rays)).returned.all()) for rays in spread(frames)):
        return replace(
            pattern, scan=replace(pattern.scan, notes=())
        )  # rays that did not return are among those of the store
    if not timed or pattern.free is not None:
        return pattern
    clockwise, start = spin_of([azimuth_elevation(p[:, :3])[:, 0] for p in some], [p[:, 4] for p in some], pattern.scan)
    return replace(pattern, scan=replace(pattern.scan, clockwise=clockwise, start=start))


def lidar_of(pattern: Pattern, T_rig_lidar: Tensor, name: str) -> Lidar:  # [4, 4]
    return sensor_of(pattern, name, T_rig_lidar, LEAST_RANGE)
