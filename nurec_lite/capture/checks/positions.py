# SPDX-License-Identifier: Apache-2.0
"""Positions of satellites against the velocities that the same unit measured: jumps, drift, and positions that stand still.

Letters: n measurements.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from nurec_lite.capture.checks.sample import JUMP_AT, JUMP_END, Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.measured import Measured
from nurec_lite.capture.trajectory import Trajectory, trajectory_of
from nurec_lite.capture.types import Capture, SweepFrame
from nurec_lite.geometry.se3 import quat_conjugate, quat_rotate

NAME = "positions and velocities"
LEAST, NOISE = 0.5, 8.0  # metres, and times the median: the largest difference of a step from the velocities
SURE = 1.0  # metres: a smaller jump is likely at most
FROZEN, MOVES, FEWEST = 0.02, 1.0, 3  # metres a step, metres a second by velocities, and steps: positions stand still
WINDOW, PART = 2.0, 0.1  # seconds, and part of the way that positions may drift in it, in addition to SURE
MOST = 4  # jumps that are named
REMEDY = "estimate poses from the sweeps by data.poses.source=lidar, or give others by data.poses.file"


@dataclass(frozen=True)
class Track:
    """Steps of positions between measurements, and the steps that velocities give."""

    times: Tensor  # [n] seconds
    steps: Tensor  # [n - 1, 3] metres, by positions
    expected: Tensor  # [n - 1, 3] metres, by velocities
    attitudes: Tensor  # [n, 4] quaternions

    @property
    def off(self) -> Tensor:  # [n - 1, 3] metres
        return self.steps - self.expected


def track_of(measured: Measured | None) -> Track | None:
    """Returns the track of measured positions; None: positions, velocities or attitudes were not measured."""
    if measured is None or measured.positions is None or measured.velocities is None or measured.attitudes is None:
        return None
    world = quat_rotate(measured.attitudes, measured.velocities)
    expected = 0.5 * (world[1:] + world[:-1]) * measured.times.diff()[:, None]
    return Track(measured.times, measured.positions.diff(dim=0), expected, measured.attitudes)


def check_positions(sample: Sample) -> Iterator[Verdict]:
    capture = sample.capture
    track, path = track_of(capture.measured), trajectory_of(capture)
    if track is None:
        return
    found = [*_frozen(capture, track, path)] or [*_jumps(capture, track, path)] or [*_drift(capture, track, path)]
    if found:
        yield from found
    else:
        apart, way = float(track.off.sum(0).norm()), float(track.expected.norm(dim=1).sum())
        sentence = f"Positions move as velocities say, within {apart:.1f} m of {way:.0f} m."
        yield Verdict(NAME, capture.name, Level.RIGHT, sentence, figures={"apart_m": apart, "way_m": way})


def _jumps(capture: Capture, track: Track, path: Trajectory) -> Iterator[Verdict]:
    off = track.off.norm(dim=1)
    far = (off > LEAST + NOISE * off.median()).nonzero()[:, 0].tolist()
    for i in sorted(far, key=lambda i: -float(off[i]))[:MOST]:
        metres, step, expected = (float(x.norm()) for x in (track.off[i], track.steps[i], track.expected[i]))
        seconds = float(track.times[i + 1] - track.times[i])
        frame = _frame(capture, float(track.times[i + 1]))
        sentence = (
            f"Positions jump by {metres:.1f} m before frame {frame}: they go {step:.1f} m in {seconds:.2f} s, {expected:.1f} m by the "
            "velocities that were measured with them"
        )
        figures = {"jump_m": metres, "step_m": step, "expected_m": expected, JUMP_AT: float(track.times[i + 1])}
        yield _verdict(capture, sentence, _followed(track, path, i, i + 1), metres > SURE, figures)


def _frozen(capture: Capture, track: Track, path: Trajectory) -> Iterator[Verdict]:
    """Positions that stay while the vehicle drives, the longest time."""
    speeds = track.expected.norm(dim=1) / track.times.diff()
    still = ((track.steps.norm(dim=1) < FROZEN) & (speeds > MOVES)).tolist()
    runs = [[i for i, _ in group] for stays, group in groupby(enumerate(still), key=lambda pair: pair[1]) if stays]
    run = max(runs, key=len, default=[])
    if len(run) >= FEWEST:
        first, last = (_frame(capture, float(track.times[i])) for i in (run[0], run[-1] + 1))
        metres = float(track.expected[run].sum(0).norm())
        sentence = f"Positions stand still from frame {first} to {last}, while the vehicle drives {metres:.1f} m by the velocities"
        ends = float(track.times[run[0]]), float(track.times[min(run[-1] + 2, len(track.times) - 1)])
        figures = {"frozen_m": metres, JUMP_AT: ends[0], JUMP_END: ends[1]}
        yield _verdict(capture, sentence, _followed(track, path, run[0], run[-1] + 1), metres > SURE, figures)


def _drift(capture: Capture, track: Track, path: Trajectory) -> Iterator[Verdict]:
    """The WINDOW whose positions move farthest from where velocities go."""
    sums = torch.cat([torch.zeros(1, 3, dtype=torch.float64), track.off.cumsum(0)])
    ends = torch.searchsorted(track.times, track.times + WINDOW).clamp(max=len(track.times) - 1)
    ways = torch.cat([torch.zeros(1, dtype=torch.float64), track.expected.norm(dim=1).cumsum(0)])
    apart, way = (sums[ends] - sums).norm(dim=1), ways[ends] - ways
    i = int((apart - PART * way).argmax())
    if float(apart[i]) > SURE + PART * float(way[i]):
        j, seconds = int(ends[i]), float(track.times[ends[i]] - track.times[i])
        frames = [_frame(capture, float(track.times[k])) for k in (i, j)]
        sentence = (
            f"Positions drift by {float(apart[i]):.1f} m within {seconds:.1f} s, from frame {frames[0]} to {frames[1]}, against the "
            "velocities that were measured with them"
        )
        yield _verdict(capture, sentence, _followed(track, path, i, j), False, {"drift_m": float(apart[i])})


def _verdict(capture: Capture, sentence: str, followed: bool, sure: bool, figures: dict[str, float]) -> Verdict:
    """Verdict about positions: likely at most if the poses that are used do not follow them."""
    if not followed:
        sentence = f"{sentence}; the poses that are used do not follow them"
        return Verdict(NAME, capture.name, Level.LIKELY, f"{sentence}.", figures=figures)
    level = Level.CERTAIN if sure else Level.LIKELY
    return Verdict(NAME, capture.name, level, f"{sentence}.", REMEDY, figures)


def _followed(track: Track, path: Trajectory, i: int, j: int) -> bool:
    """Returns whether the poses follow the positions from measurement i to j, rather than the velocities."""
    first, last = (path.at(float(track.times[k])) for k in (i, j))
    way = first[:3, :3].T @ (last - first)[:3, 3]
    steps, expected = (
        quat_rotate(quat_conjugate(track.attitudes[i]), x[i:j].sum(0)) for x in (track.steps, track.expected)
    )
    return float((way - steps).norm()) < float((way - expected).norm())


def _frame(capture: Capture, time: float) -> int:
    """Number of the frame with the nearest middle."""
    frames: Sequence[SweepFrame] = capture.sweeps or capture.images  # type: ignore[assignment]
    return min(frames, key=lambda frame: abs(frame.time_mid - time)).index
