# SPDX-License-Identifier: Apache-2.0
"""Frames of two sensors that put the rig at two places at one time: the sensor that others contradict, and the delay of its poses."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.paths import FEWEST, NAME, Path
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.geometry.se3 import interpolate_trajectory

TWO = 0.5  # metres between the poses that two sensors give the rig at one time, and
LATE = 0.05  # further seconds that they may be off
STEP, MOST = 0.05, 2.0  # step and largest shift of the poses' times that are tried, in seconds
PART = 0.2  # of the metres apart that are left if the poses are of other times
APART = "two_places_m"  # figure of these verdicts alone


def poses_at_a_time(paths: Sequence[Path]) -> Iterator[Verdict]:
    """Compares the rig's places by the frames of each sensor with those by the sensor that agrees with the most others."""
    agreeing = [sum(not _apart(a, b) for b in paths) for a in paths]
    most = paths[agreeing.index(max(agreeing))]
    for path in paths:
        if metres := _apart(most, path):
            yield _verdict(most, path, metres, alone=len(paths) == 2)


def _apart(first: Path, path: Path) -> float | None:
    """Median metres; None: as near as clocks and readers allow, or too few frames of one time."""
    inside = _shared(first, path, 0.0)
    if int(inside.sum()) < FEWEST:
        return None
    metres = _metres(first, path, inside, 0.0)
    speed = float((first.steps.norm(dim=1) / first.times.diff()).median())
    return metres if metres > TWO + LATE * speed else None


def _shared(first: Path, path: Path, seconds: float) -> Tensor:
    times = path.times + seconds
    return (times >= first.times[0]) & (times <= first.times[-1])


def _metres(first: Path, path: Path, inside: Tensor, seconds: float) -> float:
    there = interpolate_trajectory(first.times, first.poses, path.times[inside] + seconds)[:, :3, 3]
    return float((path.poses[inside, :3, 3] - there).norm(dim=1).median())


def _verdict(first: Path, path: Path, metres: float, alone: bool) -> Verdict:
    seconds = _later(first, path, metres)
    sentence = f"The frames of {path.sensor} and of {first.sensor} put the rig {metres:.1f} m apart at the same times"
    remedy = f"give each frame the pose T_world_rig at its own time {MADE}"
    if seconds is not None:
        period, way = float(path.times.diff().median()), "later" if seconds > 0 else "earlier"
        frames = f"{abs(seconds):.2f} s ({abs(seconds) / period:.0f} frames) {way}"
        sentence += f"; those of {path.sensor} have the poses of {frames}"
        remedy = f"correct the poses or the time stamps of {path.sensor}{f', or those of {first.sensor},' if alone else ''} {MADE}"
    return Verdict(NAME, path.sensor, Level.LIKELY, f"{sentence}.", remedy, {APART: metres})


def _later(first: Path, path: Path, metres: float) -> float | None:
    """Delay in seconds of the first sensor's poses against those of the other one; None: no delay fits."""
    found = []
    for seconds in torch.arange(-MOST, MOST + STEP / 2, STEP).tolist():
        inside = _shared(first, path, seconds)
        if int(inside.sum()) >= FEWEST:
            found.append((_metres(first, path, inside, seconds), seconds))
    left, seconds = min(found, default=(metres, 0.0))
    return seconds if left < PART * metres else None
