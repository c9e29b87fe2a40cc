# SPDX-License-Identifier: Apache-2.0
"""The identity of a capture: its sensors, and of every frame the number, the times, the pose and the encoded content.

The size and a checksum of the encoded frame identify its content. A pack has both in its directory. For files of a drive, sizes are read,
and a few pieces of some files. `looks.py` holds the properties that survive a new encoding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from nurec_lite.capture.looks import Key
from nurec_lite.capture.plausible import InTime
from nurec_lite.capture.trajectory import Trajectory, trajectory_of
from nurec_lite.capture.types import Capture, ImageFrame, Marked, SweepFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar

THOROUGH = 16  # files of a sensor with pieces read, at most
UNKNOWN = -1


@dataclass(frozen=True)
class SensorFrames:
    """The n frames of a sensor; m of them were looked at."""

    indices: Tensor  # [n] int64
    times: Tensor  # [n, 2] float64 seconds: start and end
    poses: Tensor  # [n, 3, 4] float64 T_world_rig at the start, in the world of the source
    marks: Tensor  # [n, 2] int64: size in bytes and checksum, UNKNOWN where there is none
    looked: Tensor  # [m] int64 indices
    looks: Tensor  # [m, rows, columns, 3] uint8 of a camera, [m, 7] float64 of a lidar; [0] if m = 0


@dataclass(frozen=True)
class KnownPath:
    """The poses that a scene was trained with."""

    trajectory: Trajectory  # in the world of the source
    poses_from: str  # as in `Capture`


@dataclass(frozen=True)
class Digest:
    """The digest of a capture that a checkpoint keeps."""

    name: str
    cameras: tuple[Camera, ...]
    lidars: tuple[Lidar, ...]
    frames: dict[str, SensorFrames]  # of each camera and lidar
    path: KnownPath | None = None  # None: an older version wrote it, or there are no frames


def digest_of(
    capture: Capture,
    looks: dict[Key, Tensor],  # of some frames
) -> Digest:
    frames = {
        sensor.name: _sensor_frames(capture, [f for f in found if f.sensor == sensor.name], looks)
        for sensors, found in ((capture.cameras, capture.images), (capture.lidars, capture.sweeps))
        for sensor in sensors
    }
    return Digest(capture.name, capture.cameras, capture.lidars, frames, _path_of(capture))


def _path_of(capture: Capture) -> KnownPath | None:
    if not capture.images and not capture.sweeps:
        return None
    path = trajectory_of(capture)
    poses = path.poses.clone()
    poses[:, :3, 3] += torch.tensor(capture.origin, dtype=torch.float64)
    return KnownPath(Trajectory(path.times, poses), capture.poses_from)


def _sensor_frames(
    capture: Capture, frames: Sequence[ImageFrame | SweepFrame], looks: dict[Key, Tensor]
) -> SensorFrames:
    stride, double = _stride(len(frames)), torch.float64
    times = torch.tensor([(f.time_start, f.time_end) for f in frames], dtype=double).reshape(-1, 2)
    poses = torch.stack([f.T_world_rig_start for f in frames]) if frames else torch.zeros(0, 4, 4)
    poses = poses[:, :3].to(double, copy=True)
    poses[:, :, 3] += torch.tensor(capture.origin, dtype=double)
    marks = [_mark(f.load, f.index % stride == 0) for f in frames]
    known = {f.index: looks[f.sensor, f.index] for f in frames if (f.sensor, f.index) in looks}
    return SensorFrames(
        indices=torch.tensor([f.index for f in frames], dtype=torch.int64),
        times=times,
        poses=poses,
        marks=torch.tensor(marks, dtype=torch.int64).reshape(-1, 2),
        looked=torch.tensor(list(known), dtype=torch.int64),
        looks=torch.stack(list(known.values())) if known else torch.zeros(0),
    )


def _stride(frames: int) -> int:
    """Returns a power of two: it divides the numbers of frames in every part of the drive."""
    stride = 1
    while frames > THOROUGH * stride:
        stride *= 2
    return stride


def _mark(load: Callable[[], object], thorough: bool) -> tuple[int, int]:
    inner: Any = load.load if isinstance(load, InTime) else load
    return inner.mark(thorough) if _has_mark(type(inner)) else (UNKNOWN, UNKNOWN)  # type: ignore[arg-type]


@lru_cache(maxsize=32)
def _has_mark(kind: type) -> bool:
    """Whether objects of a class have a mark; looked up once, since isinstance takes 40 us with a protocol."""
    return issubclass(kind, Marked)
