# SPDX-License-Identifier: Apache-2.0
"""Calibration, time stamps and poses of a KITTI raw drive, as the files give them.

KITTI's frames: rig = oxts (x forward, y left, z up), velo = the lidar, rect = camera 0 after rectification.
"""

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.se3 import invert

EARTH_RADIUS = 6378137.0  # metres, as KITTI's development kit has it


def read_text(path: Path, remedy: str) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CaptureError(f"{path} cannot be read; {remedy}") from error


def read_calibration(
    path: Path,
) -> dict[str, list[float]]:
    """`key: numbers` a line; lines that hold no numbers (calib_time) are left out."""
    entries = {}
    text = read_text(path, "put the calibration files of the drive's date beside the drive's folder")
    for line in text.splitlines():
        key, _, values = line.partition(":")
        try:
            entries[key.strip()] = [float(value) for value in values.split()]
        except ValueError:
            continue
    return entries


def matrix_of(
    path: Path,
    entries: dict[str, list[float]],
    key: str,
    rows: int,
    columns: int,
) -> Tensor:  # [rows, columns] float64
    values = entries.get(key)
    if values is None or len(values) != rows * columns or not np.isfinite(values).all():
        raise CaptureError(
            f"{path} lacks '{key}' with {rows * columns} numbers; use the calibration of the drive's date"
        )
    return torch.tensor(values, dtype=torch.float64).view(rows, columns)


def read_rigid(
    path: Path,
) -> Tensor:  # [4, 4] float64 of a file with R and T
    entries = read_calibration(path)
    T = torch.eye(4, dtype=torch.float64)
    T[:3, :3] = matrix_of(path, entries, "R", 3, 3)
    T[:3, 3:] = matrix_of(path, entries, "T", 3, 1)
    return T


def read_camera(
    path: Path,  # calib_cam_to_cam.txt
    name: str,  # image_0X
    T_rig_rect: Tensor,  # [4, 4]
) -> Camera:
    """Camera X of the rectified images, from P_rect_0X = K [I | t]: t is camera 0's origin in camera X.

    KITTI counts pixel centres from 0, ours lie at 0.5, so the principal point moves by a half.
    """
    number = name.removeprefix("image_")
    entries = read_calibration(path)
    P = matrix_of(path, entries, f"P_rect_{number}", 3, 4)
    width, height = matrix_of(path, entries, f"S_rect_{number}", 1, 2)[0].tolist()
    T_rect_cam = torch.eye(4, dtype=torch.float64)
    T_rect_cam[:3, 3] = -torch.linalg.solve(P[:, :3], P[:, 3])
    return Camera(
        name=name, width=round(width), height=round(height),
        fx=P[0, 0].item(), fy=P[1, 1].item(), cx=P[0, 2].item() + 0.5, cy=P[1, 2].item() + 0.5,
        T_rig_cam=T_rig_rect @ T_rect_cam,
    )  # fmt: skip


def read_rig(
    folder: Path,  # of the date
) -> tuple[Tensor, Tensor]:  # T_rig_lidar [4, 4], T_rig_rect [4, 4]
    T_velo_rig = read_rigid(folder / "calib_imu_to_velo.txt")
    T_cam_velo = read_rigid(folder / "calib_velo_to_cam.txt")
    path = folder / "calib_cam_to_cam.txt"
    R_rect = torch.eye(4, dtype=torch.float64)
    R_rect[:3, :3] = matrix_of(path, read_calibration(path), "R_rect_00", 3, 3)
    return invert(T_velo_rig), invert(R_rect @ T_cam_velo @ T_velo_rig)


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
