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
LITTLE, SOON, NEARLY = 0.1, 0.03, 0.1  # metres and seconds, at least, and part left, at most: a delay alone tells it
STEP, FINE, MOST = 0.05, 0.01, 2.0  # steps and largest shift of the poses' times that are tried, in seconds
PART = 0.2  # of the metres apart that are left if the poses are of other times
WHOLE = 0.2  # of a frame: a delay of frames is off by less
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
    return metres if metres > TWO + LATE * speed or _a_little_late(first, path, metres) else None


def _a_little_late(first: Path, path: Path, metres: float) -> bool:
    """Whether a short delay explains nearly all: no clock's noise does, nor do poses of another source."""
    seconds = _later(first, path, metres, NEARLY) if metres > LITTLE else None
    return seconds is not None and abs(seconds) >= SOON


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
        way = "later" if seconds > 0 else "earlier"
        frames = f"{abs(seconds):.2f} s{_in_frames(path, seconds)} {way}"
        sentence += f"; those of {path.sensor} have the poses of {frames}"
        remedy = f"correct the poses or the time stamps of {path.sensor}{f', or those of {first.sensor},' if alone else ''} {MADE}"
    return Verdict(NAME, path.sensor, Level.LIKELY, f"{sentence}.", remedy, {APART: metres})


def _in_frames(path: Path, seconds: float) -> str:
    frames = abs(seconds) / float(path.times.diff().median())
    whole = round(frames)
    return f" ({whole} frame{'s' * (whole > 1)})" if whole and abs(frames - whole) < WHOLE else ""


def _later(first: Path, path: Path, metres: float, part: float = PART) -> float | None:
    """Delay in seconds of the first sensor's poses against those of the other one; None: no delay fits."""
    _, near = _best(first, path, torch.arange(-MOST, MOST + STEP / 2, STEP).tolist(), metres)
    fine = torch.arange(-STEP, STEP + FINE / 2, FINE).tolist()
    left, seconds = _best(first, path, [near + step for step in fine], metres)
    return seconds if left < part * metres else None


def _best(first: Path, path: Path, shifts: Sequence[float], metres: float) -> tuple[float, float]:
    """The fewest metres apart, and the shift in seconds that leaves them."""
    known = [(_shared(first, path, seconds), seconds) for seconds in shifts]
    found = [(_metres(first, path, inside, s), s) for inside, s in known if int(inside.sum()) >= FEWEST]
    return min(found, default=(metres, 0.0))
