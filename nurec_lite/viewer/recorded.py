# SPDX-License-Identifier: Apache-2.0
"""A drive without its files, as a checkpoint remembers it: sensors, times and poses, but neither images nor measured ranges."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from nurec_lite.capture.digest import Digest, SensorFrames
from nurec_lite.capture.trajectory import Trajectory
from nurec_lite.capture.types import Capture, CaptureError, ImageFrame, SweepFrame
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.output.sensors import Pattern
from nurec_lite.training.capture_record import digest_from
from nurec_lite.training.checkpoint import tracks_of


def recorded_capture(
    content: dict[str, Any],  # of a checkpoint
) -> Capture | None:
    """The capture about the scene's origin. None: an older version wrote the checkpoint without the path."""
    if "capture" not in content:
        return None
    digest = digest_from(content["capture"])
    if digest.path is None:
        return None
    x, y, z = content["scene"].get("origin", (0.0, 0.0, 0.0))
    path = digest.path.trajectory
    poses = path.poses.clone()
    poses[:, :3, 3] -= torch.tensor([x, y, z], dtype=torch.float64)
    images, sweeps = _frames(digest, Trajectory(path.times, poses))
    return Capture(
        digest.name, digest.cameras, digest.lidars, images, sweeps, tracks_of(content["scene"]), origin=(x, y, z)
    )


def _frames(digest: Digest, path: Trajectory) -> tuple[tuple[ImageFrame, ...], tuple[SweepFrame, ...]]:
    """All frames in time order."""
    images = [
        ImageFrame(camera.name, *about, _Gone(digest.name))
        for camera in digest.cameras
        for about in _moments(digest.frames[camera.name], path)
    ]
    sweeps = [
        SweepFrame(lidar.name, *about, _pattern(lidar, about[1], about[2]))
        for lidar in digest.lidars
        for about in _moments(digest.frames[lidar.name], path)
    ]
    return tuple(sorted(images, key=_start)), tuple(sorted(sweeps, key=_start))


def _start(frame: ImageFrame | SweepFrame) -> float:
    return frame.time_start


def _moments(
    frames: SensorFrames, path: Trajectory
) -> list[tuple[int, float, float, Tensor, Tensor]]:  # index, start, end, T_world_rig at both
    rows = zip(frames.indices.tolist(), frames.times.tolist(), strict=True)
    return [(index, start, end, path.at(start), path.at(end)) for index, (start, end) in rows]


def _pattern(lidar: Lidar, start: float, end: float) -> Callable[[], Any]:
    """Rays of every beam at every step: those that were measured are not known."""
    return Pattern(lidar, start, end - start)


@dataclass(frozen=True)
class _Gone:
    """Replaces the decoder of an image."""

    capture: str

    def __call__(self) -> NoReturn:
        raise CaptureError(f"the images of {self.capture} are not where they were; name them by data.root=PATH")
