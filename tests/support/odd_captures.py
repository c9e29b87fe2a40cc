# SPDX-License-Identifier: Apache-2.0
"""Captures that a user may bring, made from any that has all: what they lack, and where their sensors disagree."""

import math
from dataclasses import replace

import torch
from late_capture import with_clock

from nurec_lite.capture.types import Capture, ImageFrame
from nurec_lite.geometry.se3 import pose_matrix, rotvec_to_quat
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
    """By 0.3 degrees to the right, which it does not say."""
    first, *others = capture.cameras
    return replace(capture, cameras=(replace(first, T_rig_cam=first.T_rig_cam @ _turn(1)), *others))


def with_the_lidar_turned(capture: Capture) -> Capture:
    """To the left, likewise."""
    (lidar,) = capture.lidars
    return replace(capture, lidars=(replace(lidar, T_rig_lidar=lidar.T_rig_lidar @ _turn(2)),))


def with_a_late_camera(capture: Capture) -> Capture:
    """By 20 ms."""
    return with_clock(capture, capture.cameras[-1].name, 0.02)


def with_late_images(capture: Capture) -> Capture:
    """All of them by 20 ms, at poses that are right."""

    def late(frame: ImageFrame) -> ImageFrame:
        return replace(frame, time_start=frame.time_start + 0.02, time_end=frame.time_end + 0.02)

    return replace(capture, images=tuple(map(late, capture.images))).with_split("interp")


def _turn(axis: int) -> torch.Tensor:  # [4, 4]
    about = torch.zeros(3, dtype=torch.float64)
    about[axis] = math.radians(0.3)
    return pose_matrix(rotvec_to_quat(about), torch.zeros(3, dtype=torch.float64))
