# SPDX-License-Identifier: Apache-2.0
"""A simulated street whose poses are hidden or altered, and the differences of the estimated ones."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import torch
from tiny_capture import Loaded
from torch import Tensor

from nurec_lite.base.paths import resource
from nurec_lite.capture.measured import Measured
from nurec_lite.capture.odometry.glance import poses_of
from nurec_lite.capture.odometry.reckoning import log
from nurec_lite.capture.odometry.replace import with_poses
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import UNKNOWN, Capture
from nurec_lite.geometry.se3 import invert, matrix_to_quat

SWEEPS = 13


@lru_cache(maxsize=2)
def street(first: int = 0, count: int = SWEEPS) -> Capture:
    """Some moments of the bundled street with their sweeps decoded."""
    capture = read_pack(resource("data/street.pack"))
    sweeps = [replace(f, load=Loaded(f.load())) for f in capture.sweeps[first : first + count]]
    images = [f for f in capture.images if sweeps[0].time_start <= f.time_start and f.time_end <= sweeps[-1].time_end]
    return replace(capture, sweeps=tuple(sweeps), images=tuple(images), split=None)


def middles(capture: Capture) -> Tensor:  # [K] seconds
    return torch.tensor([frame.time_mid for frame in capture.sweeps], dtype=torch.float64)


def hidden(capture: Capture) -> Capture:
    """The capture without any pose."""
    eye = torch.eye(4, dtype=torch.float64)
    return replace(with_poses(capture, lambda times: eye.expand(*times.shape, 4, 4)), poses_from=UNKNOWN)


def altered(capture: Capture, change: Callable[[Tensor, Tensor], Tensor]) -> Capture:
    """The capture with poses that a function makes of times and poses."""
    poses = poses_of(capture.sweeps)
    return with_poses(capture, lambda times: change(times, poses(times)))


def errors(capture: Capture, found: Capture, gap: int) -> tuple[float, float]:
    """Largest differences of the motions over `gap` sweeps, metres and degrees."""
    times = middles(capture)
    motions = [invert(T[:-gap]) @ T[gap:] for T in (poses_of(c.sweeps)(times) for c in (capture, found))]
    apart = log(invert(motions[0]) @ motions[1]).view(-1, 2, 3).norm(dim=2).amax(0).tolist()
    return apart[1], math.degrees(apart[0])


def measured(
    capture: Capture,
    scale: float,  # of velocities
    noise: float,  # metres a second
) -> Measured:
    """Measurements of wheels and an inertial unit, a hundred times a second."""
    poses = poses_of(capture.sweeps)
    times = torch.arange(capture.sweeps[0].time_start, capture.sweeps[-1].time_end, 0.01, dtype=torch.float64)
    twists = log(invert(poses(times - 0.005)) @ poses(times + 0.005)) / 0.01
    velocities = scale * twists[:, 3:] + noise * torch.randn(len(times), 3, generator=torch.Generator().manual_seed(3))
    return Measured(times, velocities=velocities.double(), attitudes=matrix_to_quat(poses(times)[:, :3, :3]))
