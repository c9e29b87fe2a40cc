# SPDX-License-Identifier: Apache-2.0
"""Sweeps of a recording: rays at their own times, in the lidar's axes, and those that did not return."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.capture.free_rays import free_sweep
from nurec_lite.capture.kitti.gaps import missing_angles
from nurec_lite.capture.kitti.scan import degree_of
from nurec_lite.capture.kitti.turns import TURN
from nurec_lite.capture.rosbag.bag import Stored
from nurec_lite.capture.rosbag.clouds import Fields, read_cloud
from nurec_lite.capture.rosbag.pattern import Pattern
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.lidar import Sweep, unit_directions
from nurec_lite.geometry.se3 import interpolate_between, invert, pose_matrix, transform

_POINT, _TIME = 3, 4  # columns of the intensity and of the time


@dataclass(frozen=True)
class Motion:
    """Motion of the rig during a sweep with points that were already moved to one moment."""

    T_world_rig_start: Tensor  # [4, 4]
    T_world_rig_end: Tensor  # [4, 4]
    T_world_rig_stamp: Tensor  # [4, 4] at that moment
    T_rig_lidar: Tensor  # [4, 4]


@dataclass(frozen=True)
class SweepLoad:
    """Loads one sweep. Plain data, so that it pickles."""

    stored: Stored
    fields: Fields
    pattern: Pattern
    start: float  # seconds of the capture
    end: float
    base: float  # seconds of the capture, added to the points' own times
    vehicle: tuple[float, ...]  # metres ahead of the lidar and to its sides
    motion: Motion | None = None  # of compensated points

    def __call__(self) -> Sweep:
        if self.pattern.free is not None:
            points = self._measured()[0]
            return free_sweep(points, self.pattern.free, (self.start, self.end), self._outside(points))
        return self._sweep(*self._arranged())

    def mark(self, thorough: bool) -> tuple[int, int]:
        return self.stored.mark(thorough)

    def returns(self, every: int = 1) -> tuple[Tensor, Tensor]:
        if self.pattern.free is not None:
            sweep = self()
            seen = sweep.select(sweep.returned)
            return (seen.directions.double() * seen.ranges.double()[:, None])[::every], seen.times[::every]
        points, angles, _ = self._arranged()
        times = self._times(points[:, _TIME], angles[:, 0], angles[:0, 0])[0].clamp(self.start, self.end)
        outside = self._outside(points)
        return points[outside, :3][::every], times[outside][::every]

    def _measured(self) -> tuple[Tensor, Tensor | None]:  # [n, 5] x, y, z, intensity, seconds; the driver's rings [n]
        where = f"{self.stored.name}: a sweep of {self.stored.topic.name}"
        cloud = read_cloud(self.stored.message(), self.stored.topic.kind, self.fields, where)
        points = torch.cat([cloud.points, torch.zeros(len(cloud), 2, dtype=torch.float64)], dim=1)
        if cloud.intensities is not None:
            points[:, _POINT] = (cloud.intensities / self.pattern.scale).clamp(0, 1)
        if self.pattern.clock is not None and cloud.times is not None:
            points[:, _TIME] = self.base + cloud.times * self.pattern.clock.unit
        elif self.pattern.free is not None:
            points[:, _TIME] = self.start
        points[:, :3] = self._as_measured(points)
        return points, cloud.rings

    def _arranged(self) -> tuple[Tensor, Tensor, Tensor]:  # as of Scan.arrange
        where = f"{self.stored.name}: a sweep of {self.stored.topic.name}"
        points, numbers = self._measured()
        rings = self._rings(numbers)
        kept = torch.ones(len(points), dtype=torch.bool) if rings is None else rings >= 0
        if not kept.any():
            raise CaptureError(f"{where} holds no point of a known ring; leave it out by seconds in data.mapping")
        return self.pattern.scan.arrange(points[kept], where, None if rings is None else rings[kept])

    def _as_measured(self, points: Tensor) -> Tensor:  # [n, 3] in the lidar's axes at the points' own times
        if self.motion is None or self.pattern.clock is None:
            return points[:, :3]
        moved = self.motion
        fraction = (points[:, _TIME] - self.start) / max(self.end - self.start, 1e-9)
        T_world_rig = pose_matrix(*interpolate_between(moved.T_world_rig_start, moved.T_world_rig_end, fraction))
        T = invert(T_world_rig @ moved.T_rig_lidar) @ (moved.T_world_rig_stamp @ moved.T_rig_lidar)
        return transform(T, points[:, None, :3])[:, 0]

    def _rings(self, rings: Tensor | None) -> Tensor | None:  # [n] int64, beams; -1: no beam has the number
        beams = self.pattern.beams
        if rings is None or beams is None:
            return None
        known = (rings >= 0) & (rings < len(beams))
        return torch.where(known, beams[rings.clamp(0, len(beams) - 1)], -1)

    def _sweep(self, points: Tensor, angles: Tensor, rings: Tensor) -> Sweep:
        return assembled(points, angles, rings, self.pattern, (self.start, self.end), self.vehicle)

    def _outside(self, points: Tensor) -> Tensor:
        return outside(points, self.vehicle)

    def _times(self, own: Tensor, azimuth: Tensor, missing: Tensor) -> tuple[Tensor, Tensor]:
        return times_of(own, azimuth, missing, self.pattern, (self.start, self.end))


def assembled(
    points: Tensor,  # [n, 5] x, y, z, intensity, seconds: arranged, as by Scan.arrange
    angles: Tensor,  # [n, 2]
    rings: Tensor,  # [n]
    pattern: Pattern,
    span: tuple[float, float],  # seconds: the sweep
    vehicle: tuple[float, ...],
) -> Sweep:
    """Returns of a sweep and the rays that did not return, ring after ring."""
    scan = pattern.scan
    new_angles, new_rings = angles[:0], rings[:0]
    if pattern.missing:
        new_angles, new_rings = missing_angles(angles, rings)
        kept = ~scan.blocked[new_rings, degree_of(new_angles[:, 0])]
        new_angles, new_rings = new_angles[kept], new_rings[kept]
    seen = outside(points, vehicle)
    times, new_times = times_of(points[:, _TIME], angles[:, 0], new_angles[:, 0], pattern, span)
    points, angles, rings, times = points[seen], angles[seen], rings[seen], times[seen]
    ranges = points[:, :3].norm(dim=1)
    zeros = ranges.new_zeros(len(new_angles))
    azimuth = torch.cat([angles[:, 0], new_angles[:, 0]])
    sweep = Sweep(
        directions=torch.cat([points[:, :3] / ranges[:, None], unit_directions(new_angles)]).float(),
        ranges=torch.cat([ranges, zeros]).float(),
        intensities=torch.cat([points[:, _POINT], zeros]).float(),
        times=torch.cat([times, new_times]).clamp(*span),
        rings=torch.cat([rings, new_rings]),
        returned=torch.arange(len(azimuth)) < len(points),
    )
    return sweep.select(torch.argsort(sweep.rings * TURN + azimuth % TURN, stable=True))


def outside(points: Tensor, vehicle: tuple[float, ...]) -> Tensor:  # [n] bool: the lidar did not see its own vehicle
    ahead, beside = vehicle
    return ~((points[:, 0].abs() < ahead) & (points[:, 1].abs() < beside))


def times_of(
    own: Tensor,  # [n] seconds
    azimuth: Tensor,  # [n] radians
    missing: Tensor,  # [m] radians
    pattern: Pattern,
    span: tuple[float, float],  # seconds: the sweep
) -> tuple[Tensor, Tensor]:  # [n], [m] seconds
    """Times of the points, and of rays at other azimuths of the same sweep. A lidar turns steadily, so its azimuth is a clock."""
    scan, (start, end) = pattern.scan, span
    length = end - start
    if length <= 0:
        return torch.full_like(own, start), torch.full_like(missing, start)
    period = pattern.period if pattern.clock is not None else length
    turned, turned_missing = (scan.turned(a) * (period / TURN) for a in (azimuth, missing))
    if pattern.clock is None:
        begin = -scan.forward_fraction * period
        return start + turned - begin, start + turned_missing - begin
    phase = (own - start - turned) * (TURN / period)
    late = math.atan2(float(phase.sin().mean()), float(phase.cos().mean())) * period / TURN
    return own, start + (turned_missing + late) % period
