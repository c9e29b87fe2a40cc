# SPDX-License-Identifier: Apache-2.0
"""Sharpness of the map that the poses make, a line for each lidar, so that a person can compare drives and poses."""

from collections.abc import Iterator

import torch

from nurec_lite.base.errors import UserError
from nurec_lite.capture.odometry.clouds import cloud_of
from nurec_lite.capture.odometry.glance import poses_of
from nurec_lite.capture.odometry.sharpness import Sharpness, pairs_of, sharpness
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.lidar import Lidar

PAIRS = 6  # of sweeps
FEWEST = 3  # sweeps


def sharpness_lines(capture: Capture) -> Iterator[str]:
    """Yields no line for a lidar with too little evidence, or with a sweep that cannot be read: a check reports
    that."""
    for lidar in capture.lidars:
        try:
            gap, found = sharpness_of(capture, lidar)
        except (UserError, ValueError):
            continue
        yield f"map of {lidar.name}: sweeps {gap} apart lie within {found}"


def sharpness_of(capture: Capture, lidar: Lidar) -> tuple[int, Sharpness]:
    """Sweeps between those that are compared, and how they lie on each other. ValueError: there is too little to tell."""
    frames = [frame for frame in capture.sweeps if frame.sensor == lidar.name]
    if len(frames) < FEWEST:
        raise ValueError(f"{lidar.name} has {len(frames)} sweeps")
    pairs = pairs_of(len(frames), PAIRS)
    clouds = {k: cloud_of(lidar, frames[k]) for k in sorted({k for pair in pairs for k in pair})}
    middles = torch.tensor([frame.time_mid for frame in frames], dtype=torch.float64)
    return pairs[0][1] - pairs[0][0], sharpness(clouds, pairs, [poses_of(frames)], middles)[0]
