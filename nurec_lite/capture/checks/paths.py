# SPDX-License-Identifier: Apache-2.0
"""The rig's path as the frames of each sensor have it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.motion import Motions
from nurec_lite.capture.checks.motions import motion_to_the_next
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.deskew import middle_poses
from nurec_lite.capture.types import Capture, Frame

NAME = "poses and driving"
FEWEST = 5  # frames of a sensor that tell anything
REMEDY = f"correct the poses {MADE}, give others (KITTI: data.poses.file), or choose frames without them by data.frames"


@dataclass(frozen=True)
class Path:
    """The rig's path, at the middles of the frames of one sensor."""

    sensor: str
    frames: Sequence[Frame]  # n
    times: Tensor  # [n] seconds
    poses: Tensor  # [n, 4, 4] T_world_rig

    @property
    def steps(self) -> Tensor:  # [n - 1, 3] metres, world
        return self.poses[:, :3, 3].diff(dim=0)


def paths_of(capture: Capture) -> list[Path]:
    """A path for each sensor, lidars first."""
    return [
        Path(name, frames, torch.tensor([f.time_mid for f in frames], dtype=torch.float64), middle_poses(frames))
        for name, frames in capture.by_sensor().items()
    ]


def seen_step(sample: Sample, path: Path, i: int) -> Motions | None:
    """The motion of a lidar about step i, as its sweeps show it."""
    middle = 0.5 * float(path.times[i] + path.times[i + 1])
    for lidar in sample.capture.lidars:
        frames = sample.of_lidar(lidar.name)
        k = next((k for k, f in enumerate(frames[1:]) if frames[k].time_mid <= middle < f.time_mid), None)
        motion = None if k is None else motion_to_the_next(sample, lidar, k)
        if motion is not None and motion.known:
            return Motions([motion])
    return None
