# SPDX-License-Identifier: Apache-2.0
"""Speeds of the rig and rates of its sensors over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from nurec_lite.capture.evenly import spread
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.capture.types import Capture, Frame

MOST_POINTS = 1500  # of a curve
GAP = 1.5  # times the usual interval: a longer one is a gap


@dataclass(frozen=True)
class Curve:
    title: str
    unit: str
    times: list[float]  # seconds from the start of the drive
    values: list[float]


@dataclass(frozen=True)
class Rate:
    """Regularity of a sensor's frames."""

    sensor: str
    frames: int
    first: float  # seconds from the start of the drive
    last: float
    interval: float | None  # seconds from one frame to the next, median; None: fewer than two frames
    longest: float | None  # seconds from one frame to the next at most
    after: int | None  # index of the frame before it
    gaps: int  # intervals that are longer than usual
    missing: int  # indices between the first and the last that no frame has
    lasts: float  # seconds, median: an exposure's readout or a revolution


def curves(capture: Capture, start: float) -> list[Curve]:
    """Speeds of the rig; empty if there are fewer than two poses."""
    if not (capture.images or capture.sweeps):
        return []
    path = trajectory_of(capture)
    if len(path.times) < 2:
        return []
    velocities, times = path.velocities(), path.times - start
    height = path.poses[:, 2, 3] - path.poses[0, 2, 3]
    rows = (
        ("Speed forward", "m/s", velocities[:, 3]), ("Speed to the left", "m/s", velocities[:, 4]),
        ("Turning to the left", "degrees/s", torch.rad2deg(velocities[:, 2])), ("Height since the start", "m", height),
    )  # fmt: skip
    picked = spread(range(len(times)), MOST_POINTS)
    return [Curve(title, unit, times[picked].tolist(), values[picked].tolist()) for title, unit, values in rows]


def intervals(frames: Sequence[Frame], title: str, start: float) -> Curve:
    """Milliseconds from each frame of a sensor to the next; an interval is longer where frames are missing."""
    begins = [frame.time_start for frame in frames]
    rows = [(b - start, 1000 * (b - a)) for a, b in pairwise(begins)]
    longest = max(range(len(rows)), key=lambda i: rows[i][1])
    picked = sorted({*spread(range(len(rows)), MOST_POINTS), longest})
    return Curve(title, "ms", [rows[i][0] for i in picked], [rows[i][1] for i in picked])


def rate(frames: Sequence[Frame], sensor: str, start: float) -> Rate:
    begins = torch.tensor([frame.time_start for frame in frames], dtype=torch.float64)
    steps, lasts = begins.diff(), [frame.time_end - frame.time_start for frame in frames]
    indices = [frame.index for frame in frames]
    usual = float(steps.median()) if len(steps) else None
    at = int(steps.argmax()) if len(steps) else None
    return Rate(
        sensor, len(frames), float(begins[0]) - start, float(begins[-1]) - start, usual,
        None if at is None else float(steps[at]), None if at is None else indices[at],
        0 if usual is None else int((steps > GAP * usual).sum()),
        max(indices) - min(indices) + 1 - len(set(indices)), sorted(lasts)[len(lasts) // 2],
    )  # fmt: skip
