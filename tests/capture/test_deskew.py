# SPDX-License-Identifier: Apache-2.0
"""Rays and points go through the world, each at its own time."""

import math

import pytest
import torch
from tiny_capture import tiny_capture

from nurec_lite.capture.deskew import poses_at, project_world_points, rig_motion, rig_motions, world_points, world_rays
from nurec_lite.capture.types import Frame, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import SHUTTERS, Camera, project_points, shutter_fraction
from nurec_lite.geometry.lidar import Lidar, Sweep
from nurec_lite.geometry.se3 import invert, pose_matrix, rotvec_to_quat, transform

T_RIG_LIDAR = pose_matrix(
    rotvec_to_quat(torch.tensor([0.1, 0.0, 0.5]).double()), torch.tensor([1.0, 0.2, 1.5]).double()
)
T_RIG_CAM = torch.tensor([[0, 0, 1, 1.0], [-1, 0, 0, 0.2], [0, -1, 0, 1.2], [0, 0, 0, 1]]).double()


def moving(kind: type[Frame], sensor: str, start: float, end: float) -> Frame:
    """The rig drives 2 m and turns by 0.1 rad during the frame."""
    T0 = pose_matrix(rotvec_to_quat(torch.tensor([0.0, 0.02, 0.3]).double()), torch.tensor([5.0, 1.0, 0.0]).double())
    T1 = pose_matrix(rotvec_to_quat(torch.tensor([0.0, 0.02, 0.4]).double()), torch.tensor([6.9, 1.6, 0.0]).double())
    return kind(sensor, 0, start, end, T0, T1, lambda: None)  # type: ignore[call-arg]


def test_points_come_back_where_they_are() -> None:
    frame = moving(SweepFrame, "lidar", 1.0, 1.1)
    lidar = Lidar("lidar", T_RIG_LIDAR, torch.zeros(1))
    points = torch.randn(50, 3, dtype=torch.float64) * 20
    fraction = torch.rand(50, dtype=torch.float64)
    T_lidar_world = invert(poses_at(frame, fraction) @ T_RIG_LIDAR)
    seen = torch.stack([transform(T, p[None])[0] for T, p in zip(T_lidar_world, points, strict=True)])
    ranges = seen.norm(dim=1)
    sweep = Sweep(
        seen / ranges[:, None],
        ranges,
        torch.zeros(50),
        1 + 0.1 * fraction,
        torch.zeros(50).long(),
        torch.ones(50).bool(),
    )
    torch.testing.assert_close(world_points(frame, sweep, lidar), points, atol=1e-6, rtol=0)
    origins, directions = world_rays(frame, sweep, lidar)
    torch.testing.assert_close(origins, invert(T_lidar_world)[:, :3, 3])
    torch.testing.assert_close(directions.norm(dim=1), torch.ones(50).double())


@pytest.mark.parametrize("shutter", SHUTTERS)
def test_rolling_shutter_sees_each_point_when_its_row_is_read(shutter: str) -> None:
    camera = Camera("cam", 64, 48, 40.0, 40.0, 32.0, 24.0, T_RIG_CAM, shutter=shutter)
    frame = moving(ImageFrame, "cam", 2.0, 2.03)
    forward = poses_at(frame, torch.tensor([0.5]).double())[0] @ T_RIG_CAM
    points = transform(forward, torch.rand(40, 3).double() * torch.tensor([12, 9, 10]) + torch.tensor([-6, -4.5, 12]))
    pixels, depth = project_world_points(camera, frame, points)
    fraction = shutter_fraction(camera, pixels)
    T_cam_world = invert(poses_at(frame, fraction) @ T_RIG_CAM)
    for i in range(40):
        again, z = project_points(camera, transform(T_cam_world[i], points[i : i + 1]))
        torch.testing.assert_close(again[0], pixels[i], atol=1e-3, rtol=0)
        assert z[0] == pytest.approx(depth[i].item(), abs=1e-3)


def test_motion_goes_on_outside_the_frame() -> None:
    frame = moving(SweepFrame, "lidar", 1.0, 1.1)
    T = poses_at(frame, torch.tensor([0.0, 1.0, 2.0]).double())
    torch.testing.assert_close(T[2, :3, 3] - T[1, :3, 3], T[1, :3, 3] - T[0, :3, 3])
    assert math.isclose(float(T[0, 0, 3]), 5.0)
    torch.testing.assert_close(poses_at(frame, torch.tensor(1.0)), T[1])  # one fraction, one pose


@pytest.mark.parametrize("count", [0, 1, 3])
def test_motions_of_several_frames_are_those_of_each(count: int) -> None:
    frames = list(tiny_capture().sweeps[:count])
    found = rig_motions(frames)
    assert len(found) == count
    for frame, motion in zip(frames, found, strict=True):
        for part, alone in zip(motion, rig_motion([frame]), strict=True):
            torch.testing.assert_close(part, alone, rtol=0, atol=1e-12)
