# SPDX-License-Identifier: Apache-2.0
"""Poses that jitter from frame to frame by more than any vehicle does."""

from collections.abc import Iterator

from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.paths import NAME, Path
from nurec_lite.capture.checks.verdict import Level, Verdict

FRAMES = 10  # that show it
LEAST, ACCELERATION = 0.03, 4.0  # metres, and metres a second squared: half of all second differences are smaller
STILL = 0.01  # of the usual step: frames have the same pose
REPEATED = 0.3  # of all steps, at least


def jitter(path: Path, lidar: bool) -> Iterator[Verdict]:
    """A finding where the median change from a step to the next is one that no vehicle keeps up; `lidar`: sweeps could give poses."""
    seconds = path.times.diff()
    if len(path.frames) < FRAMES or float(seconds.amin()) <= 0:
        return
    rates = path.steps / seconds[:, None]
    usual = float(seconds.median())
    change = float(rates.diff(dim=0).norm(dim=1).median()) * usual
    if change > LEAST + ACCELERATION * usual**2:
        other = ", or estimate them from the sweeps by data.poses.source=lidar" if lidar else ""
        remedy = f"interpolate or smooth them {MADE}{other}"
        yield Verdict(NAME, path.sensor, Level.LIKELY, _sentence(path, change), remedy, {"jitter_m": change})


def _sentence(path: Path, change: float) -> str:
    ways = path.steps.norm(dim=1)
    same = int((ways < STILL * ways.mean()).sum())
    if same > REPEATED * len(ways):
        return f"{same} of {len(path.frames)} frames of {path.sensor} have the pose of the frame before, between steps of others."
    return f"The poses jitter: from a frame of {path.sensor} to the next, steps differ by {change:.2f} m in the median."
