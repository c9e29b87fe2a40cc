# SPDX-License-Identifier: Apache-2.0
"""Calibration of a KITTI raw drive.

KITTI's frames: rig = oxts (x forward, y left, z up), velo = the lidar, rect = camera 0 after rectification.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from nurec_lite.capture.files import numbers, read_lines, short
from nurec_lite.capture.types import CaptureError, Mounting
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.se3 import invert

IMU_TO_VELO, VELO_TO_CAM = "calib_imu_to_velo.txt", "calib_velo_to_cam.txt"
RESTORE = "use the calibration of the drive's date"
PUT = "put the calibration files of the drive's date next to the drive's folder"
MAX_LEVER = 100.0  # metres between two sensors of a vehicle
MAX_PIXELS = 8192  # width and height of an image
MAX_FOCAL = 1e6  # pixels


def read_calibration(
    path: Path,
    remedy: str = PUT,  # for a file that is missing
) -> dict[str, list[float]]:
    """`key: numbers` a line; lines that hold no numbers (calib_time) are left out."""
    entries: dict[str, list[float]] = {}
    for line in read_lines(path, remedy):
        key, _, values = line.partition(":")
        try:
            row = numbers(values)
        except ValueError:
            continue
        if entries.setdefault(key.strip(), row) is not row:
            raise CaptureError(f"{path} holds '{short(key)}' twice; {RESTORE}")
    return entries


def matrix_of(
    path: Path,
    entries: dict[str, list[float]],
    key: str,
    rows: int,
    columns: int,
) -> Tensor:  # [rows, columns] float64
    values = entries.get(key)
    if values is None or len(values) != rows * columns:
        raise CaptureError(f"{path} lacks '{key}' with {rows * columns} finite numbers; {RESTORE}")
    return torch.tensor(values, dtype=torch.float64).view(rows, columns)


def is_rotation(
    R: Tensor,  # [..., 3, 3] float64
) -> bool:
    """Whether R are rotations, up to rounding to four digits, and no reflections."""
    eye = torch.eye(3, dtype=torch.float64).expand_as(R)
    return torch.allclose(R @ R.mT, eye, atol=1e-3) and bool((torch.linalg.det(R) > 0).all())


def read_rotation(
    path: Path,
    entries: dict[str, list[float]],
    key: str,
) -> Tensor:  # [3, 3] float64
    R = matrix_of(path, entries, key, 3, 3)
    if not is_rotation(R):
        raise CaptureError(f"{path}: '{key}' is not a rotation; {RESTORE}")
    return R


def check_lever(
    path: Path,
    key: str,
    t: Tensor,  # [3] metres
) -> Tensor:  # [3]
    if not t.norm() <= MAX_LEVER:
        raise CaptureError(f"{path}: '{key}' puts a sensor {t.norm():.3g} m away from the others; {RESTORE}")
    return t


def read_rigid(
    path: Path,
) -> Tensor:  # [4, 4] float64 of a file with R and T
    entries = read_calibration(path)
    T = torch.eye(4, dtype=torch.float64)
    T[:3, :3] = read_rotation(path, entries, "R")
    T[:3, 3] = check_lever(path, "T", matrix_of(path, entries, "T", 3, 1)[:, 0])
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
    P = _projection(path, entries, f"P_rect_{number}")
    width, height = _image_size(path, entries, f"S_rect_{number}")
    T_rect_cam = torch.eye(4, dtype=torch.float64)
    T_rect_cam[:3, 3] = check_lever(path, f"P_rect_{number}", -torch.linalg.solve(P[:, :3], P[:, 3]))
    return Camera(
        name=name, width=width, height=height,
        fx=P[0, 0].item(), fy=P[1, 1].item(), cx=P[0, 2].item() + 0.5, cy=P[1, 2].item() + 0.5,
        T_rig_cam=T_rig_rect @ T_rect_cam,
    )  # fmt: skip


def _projection(
    path: Path,
    entries: dict[str, list[float]],
    key: str,
) -> Tensor:  # [3, 4] float64
    P = matrix_of(path, entries, key, 3, 4)
    (fx, _, cx), (_, fy, cy), _ = P[:, :3].tolist()
    plain = torch.equal(P[:, :3], torch.tensor([[fx, 0, cx], [0, fy, cy], [0, 0, 1]], dtype=torch.float64))
    if not plain or min(fx, fy) < 1 or max(fx, fy, abs(cx), abs(cy)) > MAX_FOCAL:
        raise CaptureError(
            f"{path}: '{key}' is not fx 0 cx . 0 fy cy . 0 0 1 . with focal lengths of 1 to {MAX_FOCAL:.0f} pixels; {RESTORE}"
        )
    return P


def _image_size(path: Path, entries: dict[str, list[float]], key: str) -> tuple[int, int]:  # width, height
    width, height = matrix_of(path, entries, key, 1, 2)[0].tolist()
    if not all(1 <= n <= MAX_PIXELS and n.is_integer() for n in (width, height)):
        raise CaptureError(f"{path}: '{key}' is not a width and a height of 1 to {MAX_PIXELS} pixels; {RESTORE}")
    return int(width), int(height)


def read_rig(
    folder: Path,  # of the date
) -> tuple[Tensor, Tensor]:  # T_rig_lidar [4, 4], T_rig_rect [4, 4]
    T_velo_rig, T_cam_velo = read_rigid(folder / IMU_TO_VELO), read_rigid(folder / VELO_TO_CAM)
    return invert(T_velo_rig), invert(_rectification(folder) @ T_cam_velo @ T_velo_rig)


def _rectification(folder: Path) -> Tensor:  # T_rect_cam0 [4, 4]
    path = folder / "calib_cam_to_cam.txt"
    R_rect = torch.eye(4, dtype=torch.float64)
    R_rect[:3, :3] = read_rotation(path, read_calibration(path), "R_rect_00")
    return R_rect


def other_mountings(
    folder: Path,  # of the date
    T_rig_rect: Tensor,  # [4, 4]
    cameras: Sequence[Camera],
) -> tuple[Mounting, ...]:
    """Mountings of the cameras if values that are easily exchanged were exchanged."""
    T_velo_rig, T_cam_velo = read_rigid(folder / IMU_TO_VELO), read_rigid(folder / VELO_TO_CAM)
    right = {
        f"{VELO_TO_CAM} holds the inverse of the right transform": (T_cam_velo, f"invert R and T in {VELO_TO_CAM}"),
        f"{VELO_TO_CAM} holds the transform of {IMU_TO_VELO}, and the reverse": (
            invert(T_velo_rig), f"exchange the contents of {VELO_TO_CAM} and {IMU_TO_VELO}",
        ),
    }  # fmt: skip
    on_rect = {camera.name: invert(T_rig_rect) @ camera.T_rig_cam for camera in cameras}
    T_cam_rect = invert(_rectification(folder))
    return tuple(
        Mounting(meaning, remedy, {name: T_velo_cam @ T_cam_rect @ T for name, T in on_rect.items()})
        for meaning, (T_velo_cam, remedy) in right.items()
    )
