# SPDX-License-Identifier: Apache-2.0
"""Poses of a drive from its sweeps and velocities, and how sharp the map is by them and by the capture's own."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.capture.odometry.clouds import Poses
from nurec_lite.capture.odometry.estimate import Estimate, estimated
from nurec_lite.capture.odometry.glance import poses_of, seem_sharp
from nurec_lite.capture.odometry.sharpness import Sharpness, pairs_of, sharpness
from nurec_lite.capture.types import GIVEN, UNKNOWN, Capture, SweepFrame
from nurec_lite.geometry.lidar import Lidar

PAIRS = 8  # of sweeps that are compared


@dataclass(frozen=True)
class Drive:
    """The input of an estimate of poses."""

    capture: Capture
    lidar: Lidar
    frames: Sequence[SweepFrame]  # K of the lidar

    @property
    def middles(self) -> Tensor:  # [K] seconds
        return torch.tensor([frame.time_mid for frame in self.frames], dtype=torch.float64)

    @property
    def said(self) -> Poses:
        """The capture's own poses."""
        return poses_of(self.frames)

    @property
    def span(self) -> tuple[float, float]:  # seconds: first and last needed pose
        frames = (*self.capture.images, *self.capture.sweeps)
        return min(f.time_start for f in frames), max(f.time_end for f in frames)


@dataclass(frozen=True)
class Found:
    """An estimate, how sharp it is, and how sharp the capture's own poses are if there are any."""

    estimate: Estimate
    sharp: Sharpness
    own: Sharpness | None


def looked(drive: Drive, source: str) -> Found | None:
    """The estimate; None where a quick look shows that the capture's own poses are as sharp as the lidar can tell."""
    if source == "auto" and drive.capture.poses_from == GIVEN and seem_sharp(drive.frames, drive.lidar):
        return None
    known = None if drive.capture.poses_from == UNKNOWN else drive.said
    estimate, clouds = estimated(drive.frames, drive.lidar, drive.span, drive.capture.measured, known)
    paths = [estimate.path.at, *([] if known is None else [known])]
    found = sharpness(clouds, pairs_of(len(clouds), PAIRS), paths, drive.middles)
    return Found(estimate, found[0], found[1] if known is not None else None)
