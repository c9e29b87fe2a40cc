# SPDX-License-Identifier: Apache-2.0
"""Poses that jitter from frame to frame by more than any vehicle does."""

from collections.abc import Iterator

from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.paths import NAME, Path
from nurec_lite.capture.checks.verdict import Level, Verdict

FRAMES = 10  # that show it
LEAST, ACCELERATION = 0.03, 4.0  # metres, and metres a second squared: half of all second differences are smaller
REMEDY = f"smooth them {MADE}, or estimate them from the sweeps of a lidar by data.poses.source=lidar"


def jitter(path: Path) -> Iterator[Verdict]:
    """A finding where the median change from a step to the next is one that no vehicle keeps up."""
    seconds = path.times.diff()
    if len(path.frames) < FRAMES or float(seconds.amin()) <= 0:
        return
    rates = path.steps / seconds[:, None]
    usual = float(seconds.median())
    change = float(rates.diff(dim=0).norm(dim=1).median()) * usual
    if change > LEAST + ACCELERATION * usual**2:
        sentence = f"The poses jitter: from a frame of {path.sensor} to the next, steps differ by {change:.2f} m in the median."
        yield Verdict(NAME, path.sensor, Level.LIKELY, sentence, REMEDY, {"jitter_m": change})
