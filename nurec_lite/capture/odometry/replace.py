# SPDX-License-Identifier: Apache-2.0
"""A capture with other poses of its rig: frames, tracks, and other ways to read its labels."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch

from nurec_lite.capture.odometry.clouds import Poses
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.capture.types import Capture, Frame
from nurec_lite.geometry.se3 import invert, matrix_to_quat, pose_matrix
from nurec_lite.geometry.tracks import Tracks

AnyFrame = TypeVar("AnyFrame", bound=Frame)


def with_poses(capture: Capture, poses: Poses) -> Capture:
    """Returns the capture with other poses. Boxes stay at their places relative to the rig at the times of their keyframes."""
    before = trajectory_of(capture).at
    labels = tuple(replace(label, tracks=partial(_read_again, label.tracks, before, poses)) for label in capture.labels)
    return replace(
        capture,
        images=_moved(capture.images, poses),
        sweeps=_moved(capture.sweeps, poses),
        tracks=_carried(capture.tracks, before, poses),
        labels=labels,
        readings=(),  # of the poses that are replaced
    )


def _moved(frames: tuple[AnyFrame, ...], poses: Poses) -> tuple[AnyFrame, ...]:
    if not frames:
        return frames
    ends = torch.tensor([[f.time_start, f.time_end] for f in frames], dtype=torch.float64)
    known = poses(ends)
    return tuple(
        replace(frame, T_world_rig_start=start, T_world_rig_end=end)
        for frame, (start, end) in zip(frames, known, strict=True)
    )


def _read_again(read: Callable[[], Tracks], before: Poses, poses: Poses) -> Tracks:
    return _carried(read(), before, poses)


def _carried(tracks: Tracks, before: Poses, poses: Poses) -> Tracks:
    if not len(tracks):
        return tracks
    boxes = pose_matrix(tracks.quaternions, tracks.translations)
    moved = poses(tracks.times) @ invert(before(tracks.times)) @ boxes
    return replace(tracks, translations=moved[:, :3, 3].clone(), quaternions=matrix_to_quat(moved[:, :3, :3]))
