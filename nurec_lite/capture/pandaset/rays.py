# SPDX-License-Identifier: Apache-2.0
"""Rays of the Pandar64: those that returned, from points in the world at their own times, and those that did not, from its beams."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nurec_lite.capture.files import mark_of_file
from nurec_lite.capture.kitti.gaps import whole_sweep
from nurec_lite.capture.pandaset.sequence import TURN, Sequence
from nurec_lite.capture.pandaset.tables import REMEDY, numbers, read_table
from nurec_lite.capture.trajectory import Trajectory
from nurec_lite.capture.types import CaptureError, SweepFrame
from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation
from nurec_lite.geometry.se3 import invert, transform

LIDAR = "pandar64"
BEAMS, STEPS = 64, 1800
FARTHEST = 200.0  # metres
SURVEYED = 6  # sweeps that say where the beams lie
LOWEST, HIGHEST, BINS = -30.0, 20.0, 5000  # degrees of the histogram of elevations
FINE, NEAR = (
    (-6.2, 2.2),
    (13, 50),
)  # degrees: limits of the beams that are 0.17 apart, others 0.9 and more; bins that belong to one beam
LEAST_POINTS = 1000  # of the Pandar64 in a sweep, so that its beams can be found


@dataclass(frozen=True)
class Points:
    """Returns of one lidar in one sweep, in its axes at each point's own time."""

    angles: Tensor  # [n, 2] azimuth, elevation; radians
    ranges: Tensor  # [n] metres
    times: Tensor  # [n] seconds
    intensities: Tensor  # [n] 0 to 1


@dataclass(frozen=True)
class SweepTable:
    """Loads the rays of one revolution. It pickles."""

    path: Path
    start: float  # Unix seconds of the capture's time 0
    end: float  # seconds
    trajectory: Trajectory
    lidar: Lidar

    def __call__(self) -> Sweep:
        found = points_of(self.path, self.start, self.trajectory)
        edges = 0.5 * (self.lidar.elevations[1:] + self.lidar.elevations[:-1])
        rings = torch.bucketize(found.angles[:, 1].contiguous(), edges)
        return whole_sweep(
            found.angles,
            found.ranges,
            found.intensities,
            found.times,
            rings,
            lambda azimuth, _: seen_at(self.lidar, azimuth, self.end),
        )

    def mark(self, thorough: bool) -> tuple[int, int]:
        return mark_of_file(self.path, thorough)


def points_of(
    path: Path,
    start: float,  # Unix seconds of the capture's time 0
    trajectory: Trajectory,
    number: int = 0,  # of the lidar in column `d`: 0 is the Pandar64, 1 the PandarGT
    T_rig_lidar: Tensor | None = None,  # [4, 4]; None: the rig is the lidar
) -> Points:
    table = read_table(path, ("x", "y", "z", "i", "t"))
    values = torch.from_numpy(numbers(table, path, ("x", "y", "z", "i", "t", *(("d",) if "d" in table else ()))))
    values = values[values[:, 5] == number] if values.shape[1] == 6 else values[: 0 if number else None]
    values = values[(values[:, :3] != 0).any(1)]  # others are no points, in a world whose origin lies elsewhere
    if not len(values):
        raise CaptureError(f"{path} holds no point of the {'PandarGT' if number else 'Pandar64'}; {REMEDY}")
    times = values[:, 4] - start
    local = trajectory.to_rig(values[:, :3], times)
    local = local if T_rig_lidar is None else transform(invert(T_rig_lidar), local)
    ranges = local.norm(dim=1)
    if not 0.05 < float(ranges.median()) < FARTHEST:
        raise CaptureError(
            f"{path}: points lie {float(ranges.median()):.0f} m from the lidar; restore the poses and times of this sequence"
        )
    near = ranges > 0
    return Points(
        azimuth_elevation(local[near]), ranges[near], times[near], (values[near, 3] / 255).clamp(0, 1).float()
    )


def elevations_of(
    sweeps: dict[int, Path],
    start: float,
    trajectory: Trajectory,
) -> Tensor:  # [64] radians, the lowest first
    """Peaks of the histogram of elevations over a few sweeps, the highest first."""
    paths = list(sweeps.values())
    some = [points_of(path, start, trajectory).angles[:, 1] for path in paths[:: max(1, len(paths) // SURVEYED)]]
    if sum(map(len, some)) < LEAST_POINTS * len(some):
        raise CaptureError(f"{paths[0].parent} holds too few points to tell the beams of the Pandar64; {REMEDY}")
    width = (HIGHEST - LOWEST) / BINS
    bins = torch.histc(torch.rad2deg(torch.cat(some)), BINS, LOWEST, HIGHEST)
    counts, found = bins.clone(), list[float]()
    while len(found) < BEAMS and float(counts.max()) > 0:
        i = int(counts.argmax())
        apart = NEAR[0 if FINE[0] < LOWEST + i * width < FINE[1] else 1]
        near = slice(max(0, i - 3), i + 4)
        found.append(float((bins[near] * torch.arange(BINS)[near]).sum() / bins[near].sum()))
        counts[max(0, i - apart) : i + apart + 1] = 0
    return torch.deg2rad(torch.tensor(sorted(found), dtype=torch.float64) * width + LOWEST + 0.5 * width)


def seen_at(
    lidar: Lidar,
    azimuth: Tensor,  # [n] radians
    end: float | Tensor,  # seconds: end of the revolution
) -> Tensor:  # [n] seconds when the lidar looks there
    return end - TURN + TURN * lidar.spin_fraction(azimuth)


def sweep_frames(
    sequence: Sequence,
    files: dict[int, Path],  # number of a revolution -> its table
    lidar: Lidar,
) -> list[SweepFrame]:
    ends = sequence.ends[list(files)]
    first, last = sequence.path.at(ends - TURN), sequence.path.at(ends)
    loads = [
        SweepTable(path, sequence.start, end, sequence.path, lidar)
        for path, end in zip(files.values(), ends.tolist(), strict=True)
    ]
    rows = zip(files, (ends - TURN).tolist(), ends.tolist(), first, last, loads, strict=True)
    return [SweepFrame(LIDAR, *row) for row in rows]


def lidar_of(elevations: Tensor) -> Lidar:  # [B] radians
    return Lidar(LIDAR, torch.eye(4, dtype=torch.float64), elevations, FARTHEST, STEPS)
