# SPDX-License-Identifier: Apache-2.0
"""Rays and points of a sweep in the world, each at its own time, and world points in an image."""

from torch import Tensor

from nurec_lite.capture.types import Frame, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera, project_points, shutter_fraction
from nurec_lite.geometry.lidar import Lidar, Sweep
from nurec_lite.geometry.se3 import interpolate_between, invert, pose_matrix, quat_rotate

_SHUTTER_ROUNDS = 6  # each round shrinks the error by the ratio of readout speed to pixel speed


def poses_at(
    frame: Frame,
    fraction: Tensor,  # [n] 0 at the frame's start, 1 at its end
) -> Tensor:  # [n, 4, 4] T_world_rig, float64
    return pose_matrix(*interpolate_between(frame.T_world_rig_start, frame.T_world_rig_end, fraction.double()))


def world_rays(
    frame: SweepFrame,
    sweep: Sweep,
    lidar: Lidar,
) -> tuple[Tensor, Tensor]:  # origins [R, 3] in metres and unit directions [R, 3], world, float64
    fraction = (sweep.times - frame.time_start) / max(frame.time_end - frame.time_start, 1e-9)
    q, t = interpolate_between(frame.T_world_rig_start, frame.T_world_rig_end, fraction.double())
    in_rig = sweep.directions.double() @ lidar.T_rig_lidar[:3, :3].T
    return t + quat_rotate(q, lidar.T_rig_lidar[:3, 3]), quat_rotate(q, in_rig)


def world_points(
    frame: SweepFrame,
    sweep: Sweep,
    lidar: Lidar,
) -> Tensor:  # [R, 3] metres, world, float64; rays that did not return give the sensor's position
    origins, directions = world_rays(frame, sweep, lidar)
    return origins + sweep.ranges.double()[:, None] * directions


def project_world_points(
    camera: Camera,
    frame: ImageFrame,
    points: Tensor,  # [n, 3] metres, world
) -> tuple[
    Tensor, Tensor
]:  # pixels [n, 2], depth z [n] in metres; with a rolling shutter at the time each point is read
    points = points.double()
    poses, rounds = (1, 1) if camera.shutter == "global" else (len(points), _SHUTTER_ROUNDS)
    fraction = points.new_full((poses,), 0.5)
    for _ in range(rounds):
        T_cam_world = invert(poses_at(frame, fraction) @ camera.T_rig_cam)
        in_camera = _rotated(T_cam_world[:, :3, :3], points) + T_cam_world[:, :3, 3]
        pixels, depth = project_points(camera, in_camera)
        fraction = shutter_fraction(camera, pixels).clamp(-0.5, 1.5)
    return pixels, depth


def _rotated(
    R: Tensor,  # [n, 3, 3], or [1, 3, 3] for all
    points: Tensor,  # [n, 3]
) -> Tensor:  # [n, 3]
    return points @ R[0].T if len(R) == 1 else (R @ points[:, :, None])[:, :, 0]
