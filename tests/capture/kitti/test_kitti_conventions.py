# SPDX-License-Identifier: Apache-2.0
"""data.poses.convention reads poses however an odometry program writes them, and the check names the key."""

from pathlib import Path

import numpy as np
import pytest
import torch
from kitti_drive import write_drive

from nurec_lite.bounds import POSE_CONVENTIONS
from nurec_lite.capture.checks.poses import check_poses
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level
from nurec_lite.capture.kitti.calibration import read_rig
from nurec_lite.capture.kitti.conventions import rig_poses
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.se3 import invert, pose_matrix, rotvec_to_quat


def written(poses: torch.Tensor, convention: str, T_rig_lidar: torch.Tensor, T_rig_rect: torch.Tensor) -> torch.Tensor:
    """Rows [n, 4, 4] of a file that holds these T_world_lidar, by the definition of the convention."""
    sensor, _, way = convention.partition("_")
    T_lidar_sensor = {
        "lidar": torch.eye(4).double(),
        "camera": invert(T_rig_lidar) @ T_rig_rect,
        "rig": invert(T_rig_lidar),
    }
    rows = invert(T_lidar_sensor[sensor]) @ poses @ T_lidar_sensor[sensor]
    if way == "inverse":
        return invert(rows)
    if way == "relative":
        return torch.cat([invert(rows[:-1]) @ rows[1:], torch.eye(4).double()[None]])
    return rows


def save(rows: torch.Tensor, path: Path) -> Path:
    np.savetxt(path, rows[:, :3].flatten(1).numpy())
    return path


@pytest.mark.parametrize("convention", POSE_CONVENTIONS)
def test_all_conventions_are_read_as_the_same_motion(convention: str) -> None:
    generator = torch.Generator().manual_seed(0)
    steps = 0.3 * torch.randn(6, 6, generator=generator, dtype=torch.float64)
    poses = [torch.eye(4, dtype=torch.float64)]
    for step in pose_matrix(rotvec_to_quat(steps[:, :3]), steps[:, 3:]):
        poses.append(poses[-1] @ step)
    mountings = pose_matrix(
        rotvec_to_quat(torch.randn(2, 3, generator=generator).double()), torch.randn(2, 3, generator=generator).double()
    )
    expected = torch.stack(poses) @ invert(mountings[0])
    found = rig_poses(written(torch.stack(poses), convention, *mountings), convention, *mountings)
    torch.testing.assert_close(invert(found[0]) @ found, invert(expected[0]) @ expected)


def test_an_unknown_convention_is_refused(tmp_path: Path) -> None:
    root = write_drive(tmp_path)
    path = save(torch.eye(4).double().repeat(3, 1, 1), tmp_path / "poses.txt")
    with pytest.raises(CaptureError, match="must be one of lidar, lidar_inverse"):
        read_kitti_raw(root, poses_file=path, poses_convention="imu")


@pytest.mark.slow
@pytest.mark.parametrize(
    "convention", ["lidar_inverse", "lidar_relative", "camera", "camera_inverse", "camera_relative"]
)
def test_the_check_names_the_key_that_makes_a_real_drive_right(
    convention: str, kitti_root: Path, tmp_path: Path
) -> None:
    rows = torch.from_numpy(np.loadtxt(kitti_root / "extra/poses_velo.txt")).view(-1, 3, 4)
    poses = torch.cat([rows, torch.tensor([0.0, 0, 0, 1]).double().expand(len(rows), 1, 4)], dim=1)
    path = save(written(poses, convention, *read_rig(kitti_root / "2011_09_26")), tmp_path / "poses.txt")
    (found,) = check_poses(Sample(read_kitti_raw(kitti_root, poses_file=path)))
    assert found.level is Level.CERTAIN
    named = [c for c in POSE_CONVENTIONS if found.text.endswith(f"; give data.poses.convention={c}.")]
    assert len(named) == 1 and named[0] in (
        convention,
        convention.replace("lidar", "rig"),
    )  # straight on both are alike
    right = read_kitti_raw(kitti_root, poses_file=path, poses_convention=convention)
    best = read_kitti_raw(kitti_root, poses_file=kitti_root / "extra/poses_velo.txt")
    torch.testing.assert_close(right.sweeps[40].T_world_rig_start, best.sweeps[40].T_world_rig_start, rtol=0, atol=1e-3)
