# SPDX-License-Identifier: Apache-2.0
"""Rays of Argoverse 2's two lidars, VLP-32C on top of each other, the lower one upside down.

A file holds the points of both in a tenth of a second, all moved to the moment of its stamp, in the vehicle's frame. A ray is where its
lidar saw the point: each is moved back to its own time. Both turn clockwise, seen from above.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.argoverse2.log import Log
from nurec_lite.capture.arrow.feather import read_feather
from nurec_lite.capture.arrow.library import REMEDY
from nurec_lite.capture.files import mark_of_file
from nurec_lite.capture.kitti.gaps import whole_sweep
from nurec_lite.capture.kitti.order import ByElevation
from nurec_lite.capture.kitti.scan import Scan, degree_of
from nurec_lite.capture.kitti.survey import without_cuts
from nurec_lite.capture.trajectory import Trajectory
from nurec_lite.capture.types import CaptureError, SweepFrame
from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation
from nurec_lite.geometry.se3 import invert, transform

LASERS = {"up_lidar": range(0, 32), "down_lidar": range(32, 64)}
# degrees of the lasers of a VLP-32C in the order of their numbers, by its data sheet
NOMINAL = (
    -25, -1, -1.667, -15.639, -11.31, 0, -0.667, -8.843, -7.254, 0.333, -0.333, -6.148, -5.333, 1.333, 0.667, -4, -4.667, 1.667, 1,
    -3.667, -3.333, 3.333, 2.333, -2.667, -3, 7, 4.667, -2.333, -2, 15, 10.333, -1.333,
)  # fmt: skip
TURN, STEPS = 0.1, 1800  # seconds of a turn, rays of a beam in it
FARTHEST = 250.0  # metres
SURVEYED, LEAST = 6, 50  # sweeps that say where the beams lie, and points of a beam in them
UPSIDE_DOWN = torch.diag(torch.tensor([1, -1, -1, 1], dtype=torch.float64))
COLUMNS = {"x": float, "y": float, "z": float, "intensity": int, "laser_number": int, "offset_ns": int}


@dataclass(frozen=True)
class Points:
    """Returns of one lidar in one file, in the lidar's axes at each point's own time."""

    local: Tensor  # [n, 3] metres
    intensities: Tensor  # [n] 0 to 1
    lasers: Tensor  # [n] int64, from 0
    offsets: Tensor  # [n] seconds since the stamp


@dataclass(frozen=True)
class Pattern:
    """Scan pattern of a lidar. It is plain data, so it pickles."""

    lidar: Lidar  # with beams from the top
    beams: Tensor  # [32] int64, beam of each laser
    lead: Tensor  # [32] radians, by beam: azimuth of its rays minus that of the lidar's head
    blocked: Tensor  # [32, 360] bool, by beam and degree: the vehicle stands in the way
    begin: float  # seconds from a stamp to the first ray


@dataclass(frozen=True)
class SweepFile:
    """One file, and the motion that undoes its compensation."""

    path: Path
    stamp: float  # seconds
    trajectory: Trajectory

    def points(self, name: str, T_rig_lidar: Tensor) -> Points:  # [4, 4] mounting
        table = read_feather(self.path, COLUMNS, empty=True)
        own = np.isin(table["laser_number"], LASERS[name])
        offsets = torch.from_numpy(table["offset_ns"][own] * 1e-9)
        if len(offsets) and not 0 <= float(offsets.min()) <= float(offsets.max()) < 3 * TURN:
            raise CaptureError(f"{self.path}: 'offset_ns' lies outside of a turn; {REMEDY}")
        moved = torch.from_numpy(np.stack([table[k][own] for k in "xyz"], axis=1))
        at_stamp = self.trajectory.at(self.stamp)
        T = invert(self.trajectory.at(self.stamp + offsets) @ T_rig_lidar) @ at_stamp
        local = transform(T, moved[:, None])[:, 0]
        there = (local.norm(dim=1) > 0) & (local.abs() < 1e4).all(dim=1)
        lasers = torch.from_numpy(table["laser_number"][own]) - LASERS[name].start
        values = torch.from_numpy(table["intensity"][own]).float() / 255
        return Points(local[there], values[there].clamp(0, 1), lasers[there], offsets[there])


@dataclass(frozen=True)
class SweepLoad:
    """Loads the rays of one lidar in one file. It pickles."""

    file: SweepFile
    pattern: Pattern

    def __call__(self) -> Sweep:
        pattern, stamp = self.pattern, self.file.stamp
        found = self.file.points(pattern.lidar.name, pattern.lidar.T_rig_lidar)
        if not len(found.local):
            raise CaptureError(
                f"{self.file.path} holds no point of {pattern.lidar.name}; remove the file, or choose other lidars by data.lidars"
            )
        angles, beams = azimuth_elevation(found.local), pattern.beams[found.lasers]
        phase = _phase(found.offsets, angles[:, 0] - pattern.lead[beams])

        def clock(azimuths: Tensor, rings: Tensor) -> Tensor:
            turned = (phase - (azimuths - pattern.lead[rings]) * TURN / math.tau - pattern.begin) % TURN
            return stamp + pattern.begin + turned

        sweep = whole_sweep(angles, found.local.norm(dim=1), found.intensities, stamp + found.offsets, beams, clock)
        degrees = degree_of(azimuth_elevation(sweep.directions)[:, 0])
        return sweep.select(sweep.returned | ~pattern.blocked[sweep.rings, degrees])

    def mark(self, thorough: bool) -> tuple[int, int]:
        return mark_of_file(self.file.path, thorough)


def _phase(times: Tensor, azimuth: Tensor) -> float:  # [n] seconds, [n] radians of the head -> seconds at azimuth 0
    """The mean over the circle of the turn: a lidar turns evenly."""
    turned = times * (math.tau / TURN) + azimuth
    return math.atan2(float(turned.sin().mean()), float(turned.cos().mean())) * TURN / math.tau


def find_pattern(
    files: Sequence[SweepFile],  # of the log
    name: str,  # of the lidar
    T_rig_sensor: Tensor,  # [4, 4] as calibrated
) -> Pattern:
    """Scan pattern, from a few files spread over the log."""
    T_rig_lidar = T_rig_sensor if float(T_rig_sensor[2, 2]) > 0 else T_rig_sensor @ UPSIDE_DOWN
    some = [file.points(name, T_rig_lidar) for file in files[:: -(-len(files) // SURVEYED)]]
    angles = [azimuth_elevation(points.local) for points in some]
    elevations = _elevations(some, angles, upside_down=T_rig_lidar is not T_rig_sensor)
    order = elevations.argsort(descending=True)
    beams = torch.empty_like(order)
    beams[order] = torch.arange(len(order))
    rings = [beams[points.lasers] for points in some]
    lead = _lead([points.offsets for points in some], [a[:, 0] for a in angles], rings)
    begin = float(torch.stack([p.offsets.min() for p in some if len(p.offsets)] or [torch.tensor(0.0)]).median())
    phases = [_phase(p.offsets, a[:, 0] - lead[r]) for p, a, r in zip(some, angles, rings, strict=True) if len(r)]
    start = (float(np.median(phases)) - begin) * math.tau / TURN if phases else math.pi
    start = math.remainder(start, math.tau)
    scan = Scan(ByElevation(elevations[order]), torch.zeros(len(order), 360, dtype=torch.bool))
    arranged = [
        scan.arrange(torch.cat([p.local, p.intensities.double()[:, None]], dim=1), name, r)
        for p, r in zip(some, rings, strict=True)
        if len(r) > 1
    ]
    blocked = without_cuts(scan, arranged).blocked if arranged else scan.blocked
    lidar = Lidar(name, T_rig_lidar, elevations[order], FARTHEST, STEPS, azimuth_start=start)
    return Pattern(lidar, beams, lead, blocked, begin)


def _elevations(some: list[Points], angles: list[Tensor], upside_down: bool) -> Tensor:  # [32] radians, by laser
    """The median of each laser over a few sweeps; that of the data sheet where too little returns."""
    lasers = torch.cat([points.lasers for points in some])
    found = torch.cat([a[:, 1] for a in angles])
    nominal = torch.deg2rad(torch.tensor(NOMINAL, dtype=torch.float64)) * (-1 if upside_down else 1)
    own = [found[lasers == k] for k in range(len(nominal))]
    return torch.stack([values.median() if len(values) >= LEAST else nominal[k] for k, values in enumerate(own)])


def _lead(offsets: list[Tensor], azimuths: list[Tensor], rings: list[Tensor]) -> Tensor:  # [32] radians, by beam
    """Beams leave the head at azimuths up to 4 degrees apart, so that they look at a place at different times."""
    turned = torch.cat(
        [t * (math.tau / TURN) + a - _phase(t, a) * (math.tau / TURN) for t, a in zip(offsets, azimuths, strict=True)]
    )
    ring = torch.cat(rings)
    own = [turned[ring == k] for k in range(32)]
    return torch.tensor(
        [math.atan2(float(v.sin().mean()), float(v.cos().mean())) if len(v) else 0.0 for v in own]
    ).double()


def sweep_frames(
    log: Log,
    files: dict[int, SweepFile],  # by nanoseconds
    pattern: Pattern,
) -> list[SweepFrame]:
    starts = torch.tensor([file.stamp + pattern.begin for file in files.values()], dtype=torch.float64)
    first, last = log.path.at(starts), log.path.at(starts + TURN)
    return [
        SweepFrame(pattern.lidar.name, k, time, time + TURN, first[k], last[k], SweepLoad(file, pattern))
        for k, (time, file) in enumerate(zip(starts.tolist(), files.values(), strict=True))
    ]
