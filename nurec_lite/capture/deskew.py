# SPDX-License-Identifier: Apache-2.0
"""Rays and points of a sweep in the world, each at its own time, and world points in an image."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from nurec_lite.base.transfer import upload
from nurec_lite.capture.types import Frame, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera, CameraBatch, project_points, shutter_fraction
from nurec_lite.geometry.lidar import Lidar, Sweep
from nurec_lite.geometry.se3 import Motion, invert, motion_between, pose_matrix, transform
from nurec_lite.geometry.steady import SteadyMotion

_SHUTTER_ROUNDS = 6  # each round shrinks the error by the ratio of readout speed to pixel speed


def poses_at(
    frame: Frame,
    fraction: Tensor,  # [...] 0 at the frame's start, 1 at its end
) -> Tensor:  # [..., 4, 4] T_world_rig, float64
    return pose_matrix(*_poses(frame, fraction))


def _poses(
    frame: Frame, fraction: Tensor
) -> tuple[Tensor, Tensor]:  # quaternions [..., 4], translations [..., 3], where the fraction is
    alone = motion_between(frame.T_world_rig_start, frame.T_world_rig_end)  # so that one fraction gives one pose
    return Motion(*(part.to(fraction.device) for part in alone)).at(fraction.double())


def rig_motion(
    frames: Sequence[Frame],  # F
    device: torch.device | str = "cpu",
) -> SteadyMotion:
    """Motions of the rig while the frames are taken: [F, ...]; without F for one frame."""
    one = len(frames) == 1
    motion = motion_between(*(T[0] if one else T for T in _ends(frames)))  # on the host: few numbers, many operators
    return SteadyMotion.of(motion).to(device)


def _ends(frames: Sequence[Frame]) -> list[Tensor]:  # [F, 4, 4] T_world_rig at the start and at the end
    return [torch.stack([getattr(f, name) for f in frames]) for name in ("T_world_rig_start", "T_world_rig_end")]


def middle_poses(frames: Sequence[Frame]) -> Tensor:
    """T_world_rig [F, 4, 4] in the middle of each frame, float64; one frame at least."""
    first, last = (T.double() for T in _ends(frames))
    return pose_matrix(*motion_between(first, last).at(torch.full((len(frames),), 0.5, dtype=torch.float64)))


def rig_motions(
    frames: Sequence[Frame],
    device: torch.device | str = "cpu",
) -> list[SteadyMotion]:
    """The motion of the rig during each frame, as `rig_motion` has it for one frame; all of them by the operators of one."""
    if len(frames) < 2:
        return [rig_motion([frame], device) for frame in frames]
    return [SteadyMotion(*parts) for parts in zip(*rig_motion(frames, device), strict=True)]


def _fraction(frame: SweepFrame, sweep: Sweep) -> Tensor:  # [R] 0 at the frame's start, 1 at its end
    return (sweep.times - frame.time_start) / max(frame.time_end - frame.time_start, 1e-9)


def world_rays(
    frame: SweepFrame,
    sweep: Sweep,  # on any device, where the result is, too
    lidar: Lidar,
) -> tuple[Tensor, Tensor]:  # origins [R, 3] in metres and unit directions [R, 3], world, float64
    fraction, T_rig_lidar = _fraction(frame, sweep), lidar.T_rig_lidar.to(sweep.times.device)
    motion = rig_motion([frame], fraction.device)
    in_rig = sweep.directions.double() @ T_rig_lidar[:3, :3].T
    place = T_rig_lidar[:3, 3].expand_as(in_rig)
    return motion.to_world(place, fraction), motion.rotated(in_rig, fraction)


_mounting = lru_cache(maxsize=64)(upload)  # of a lidar, kept on a device by the tensor object


def world_points(
    frame: SweepFrame,
    sweep: Sweep,
    lidar: Lidar,
    motion: SteadyMotion | None = None,  # as by `rig_motions`, if it is known
) -> Tensor:  # [R, 3] metres, world, float64; rays that did not return give the sensor's position
    local = sweep.ranges.double()[:, None] * sweep.directions
    in_rig = transform(_mounting(lidar.T_rig_lidar, local.device), local)
    motion = motion or rig_motion([frame], local.device)
    return motion.to_world(in_rig, _fraction(frame, sweep))


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
    motion: SteadyMotion | None = None,  # of the frames, as by `rig_motion`, if it is known
) -> tuple[
    Tensor, Tensor
]:  # pixels [F, n, 2], depth z [F, n] in metres, as `project_world_points` has them; [n, ...] of one
    points, motion = points.double(), motion or rig_motion(frames, points.device)
    T_cam_rig, fraction = invert(camera.T_rig_cam).to(points.device), torch.full_like(points[..., 0], 0.5)
    pixels, depth = project_points(camera, transform(T_cam_rig, motion.to_rig(points, fraction)))
    for _ in range(0 if camera.shutter == "global" else _SHUTTER_ROUNDS - 1):
        fraction = shutter_fraction(camera, pixels).clamp(-0.5, 1.5)
        pixels, depth = project_points(camera, transform(T_cam_rig, motion.to_rig(points, fraction)))
    return pixels, depth
