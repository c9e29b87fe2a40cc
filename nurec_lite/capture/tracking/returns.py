# SPDX-License-Identifier: Apache-2.0
"""Returns of all sweeps in the world, and the range image of each sweep.

A range image has a row for each beam and a column for each step of azimuth. Letters: S sweeps, n points, B rows, A columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from nurec_lite.base.processes import Kind
from nurec_lite.base.waiting import shared_out
from nurec_lite.capture.deskew import poses_at
from nurec_lite.capture.types import SweepFrame
from nurec_lite.geometry.lidar import Lidar, azimuth_elevation
from nurec_lite.geometry.se3 import invert

Floats = NDArray[np.float32]
WORKERS = Kind("a process that searches moving objects")
FARTHEST = 75.0  # metres: beyond, a car has a handful of returns
TURN = 2 * np.pi
COLUMNS = 2048  # of a range image at most
MOST = (
    30_000_000  # rays of a drive (220 sweeps of 64 beams): of longer drives every second ray is taken, then every third
)


@dataclass(frozen=True, eq=False)
class Grid:
    """Rows and columns of a lidar's range images."""

    edges: Floats  # [B - 1] radians, rising
    columns: int

    def cells(
        self,
        azimuth: Floats,  # [n] radians
        elevation: Floats,  # [n] radians
    ) -> NDArray[np.int64]:  # [n]
        column = ((azimuth + np.float32(np.pi)) * np.float32(self.columns / TURN)).astype(np.int64) % self.columns
        return np.searchsorted(self.edges, elevation) * self.columns + column

    @property
    def rows(self) -> int:
        return len(self.edges) + 1


@dataclass(frozen=True, eq=False)
class Returns:
    """Returns of one sweep: n points, and the sensor's place."""

    frame: SweepFrame
    points: Floats  # [n, 3] metres, about the origin of all
    times: NDArray[np.float64]  # [n] seconds
    ranges: Floats  # [n] metres
    cells: NDArray[np.int64]  # [n] of the range image
    starts: Floats  # [3, 4] lidar from world, at the frame's start
    ends: Floats  # [3, 4] at its end
    when: Floats  # [A] 0 to 1: part of the sweep when the lidar faces a column
    sensor: Floats  # [3] metres, mid-sweep


@dataclass(frozen=True, eq=False)
class Sweeps:
    """All sweeps of a lidar."""

    lidar: Lidar
    grid: Grid
    sweeps: list[Returns]
    origin: NDArray[np.float64]  # [3] metres, world

    @property
    def period(self) -> float:  # seconds from one sweep to the next
        starts = np.array([s.frame.time_start for s in self.sweeps])
        return float(np.median(np.diff(starts))) if len(starts) > 1 else 0.1


def read_sweeps(
    lidar: Lidar,
    frames: Sequence[SweepFrame],
) -> Sweeps:
    elevations = np.unique(lidar.elevations.numpy().astype(np.float32))
    every = 1 + len(frames) * len(lidar.elevations) * lidar.azimuth_steps // MOST
    grid = Grid(0.5 * (elevations[1:] + elevations[:-1]), max(1, min(lidar.azimuth_steps, COLUMNS) // every))
    origin = frames[len(frames) // 2].T_world_rig_start[:3, 3].double().numpy()
    returns = list(shared_out(lambda frame: _returns(frame, lidar, grid, origin, every), frames, WORKERS))
    return Sweeps(lidar, grid, returns, origin)


def _returns(frame: SweepFrame, lidar: Lidar, grid: Grid, origin: NDArray[np.float64], every: int) -> Returns:
    sweep = frame.load().select(slice(None, None, every))
    angles = azimuth_elevation(sweep.directions).numpy()
    cells = grid.cells(angles[:, 0], angles[:, 1])
    known = (sweep.returned & (sweep.ranges < lidar.max_range)).numpy()
    part = (sweep.times.numpy() - frame.time_start) / max(frame.time_end - frame.time_start, 1e-9)
    T = poses_at(frame, torch.tensor([0.0, 0.5, 1.0])) @ lidar.T_rig_lidar
    starts, ends = (_about(invert(T[i]).numpy(), origin) for i in (0, 2))
    T[:, :3, 3] -= torch.from_numpy(origin)
    ranges, times = sweep.ranges.numpy()[known], sweep.times.numpy()[known]
    points = _moved(sweep.directions.numpy()[known].T * ranges, T.float().numpy(), part[known])
    when = _when(part, cells % grid.columns, grid.columns)
    return Returns(frame, points, times, ranges, cells[known], starts, ends, when, T[1, :3, 3].float().numpy())


def _moved(
    points: Floats,  # [3, n] metres, in the axes of a sensor that moves
    poses: Floats,  # [3, 4, 4] of the sensor, at the start, in the middle and at the end
    part: NDArray[np.float64],  # [n] 0 at the start, 1 at the end
) -> Floats:  # [n, 3] metres
    """Points of a sweep at their own times: a parabola through their places with the three poses. It is within a millimetre of the
    screw motion at 75 m and 30 degrees a second."""
    first, middle, last = poses[:, :3]
    terms = np.concatenate([middle, 0.5 * (last - first), 0.5 * (first + last) - middle])  # [9, 4]
    rows = terms[:, :3] @ points + terms[:, 3:]
    x = (2 * part - 1).astype(np.float32)
    moved = np.empty((len(x), 3), np.float32)
    for k in range(3):
        moved[:, k] = rows[k] + x * (rows[3 + k] + x * rows[6 + k])
    return moved


def _about(T: NDArray[np.float64], origin: NDArray[np.float64]) -> Floats:  # [3, 4]
    """A transform of points in the world, for points about an origin."""
    moved = T[:3, :3] @ origin + T[:3, 3]
    return np.concatenate([T[:3, :3], moved[:, None]], axis=1).astype(np.float32)


def _when(
    part: NDArray[np.float64],  # [R] of the sweep when a ray is sent, 0 to 1
    columns: NDArray[np.int64],  # [R]
    count: int,
) -> Floats:  # [A]
    """Mean part of the sweep when rays of a column are sent; a column without rays has that of the nearest."""
    number = np.bincount(columns, minlength=count)
    mean = np.bincount(columns, part, count) / np.maximum(number, 1)
    known = np.flatnonzero(number)
    if len(known) == 0:
        return np.full(count, 0.5, np.float32)
    near = np.abs(np.arange(count)[:, None] - known[None]).argmin(1) if len(known) < count else known
    return mean[known[near] if len(known) < count else near].astype(np.float32)


def local(
    returns: Returns,  # of the sweep that looks
    points: Floats,  # [n, 3] metres, about the origin
    columns: int,
) -> Floats:  # [n, 3] metres, in the lidar's axes as it faces each point
    """Points in the sensor's axes, blended between both ends of the sweep: rotations between them are small."""
    first = points @ returns.starts[:, :3].T + returns.starts[:, 3]
    last = points @ returns.ends[:, :3].T + returns.ends[:, 3]
    mid = 0.5 * (first + last)
    azimuth = np.arctan2(mid[:, 1], mid[:, 0])
    column = ((azimuth + np.float32(np.pi)) * np.float32(columns / TURN)).astype(np.int64) % columns
    return first + returns.when[column][:, None] * (last - first)
