# SPDX-License-Identifier: Apache-2.0
"""Calibration of KITTI-360. The rig is the Velodyne: x forward, y left, z up.

Frames of the files: cam k as it was before rectification; pose, the inertial unit, with z down; velo.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from nurec_lite.capture.files import numbers, read_text
from nurec_lite.capture.kitti.calibration import MAX_FOCAL, MAX_LEVER, MAX_PIXELS, is_rotation, read_calibration
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.camera import MOST_XI, Camera, beyond
from nurec_lite.geometry.mei import widest
from nurec_lite.geometry.se3 import invert

CAMERAS, FISHEYE = ("image_00", "image_01"), ("image_02", "image_03")
RESTORE = "copy the folder calibration of KITTI-360 again"
_SIZE, _FOCAL, _MEI = ("image_width", "image_height"), ("gamma1", "gamma2", "u0", "v0"), ("xi", "k1", "k2", "p1", "p2")
HALF = 0.5  # pixels: KITTI counts pixel centres from 0, here they lie at 0.5


@dataclass(frozen=True, eq=False)
class Calibration:
    """Mountings of all sensors."""

    folder: Path
    T_velo_cam0: Tensor  # [4, 4]
    T_pose_cam: dict[str, Tensor]  # [4, 4] of each camera
    perspective: dict[str, list[float]]  # entries of perspective.txt

    def rectified(self, name: str) -> Tensor:  # [4, 4] T_velo_rect
        """Returns the pose of a camera's rectified image on the rig."""
        T_velo_pose = self.T_velo_cam0 @ invert(self.T_pose_cam[CAMERAS[0]])
        return T_velo_pose @ self.T_pose_cam[name] @ invert(self._rotation(f"R_rect_{_number(name)}"))

    def camera(self, name: str) -> Camera:
        path, number = self.folder / "perspective.txt", _number(name)
        P = self._matrix(f"P_rect_{number}", 3, 4)
        width, height = self._matrix(f"S_rect_{number}", 1, 2)[0].tolist()
        (fx, _, cx), (_, fy, cy), _ = P[:, :3].tolist()
        if not all(1 <= n <= MAX_PIXELS and n.is_integer() for n in (width, height)):
            raise CaptureError(f"{path}: 'S_rect_{number}' is no width and height in pixels; {RESTORE}")
        if not (min(fx, fy) >= 1 and max(fx, fy) < MAX_FOCAL and 0 < cx < width and 0 < cy < height):
            raise CaptureError(f"{path}: 'P_rect_{number}' is no camera of {width:g}x{height:g} pixels; {RESTORE}")
        return Camera(name, int(width), int(height), fx, fy, cx + HALF, cy + HALF, T_rig_cam=self.rectified(name))

    def fisheye(self, name: str) -> Camera:
        """A camera of Mei's model with its mask: beyond the field of the lens nothing is seen."""
        path = self.folder / f"{name}.yaml"
        known = {key: row[0] for key, row in read_calibration(path, RESTORE).items() if len(row) == 1}
        lacks = [key for key in (*_SIZE, *_FOCAL, *_MEI) if key not in known]
        if lacks:
            raise CaptureError(f"{path} lacks '{lacks[0]}'; {RESTORE}")
        (width, height), (g1, g2, u0, v0) = ([known[key] for key in keys] for keys in (_SIZE, _FOCAL))
        if not all(1 <= n <= MAX_PIXELS and n.is_integer() for n in (width, height)):
            raise CaptureError(f"{path} has no width and height in pixels; {RESTORE}")
        xi = known["xi"]
        if not (
            0 <= xi <= MOST_XI and min(g1, g2) >= 1 and max(g1, g2) < MAX_FOCAL and 0 < u0 < width and 0 < v0 < height
        ):
            raise CaptureError(f"{path} is no camera of {width:g}x{height:g} pixels; {RESTORE}")
        T_velo_pose = self.T_velo_cam0 @ invert(self.T_pose_cam[CAMERAS[0]])
        camera = Camera(
            name, int(width), int(height), g1 / (1 + xi), g2 / (1 + xi), u0 + HALF, v0 + HALF,
            T_rig_cam=T_velo_pose @ self.T_pose_cam[name], distortion=tuple(known[key] for key in _MEI), lens="mei",
        )  # fmt: skip
        return replace(camera, mask=beyond(camera, widest(xi)))

    def _matrix(self, key: str, rows: int, columns: int) -> Tensor:
        return _matrix(self.folder / "perspective.txt", self.perspective.get(key, []), key, rows, columns)

    def _rotation(self, key: str) -> Tensor:  # [4, 4]
        T = torch.eye(4, dtype=torch.float64)
        T[:3, :3] = self._matrix(key, 3, 3)
        return checked_pose(T, self.folder / "perspective.txt", key)


def open_calibration(folder: Path) -> Calibration:
    velo, poses = folder / "calib_cam_to_velo.txt", folder / "calib_cam_to_pose.txt"
    try:
        row = numbers(read_text(velo, RESTORE).replace("\n", " "))
    except ValueError as error:
        raise CaptureError(f"{velo} must hold 12 numbers; {RESTORE}") from error
    known = read_calibration(poses, RESTORE)
    mounted = (*CAMERAS, *(name for name in FISHEYE if name in known))
    return Calibration(
        folder, _rigid(velo, row, "the transform"), {k: _rigid(poses, known.get(k, []), k) for k in mounted},
        read_calibration(folder / "perspective.txt", RESTORE),
    )  # fmt: skip


def checked_pose(T: Tensor, path: Path, key: str, farthest: float = MAX_LEVER) -> Tensor:  # [4, 4]
    if not is_rotation(T[:3, :3]) or not float(T[:3, 3].norm()) <= farthest:
        raise CaptureError(f"{path}: {key} is no rotation and translation; restore the file")
    return T


def _rigid(path: Path, row: list[float], key: str) -> Tensor:  # [4, 4]
    T = torch.eye(4, dtype=torch.float64)
    T[:3] = _matrix(path, row, key, 3, 4)
    return checked_pose(T, path, f"'{key}'")


def _matrix(path: Path, row: list[float], key: str, rows: int, columns: int) -> Tensor:
    if len(row) != rows * columns:
        raise CaptureError(f"{path} lacks '{key}' with {rows * columns} finite numbers; {RESTORE}")
    return torch.tensor(row, dtype=torch.float64).view(rows, columns)


def _number(name: str) -> str:
    return name.removeprefix("image_")
