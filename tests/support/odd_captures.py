# SPDX-License-Identifier: Apache-2.0
"""Captures that a user may bring, made from a complete one: missing parts, and sensors that disagree."""

import math
from dataclasses import replace

import torch
from late_capture import with_clock

from nurec_lite.capture.deskew import poses_at, world_points
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.se3 import invert, pose_matrix, rotvec_to_quat, transform
from nurec_lite.geometry.tracks import Tracks


def without_lidar(capture: Capture) -> Capture:
    return replace(capture, lidars=(), sweeps=()).with_split("interp")


def with_one_camera(capture: Capture) -> Capture:
    first = capture.cameras[0]
    images = tuple(frame for frame in capture.images if frame.sensor == first.name)
    return replace(capture, cameras=(first,), images=images).with_split("interp")


def without_tracks(capture: Capture) -> Capture:
    return replace(capture, tracks=Tracks.empty())


def at_night(capture: Capture) -> Capture:
    """A sixteenth as bright."""

    def dark(frame: ImageFrame) -> ImageFrame:
        return replace(frame, load=lambda: frame.load() // 16)

    return replace(capture, images=tuple(map(dark, capture.images))).with_split("interp")


def with_a_camera_turned(capture: Capture) -> Capture:
    """Turns a camera by 0.3 degrees to the right, which it does not say."""
    first, *others = capture.cameras
    return replace(capture, cameras=(replace(first, T_rig_cam=first.T_rig_cam @ _turn(1)), *others))


def with_the_lidar_turned(capture: Capture) -> Capture:
    """The capture with its lidar turned to the left, by the same angle."""
    (lidar,) = capture.lidars
    return replace(capture, lidars=(replace(lidar, T_rig_lidar=lidar.T_rig_lidar @ _turn(2)),))


def with_a_late_camera(capture: Capture) -> Capture:
    """Takes images of a camera 20 ms late."""
    return with_clock(capture, capture.cameras[-1].name, 0.02)


def with_late_images(capture: Capture) -> Capture:
    """All of them by 20 ms, at poses that are right."""

    def late(frame: ImageFrame) -> ImageFrame:
        return replace(frame, time_start=frame.time_start + 0.02, time_end=frame.time_end + 0.02)

    return replace(capture, images=tuple(map(late, capture.images))).with_split("interp")


def that_stood_first(capture: Capture, moments: int) -> Capture:
    """The vehicle stands for so many moments before it drives: frames of moment 0, frozen in the middle of its sweep, again and again."""
    (first,) = (frame for frame in capture.sweeps if frame.index == 0)
    middle = poses_at(first, torch.tensor(0.5))
    sweep = frozen(capture, first, middle)
    frames = [frame for frame in (*capture.images, *capture.sweeps) if frame.index == 0]
    still = [replace(f, T_world_rig_start=middle, T_world_rig_end=middle) for f in frames]
    still = [replace(f, load=lambda: sweep) if isinstance(f, SweepFrame) else f for f in still]
    period = (
        capture.images[-1].time_start
        - next(f for f in capture.images if f.sensor == capture.images[-1].sensor).time_start
    )
    period /= max(f.index for f in capture.images)
    early = [
        replace(
            f, index=k, time_start=f.time_start - (moments - k) * period, time_end=f.time_end - (moments - k) * period
        )
        for k in range(moments)
        for f in still
    ]
    later = [replace(frame, index=frame.index + moments) for frame in (*capture.images, *capture.sweeps)]
    images = tuple(f for f in (*early, *later) if isinstance(f, ImageFrame))
    sweeps = tuple(f for f in (*early, *later) if isinstance(f, SweepFrame))
    return replace(capture, images=images, sweeps=sweeps).with_split("interp")


def frozen(capture: Capture, frame: SweepFrame, T_world_rig: torch.Tensor) -> Sweep:
    """The frame's sweep as a rig would measure it that stands at that pose."""
    sweep, lidar = frame.load(), capture.lidar(frame.sensor)
    points = transform(invert(T_world_rig @ lidar.T_rig_lidar), world_points(frame, sweep, lidar))
    ranges = points.norm(dim=1)
    directions = torch.where(sweep.returned[:, None], points / ranges[:, None], sweep.directions.double())
    ranges = torch.where(sweep.returned, ranges, sweep.ranges.double())
    return replace(sweep, directions=directions.float(), ranges=ranges.float())


def _turn(axis: int) -> torch.Tensor:  # [4, 4]
    about = torch.zeros(3, dtype=torch.float64)
    about[axis] = math.radians(0.3)
    return pose_matrix(rotvec_to_quat(about), torch.zeros(3, dtype=torch.float64))
