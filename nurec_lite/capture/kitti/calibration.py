# SPDX-License-Identifier: Apache-2.0
"""Calibration of a KITTI raw drive.

KITTI's frames: rig = oxts (x forward, y left, z up), velo = the lidar, rect = camera 0 after rectification.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import torch
from torch import Tensor

from nurec_lite.capture.files import numbers, read_lines, short
from nurec_lite.capture.types import CaptureError, Mounting
from nurec_lite.capture.units import OF_A_METRE
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.se3 import invert

IMU_TO_VELO, VELO_TO_CAM, CAM_TO_CAM = "calib_imu_to_velo.txt", "calib_velo_to_cam.txt", "calib_cam_to_cam.txt"
RESTORE = "use the calibration of the drive's date"
PUT = "put the calibration files of the drive's date next to the drive's folder"
FIRST = "image_00"  # all others are placed on it
REACH = 10.0  # metres: a place farther away may be in another unit
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
    path = folder / CAM_TO_CAM
    R_rect = torch.eye(4, dtype=torch.float64)
    R_rect[:3, :3] = read_rotation(path, read_calibration(path), "R_rect_00")
    return R_rect


def other_mountings(
    folder: Path,  # of the date
    T_rig_rect: Tensor,  # [4, 4]
    cameras: Sequence[Camera],
) -> tuple[Mounting, ...]:
    """Mountings of the cameras if values that are easily exchanged were exchanged."""
    on_rect = {camera.name: invert(T_rig_rect) @ camera.T_rig_cam for camera in cameras}
    T_cam_velo, T_rect_cam = read_rigid(folder / VELO_TO_CAM), _rectification(folder)
    T_cam_rect, T_velo_cam = invert(T_rect_cam), invert(T_cam_velo)
    return (
        *(
            Mounting(meaning, remedy, {name: T @ T_cam_rect @ own for name, own in on_rect.items()}, of_labels=True, **kinds)
            for meaning, remedy, T, kinds in _of_velo_to_cam(T_cam_velo, read_rigid(folder / IMU_TO_VELO))
        ),
        Mounting(
            f"R_rect_00 of {CAM_TO_CAM} is transposed", f"transpose R_rect_00 in {CAM_TO_CAM}",
            {name: T_velo_cam @ T_rect_cam @ own for name, own in on_rect.items()}, of_labels=True,
        ),
        *_of_projections(T_velo_cam @ T_cam_rect, on_rect),
    )  # fmt: skip


def _of_velo_to_cam(
    T_cam_velo: Tensor,  # [4, 4]
    T_velo_rig: Tensor,  # [4, 4]
) -> Iterator[tuple[str, str, Tensor, dict[str, bool]]]:  # meaning, remedy, T_velo_cam [4, 4], kinds of Mounting
    R, T = T_cam_velo[:3, :3], T_cam_velo[:3, 3]
    values = f"R and T in {VELO_TO_CAM}"
    yield f"{VELO_TO_CAM} holds the inverse of the right transform", f"invert {values}", T_cam_velo, {}
    exchanged = f"exchange the contents of {VELO_TO_CAM} and {IMU_TO_VELO}"
    meaning = f"{VELO_TO_CAM} holds the transform of {IMU_TO_VELO}, and the reverse"
    yield meaning, exchanged, invert(T_velo_rig), {"of_lidar": True}
    yield f"R of {VELO_TO_CAM} is transposed", f"transpose R in {VELO_TO_CAM}", invert(_rigid(R.T, T)), {}
    if not bool(T.any()):
        meaning = f"T of {VELO_TO_CAM}, which is (0, 0, 0), is missing"
        yield meaning, f"give T in {VELO_TO_CAM}", invert(T_cam_velo), {"missing": True}
        return
    yield f"T of {VELO_TO_CAM} has the opposite sign", f"turn the sign of T in {VELO_TO_CAM}", invert(_rigid(R, -T)), {}
    for unit, factor in OF_A_METRE.items() if float(T.norm()) > REACH else ():
        remedy = f"divide T in {VELO_TO_CAM} by {factor:g}"
        yield f"T of {VELO_TO_CAM} is in {unit}", remedy, invert(_rigid(R, T / factor)), {}


def _of_projections(
    T_velo_rect: Tensor,  # [4, 4]
    on_rect: Mapping[str, Tensor],  # T_rect_cam [4, 4] of each camera
) -> Iterator[Mounting]:
    for name, T in on_rect.items():
        key = f"P_rect_{name.removeprefix('image_')}"
        column = f"the last column of {key} in {CAM_TO_CAM}"
        if bool(T[:3, 3].any()):
            opposite = {name: T_velo_rect @ invert(T)}  # T only shifts
            yield Mounting(f"{column} has the opposite sign", f"turn the sign of {column}", opposite)
        elif name != FIRST:
            yield Mounting(f"{column}, which is 0, is missing", f"give {column}", {name: T_velo_rect @ T}, missing=True)
    for a, b in combinations(on_rect, 2):
        keys = " and ".join(f"P_rect_{name.removeprefix('image_')}" for name in (a, b))
        exchanged = {name: T_velo_rect @ on_rect[other] for name, other in ((a, b), (b, a))}
        yield Mounting(f"{keys} of {CAM_TO_CAM} are exchanged", f"exchange {keys}, or the cameras' images", exchanged)


def _rigid(R: Tensor, T: Tensor) -> Tensor:  # [3, 3], [3] -> [4, 4]
    placed = torch.eye(4, dtype=torch.float64)
    placed[:3, :3], placed[:3, 3] = R, T
    return placed
