# SPDX-License-Identifier: Apache-2.0
"""Poses that jitter from frame to frame by more than any vehicle does."""

import math
from collections.abc import Iterator, Sequence

from torch import Tensor

from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.motion import Motion, Motions
from nurec_lite.capture.checks.paths import NAME, Path
from nurec_lite.capture.checks.register import log
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.geometry.se3 import invert

FRAMES = 10  # that show it
LEAST, ACCELERATION = 0.03, 4.0  # metres, and metres a second squared: half of all second differences are smaller
TURNS, FASTER = 0.08, 8.0  # degrees, and degrees a second squared: the same of rotations
SEEN = 0.2  # degrees that sweeps turn otherwise, in the median
STILL = 0.01  # of the usual step: frames have the same pose
REPEATED = 0.3  # of all steps, at least


def jitter(path: Path, motions: Sequence[Motion]) -> Iterator[Verdict]:
    """A finding where the median change from a step to the next is one that no vehicle keeps up; of rotations, the `motions` of sweeps
    decide."""
    seconds = path.times.diff()
    if len(path.frames) < FRAMES or float(seconds.amin()) <= 0:
        return
    usual = float(seconds.median())
    steps = log(invert(path.poses[:-1]) @ path.poses[1:])[:, :3]
    change, turn = _median_change(path.steps, seconds), math.degrees(_median_change(steps, seconds))
    other = ", or estimate them from the sweeps by data.poses.source=lidar" if motions else ""
    remedy = f"interpolate or smooth them {MADE}{other}"
    if change > LEAST + ACCELERATION * usual**2:
        yield Verdict(NAME, path.sensor, Level.LIKELY, _sentence(path, change), remedy, {"jitter_m": change})
    elif turn > TURNS + FASTER * usual**2 and motions and _turned(Motions(motions)) > SEEN:
        sentence = (
            f"The rotations of the poses jitter: from a frame of {path.sensor} to the next, they differ by {turn:.1f}°"
        )
        sentence += " in the median."
        yield Verdict(NAME, path.sensor, Level.LIKELY, sentence, remedy, {"jitter_deg": turn})


def _median_change(steps: Tensor, seconds: Tensor) -> float:  # [n, 3], [n]
    return float((steps / seconds[:, None]).diff(dim=0).norm(dim=1).median()) * float(seconds.median())


def _turned(motions: Motions) -> float:
    """Degrees between the turns of the poses and those of the sweeps, the median."""
    return math.degrees(float(log(invert(motions.measured) @ motions.posed)[:, :3].norm(dim=1).median()))


def _sentence(path: Path, change: float) -> str:
    ways = path.steps.norm(dim=1)
    same = int((ways < STILL * ways.mean()).sum())
    if same > REPEATED * len(ways):
        return f"{same} of {len(path.frames)} frames of {path.sensor} have the pose of the frame before, between steps of others."
    return f"The poses jitter: from a frame of {path.sensor} to the next, steps differ by {change:.2f} m in the median."
