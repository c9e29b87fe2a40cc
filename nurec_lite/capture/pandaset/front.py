# SPDX-License-Identifier: Apache-2.0
"""Returns of the PandarGT, which looks ahead. It draws no rows, so nothing tells the rays that did not return."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nurec_lite.capture.files import mark_of_file
from nurec_lite.capture.kitti.order import ByElevation
from nurec_lite.capture.kitti.survey import bands
from nurec_lite.capture.pandaset.rays import SURVEYED, points_of
from nurec_lite.capture.pandaset.sequence import GT, TURN, Sequence
from nurec_lite.capture.trajectory import Trajectory
from nurec_lite.capture.types import SweepFrame
from nurec_lite.geometry.lidar import Lidar, Sweep, unit_directions

LIDAR, NUMBER = "pandargt", 1  # the name, and `d` of its points
FARTHEST = 300.0  # metres
STEPS = 3600  # rays of a band in a whole turn, about: it sees a seventh of them
BEFORE = 0.01  # seconds from the begin of its picture to the turn of the Pandar64


@dataclass(frozen=True)
class FrontTable:
    """Loads the returns of one revolution. It pickles."""

    path: Path
    start: float  # Unix seconds of the capture's time 0
    trajectory: Trajectory
    lidar: Lidar

    def __call__(self) -> Sweep:
        found = points_of(self.path, self.start, self.trajectory, NUMBER, self.lidar.T_rig_lidar)
        rings, _ = ByElevation(self.lidar.elevations).rings(found.angles, str(self.path))
        return Sweep(
            directions=unit_directions(found.angles).float(), ranges=found.ranges.float(), intensities=found.intensities,
            times=found.times, rings=rings, returned=torch.ones(len(rings), dtype=torch.bool),
        )  # fmt: skip

    def mark(self, thorough: bool) -> tuple[int, int]:
        return mark_of_file(self.path, thorough)


def front_lidar(
    sequence: Sequence,
    files: dict[int, Path],  # number of a revolution -> its table
) -> Lidar:
    """The front lidar at its place on the car, with the axes of the rig; bands of elevation stand for beams."""
    T = torch.eye(4, dtype=torch.float64)
    T[:3, 3] = sequence.mountings[GT][:3, 3]
    paths = list(files.values())
    some = [_elevations(sequence, path, T) for path in paths[:: max(1, len(paths) // SURVEYED)]]
    return Lidar(LIDAR, T, bands(torch.cat(some)).elevations, FARTHEST, STEPS)


def _elevations(sequence: Sequence, path: Path, T_rig_lidar: Tensor) -> Tensor:  # [n] radians
    return points_of(path, sequence.start, sequence.path, NUMBER, T_rig_lidar).angles[:, 1]


def front_frames(
    sequence: Sequence,
    files: dict[int, Path],
    lidar: Lidar,
) -> list[SweepFrame]:
    ends = sequence.ends[list(files)]
    starts = ends - TURN - BEFORE
    loads = [FrontTable(path, sequence.start, sequence.path, lidar) for path in files.values()]
    rows = zip(
        files, starts.tolist(), ends.tolist(), sequence.path.at(starts), sequence.path.at(ends), loads, strict=True
    )
    return [SweepFrame(LIDAR, *row) for row in rows]
