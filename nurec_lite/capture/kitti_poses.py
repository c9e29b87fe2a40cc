# SPDX-License-Identifier: Apache-2.0
"""Time stamps and poses of a KITTI raw drive.

The capture's clock starts at the first forward time of the drive's lidar, and its world is the rig's frame at the first pose,
whichever frames are read.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.kitti_calibration import read_text
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.se3 import interpolate_trajectory, invert

EARTH_RADIUS = 6378137.0  # metres, as KITTI's development kit has it


@dataclass(frozen=True)
class Clock:
    """Times of all sweeps of the drive in seconds of the capture, NaN where there is none; row i belongs to frame i."""

    forward: np.ndarray  # [n] when the lidar faces forward
    period: np.ndarray  # [n] duration of a turn
    origin: np.datetime64  # zero of the capture's clock

    def seconds(self, path: Path, numbers: list[int]) -> Tensor:  # [len(numbers)] of a time stamp file
        """Times of these frames in the time stamp file of another sensor."""
        return _rows(path, (read_times(path) - self.origin) / np.timedelta64(1, "s"), numbers)


@dataclass(frozen=True)
class Trajectory:
    times: Tensor  # [n] seconds, increasing
    poses: Tensor  # [n, 4, 4] T_world_rig

    def at(self, times: Tensor) -> Tensor:  # [...] seconds -> [..., 4, 4]
        return interpolate_trajectory(self.times, self.poses, times)


def read_times(
    path: Path,
) -> np.ndarray:  # [n] datetime64[ns]; line i belongs to frame i, NaT where the line is blank
    lines = [line.strip() for line in read_text(path, "restore the drive's time stamps").splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    try:
        return np.array(lines, dtype="datetime64[ns]")
    except ValueError as error:
        raise CaptureError(f"{path} holds a line that is no time stamp ({error}); restore the file") from error


def read_oxts(
    folder: Path,
) -> tuple[list[int], Tensor]:  # frame numbers, T_map_rig [n, 4, 4]: east, north, up on a Mercator map
    paths = sorted(path for path in folder.glob("*.txt") if path.stem.isdigit())
    rows = [_read_oxts_row(path) for path in paths]
    if not rows:
        raise CaptureError(f"{folder} holds no poses; restore the folder, or name a poses_file")
    values = torch.tensor(rows, dtype=torch.float64)
    scale = math.cos(math.radians(rows[0][0])) * EARTH_RADIUS
    latitude, longitude = torch.deg2rad(values[:, 0]), torch.deg2rad(values[:, 1])
    position = [scale * longitude, scale * torch.log(torch.tan(math.pi / 4 + latitude / 2)), values[:, 2]]
    poses = torch.eye(4, dtype=torch.float64).repeat(len(rows), 1, 1)
    poses[:, :3, :3] = _euler_matrix(*values[:, 3:6].unbind(1))
    poses[:, :3, 3] = torch.stack(position, dim=1)
    return [int(path.stem) for path in paths], poses


def _read_oxts_row(
    path: Path,
) -> list[float]:  # latitude, longitude in degrees, altitude in metres, roll, pitch, yaw in radians
    try:
        row = [float(field) for field in read_text(path, "restore the file").split()[:6]]
    except ValueError:
        row = []
    if len(row) < 6 or not np.isfinite(row).all():
        raise CaptureError(f"{path} does not begin with 6 finite numbers; restore the file, or name a poses_file")
    return row


def _euler_matrix(roll: Tensor, pitch: Tensor, yaw: Tensor) -> Tensor:  # [n, 3, 3] = Rz(yaw) Ry(pitch) Rx(roll)
    (sr, sp, sy), (cr, cp, cy) = (tuple(map(f, (roll, pitch, yaw))) for f in (torch.sin, torch.cos))
    rows = [
        cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr,
        sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr,
        -sp, cp * sr, cp * cr,
    ]  # fmt: skip
    return torch.stack(rows, dim=-1).unflatten(-1, (3, 3))


def read_poses_file(
    path: Path,
    n_needed: int,
) -> Tensor:  # [n, 4, 4] T_world_velo, row i for frame i
    try:
        rows = [
            [float(field) for field in line.split()]
            for line in read_text(path, "name an existing poses_file").splitlines()
        ]
    except ValueError as error:
        raise CaptureError(
            f"{path} holds something that is no number ({error}); each row must be a 3x4 matrix"
        ) from error
    rows = [row for row in rows if row]
    if len(rows) < n_needed:
        raise CaptureError(f"{path} has {len(rows)} rows, but {n_needed} are needed; write one row for each frame")
    if any(len(row) != 12 or not np.isfinite(row).all() for row in rows):
        raise CaptureError(
            f"{path} holds a row that is not 12 finite numbers; each row must be a 3x4 matrix T_world_velo"
        )
    poses = torch.eye(4, dtype=torch.float64).repeat(len(rows), 1, 1)
    poses[:, :3] = torch.tensor(rows, dtype=torch.float64).view(-1, 3, 4)
    if not torch.allclose(poses[:, :3, :3] @ poses[:, :3, :3].mT, torch.eye(3, dtype=torch.float64), atol=1e-3):
        raise CaptureError(f"{path} holds a matrix that is not a rotation; each row must be a rigid T_world_velo")
    return poses


def read_clock(
    folder: Path,  # velodyne_points
) -> Clock:
    forward, start, end = (read_times(folder / f"timestamps{part}.txt") for part in ("", "_start", "_end"))
    n = min(len(forward), len(start), len(end))
    known = forward[~np.isnat(forward)]
    if not len(known):
        raise CaptureError(f"{folder}/timestamps.txt is empty; restore the drive's time stamps")
    second = np.timedelta64(1, "s")
    return Clock((forward[:n] - known[0]) / second, (end[:n] - start[:n]) / second, known[0])


def sweep_times(
    clock: Clock,
    path: Path,  # velodyne_points/timestamps.txt, for messages
    numbers: list[int],
) -> tuple[Tensor, Tensor]:  # forward time [n], period [n] in seconds
    return _rows(path, clock.forward, numbers), _rows(path, clock.period, numbers)


def _rows(path: Path, times: np.ndarray, numbers: list[int]) -> Tensor:
    if max(numbers) >= len(times) or not np.isfinite(times[numbers]).all():
        raise CaptureError(
            f"{path} has no time stamp for some of the frames up to {max(numbers)}; restore it, or read fewer frames"
        )
    return torch.from_numpy(times[numbers])


def read_trajectory(
    folder: Path,  # of the drive
    clock: Clock,
    poses_file: Path | None,
    T_rig_lidar: Tensor,  # [4, 4]
    n_frames: int,  # how many rows poses_file must have
) -> Trajectory:
    if poses_file is None:
        numbers, poses = read_oxts(folder / "oxts" / "data")
        times = clock.seconds(folder / "oxts" / "timestamps.txt", numbers)
    else:
        lidar_poses = read_poses_file(Path(poses_file), n_frames)[: len(clock.forward)]
        known = torch.from_numpy(np.isfinite(clock.forward[: len(lidar_poses)]))
        times = torch.from_numpy(clock.forward[: len(lidar_poses)])[known]
        poses = lidar_poses[known] @ invert(T_rig_lidar)
    if not (times.diff() > 0).all():
        raise CaptureError(f"{folder}: the time stamps of the poses do not increase; restore the drive's time stamps")
    return Trajectory(times, invert(poses[0]) @ poses)
