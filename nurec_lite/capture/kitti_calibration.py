# SPDX-License-Identifier: Apache-2.0
"""Calibration of a KITTI raw drive.

KITTI's frames: rig = oxts (x forward, y left, z up), velo = the lidar, rect = camera 0 after rectification.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.se3 import invert


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
