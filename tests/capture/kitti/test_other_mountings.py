# SPDX-License-Identifier: Apache-2.0
"""Other readings of KITTI's calibration: applied to a wrong file, each gives the mounting of the right one."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from kitti_drive import DRIVE, write_drive
from torch import Tensor

from nurec_lite.capture.kitti.calibration import read_calibration
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.types import Capture, Mounting
from nurec_lite.geometry.se3 import invert

VELO, CAM, IMU = "calib_velo_to_cam.txt", "calib_cam_to_cam.txt", "calib_imu_to_velo.txt"
TURNED = [1.0, 0, 0, 0, 0.8, -0.6, 0, 0.6, 0.8]


def rewritten(path: Path, **changes: Callable[[Tensor], Tensor]) -> None:
    entries = {key: torch.tensor(row, dtype=torch.float64) for key, row in read_calibration(path).items()}
    entries |= {key: change(entries[key]) for key, change in changes.items()}
    path.write_text("".join(f"{key}: {' '.join(map(str, row.flatten().tolist()))}\n" for key, row in entries.items()))


def transposed(R: Tensor) -> Tensor:
    return R.view(3, 3).T


def opposite_column(P: Tensor) -> Tensor:
    return P.view(3, 4) * torch.tensor([1.0, 1, 1, -1]).double()


def inverted(date: Path) -> None:
    R, T = (torch.tensor(read_calibration(date / VELO)[key], dtype=torch.float64) for key in "RT")
    rewritten(date / VELO, R=transposed, T=lambda _: -R.view(3, 3).T @ T)


def exchanged(date: Path) -> None:
    texts = (date / IMU).read_text(), (date / VELO).read_text()
    (date / VELO).write_text(texts[0])
    (date / IMU).write_text(texts[1])


def projections(date: Path) -> None:
    entries = {key: torch.tensor(row, dtype=torch.float64) for key, row in read_calibration(date / CAM).items()}
    rewritten(date / CAM, P_rect_02=lambda _: entries["P_rect_03"], P_rect_03=lambda _: entries["P_rect_02"])


WRONG: dict[str, tuple[Callable[[Path], None], str]] = {
    "inverse": (inverted, f"{VELO} holds the inverse of the right transform"),
    "exchanged": (exchanged, f"{VELO} holds the transform of {IMU}, and the reverse"),
    "R": (lambda date: rewritten(date / VELO, R=transposed), f"R of {VELO} is transposed"),
    "sign": (lambda date: rewritten(date / VELO, T=torch.neg), f"T of {VELO} has the opposite sign"),
    "unit": (lambda date: rewritten(date / VELO, T=lambda T: 100 * T), f"T of {VELO} is in centimetres"),
    "R_rect": (lambda date: rewritten(date / CAM, R_rect_00=transposed), f"R_rect_00 of {CAM} is transposed"),
    "P": (
        lambda date: rewritten(date / CAM, P_rect_03=opposite_column),
        f"the last column of P_rect_03 in {CAM} has the opposite sign",
    ),
    "both P": (projections, f"P_rect_02 and P_rect_03 of {CAM} are exchanged"),
}


def turned_drive(root: Path) -> Path:
    """A drive with rotations that are not their own inverses, and its date's folder."""
    date = (write_drive(root) / DRIVE).parent
    rewritten(date / CAM, R_rect_00=lambda _: torch.tensor(TURNED, dtype=torch.float64))
    return date


def on_lidar(capture: Capture) -> dict[str, Tensor]:
    return {camera.name: invert(capture.lidars[0].T_rig_lidar) @ camera.T_rig_cam for camera in capture.cameras}


def named(capture: Capture, meaning: str) -> Mounting:
    (mounting,) = (m for m in capture.mountings if m.meaning == meaning)
    return mounting


@pytest.mark.parametrize("case", WRONG)
def test_a_reading_gives_the_mounting_of_the_right_files(case: str, tmp_path: Path) -> None:
    date, (spoil, meaning) = turned_drive(tmp_path), WRONG[case]
    right = on_lidar(read_kitti_raw(tmp_path))
    spoil(date)
    for name, T in named(read_kitti_raw(tmp_path), meaning).T_lidar_cam.items():
        torch.testing.assert_close(T, right[name], rtol=0, atol=1e-9)


def test_zeros_are_places_that_are_missing(tmp_path: Path) -> None:
    date = turned_drive(tmp_path)
    assert not any(m.missing for m in read_kitti_raw(tmp_path).mountings)
    rewritten(date / VELO, T=torch.zeros_like)
    rewritten(date / CAM, P_rect_03=lambda P: P.view(3, 4) * torch.tensor([1.0, 1, 1, 0]).double())
    missing = [m for m in read_kitti_raw(tmp_path).mountings if m.missing]
    assert [m.meaning for m in missing] == [
        f"T of {VELO}, which is (0, 0, 0), is missing",
        f"the last column of P_rect_03 in {CAM}, which is 0, is missing",
    ]
