# SPDX-License-Identifier: Apache-2.0
"""Rays and points of a sweep in the world, each at its own time, and world points in an image."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nurec_lite.capture.types import Frame, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera, CameraBatch, project_points, shutter_fraction
from nurec_lite.geometry.lidar import Lidar, Sweep
from nurec_lite.geometry.se3 import Motion, invert, motion_between, pose_matrix, quat_conjugate, quat_rotate, transform

_SHUTTER_ROUNDS = 6  # each round shrinks the error by the ratio of readout speed to pixel speed


def poses_at(
    frame: Frame,
    fraction: Tensor,  # [...] 0 at the frame's start, 1 at its end
) -> Tensor:  # [..., 4, 4] T_world_rig, float64
    return pose_matrix(*_poses(frame, fraction))


def _poses(
    frame: Frame, fraction: Tensor
) -> tuple[Tensor, Tensor]:  # quaternions [..., 4], translations [..., 3], where the fraction is
    alone = Motion(*(part[0] for part in rig_motion([frame], fraction.device)))  # so that one fraction gives one pose
    return alone.at(fraction.double())


def rig_motion(
    frames: Sequence[Frame],  # F
    device: torch.device | str = "cpu",
) -> Motion:
    """Motions of the rig while the frames are taken: [1, ...] of one frame, [F, 1, ...] of several."""
    ends = [torch.stack([getattr(f, name) for f in frames]) for name in ("T_world_rig_start", "T_world_rig_end")]
    motion = motion_between(
        *(T if len(frames) == 1 else T[:, None] for T in ends)
    )  # on the host: few numbers, many operators
    return Motion(*(part.to(device) for part in motion))


def world_rays(
    frame: SweepFrame,
    sweep: Sweep,  # on any device, where the result is, too
    lidar: Lidar,
) -> tuple[Tensor, Tensor]:  # origins [R, 3] in metres and unit directions [R, 3], world, float64
    fraction = (sweep.times - frame.time_start) / max(frame.time_end - frame.time_start, 1e-9)
    (q, t), T_rig_lidar = _poses(frame, fraction), lidar.T_rig_lidar.to(fraction.device)
    in_rig = sweep.directions.double() @ T_rig_lidar[:3, :3].T
    return t + quat_rotate(q, T_rig_lidar[:3, 3]), quat_rotate(q, in_rig)


def world_points(
    frame: SweepFrame,
    sweep: Sweep,
    lidar: Lidar,
) -> Tensor:  # [R, 3] metres, world, float64; rays that did not return give the sensor's position
    origins, directions = world_rays(frame, sweep, lidar)
    return origins + sweep.ranges.double()[:, None] * directions


def in_rig(
    motion: Motion,  # of the rig
    points: Tensor,  # [..., n, 3] metres, world, float64, on its device
    fraction: Tensor,  # [..., n] time of each, as for `poses_at`
) -> Tensor:  # [..., n, 3] metres, in the rig's axes at these times
    q, t = motion.at(fraction)
    return quat_rotate(quat_conjugate(q), points - t)


def project_world_points(
    camera: Camera,
    frame: ImageFrame,
    points: Tensor,  # [n, 3] metres, world, on any device
) -> tuple[
    Tensor, Tensor
]:  # pixels [n, 2], depth z [n] in metres; with a rolling shutter at the time each point is read
    return project_into_frames(camera, [frame], points)


def project_into_frames(
    camera: Camera | CameraBatch,
    frames: Sequence[ImageFrame],  # F of this camera, or one of each camera of the batch
    points: Tensor,  # [F, n, 3] metres, world, on any device; [n, 3] of one frame
) -> tuple[
    Tensor, Tensor
]:  # pixels [F, n, 2], depth z [F, n] in metres, as `project_world_points` has them; [n, ...] of one
    points, motion = points.double(), rig_motion(frames, points.device)
    if camera.shutter == "global":
        T_world_rig = pose_matrix(*motion.at(points.new_full((1,), 0.5)))[..., 0, :, :]
        return project_points(camera, transform(invert(T_world_rig @ camera.T_rig_cam.to(points)), points))
    T_cam_rig, fraction = invert(camera.T_rig_cam).to(points.device), torch.full_like(points[..., 0], 0.5)
    for _ in range(_SHUTTER_ROUNDS):
        pixels, depth = project_points(camera, transform(T_cam_rig, in_rig(motion, points, fraction)))
        fraction = shutter_fraction(camera, pixels).clamp(-0.5, 1.5)
    return pixels, depth
