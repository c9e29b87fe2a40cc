# SPDX-License-Identifier: Apache-2.0
"""The path of a drive from its sweeps, and from velocities where there are any, estimated as a whole."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from nurec_lite.capture.measured import Measured
from nurec_lite.capture.odometry.clouds import Cloud, Poses, clouds_of, moved
from nurec_lite.capture.odometry.front import First, scan_to_map
from nurec_lite.capture.odometry.matches import equations
from nurec_lite.capture.odometry.parts import in_parts
from nurec_lite.capture.odometry.path import Path
from nurec_lite.capture.odometry.reckoning import Twists, integrated, log, measured_twists
from nurec_lite.capture.odometry.sharpness import jitter
from nurec_lite.capture.odometry.solve import Noise, improved
from nurec_lite.capture.types import SweepFrame
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import interpolate_trajectory, invert

ROUNDS = ((0.7, 2000), (0.3, 5000))  # metres from points to surfaces at most, and points of a sweep that are compared
MEASURED = Noise(step=(1e-2, 3e-2), change=(0.02, 0.2))
ALONE = Noise(step=(1e-3, 3e-3), change=(0.1, 0.4))
RADIANS, METRES, PART = 0.01, 0.1, 0.1  # largest error of twists from one sweep to the next, and part of the motion
MOST = 0.8  # of the motions that agree with twists which are used
SHAKEN = (0.002, 0.004)  # radians and metres of jitter: a path by velocities with more is held against one without them
CALMER = 0.5  # times the jitter with velocities
LONGEST, MOST_BETWEEN = 0.15, 50  # seconds between two knots, and knots between two sweeps at most


@dataclass(frozen=True)
class Estimate:
    path: Path
    sources: str  # the sources in words, for people
    open: float = 0.0  # share of the motions that neither surfaces nor velocities tell


def estimated(
    frames: Sequence[SweepFrame],  # n of the lidar
    lidar: Lidar,
    span: tuple[float, float],  # seconds: the first and the last needed pose
    measured: Measured | None,
    known: Poses | None,  # poses that may be right: they say where to look first
) -> tuple[Estimate, list[Cloud]]:
    middles = torch.tensor([frame.time_mid for frame in frames], dtype=torch.float64)
    twists = None if measured is None else measured_twists(measured)
    guess = twists if twists is not None else None if known is None else _twists_of(middles, known(middles))
    clouds, first = (clouds_of(frames, lidar), None) if guess is None else _guessed(frames, lidar, middles, guess)
    if first is None:
        first, twists = scan_to_map(clouds, middles, None), None
    by = partial(_refined, clouds, middles, first.poses, span)
    path = by(twists)
    if twists is not None and not bool(first.open.any()) and (calmer := _calmer(path, middles, by)) is not None:
        path, twists = calmer, None
    also = "" if twists is None else " and measured velocities"
    left = 0.0 if twists is not None else float(first.open[1:].double().mean())
    return Estimate(path, f"estimated from {len(clouds)} sweeps{also}", left), clouds


def _guessed(
    frames: Sequence[SweepFrame], lidar: Lidar, middles: Tensor, guess: Twists
) -> tuple[list[Cloud], First | None]:
    """The clouds, and their first path if most of its motions are about those of the twists."""
    clouds, joined = in_parts(frames, lidar, middles, guess)
    first = scan_to_map(clouds, middles, guess) if joined is None else joined
    return clouds, first if _agree(guess, middles, first.poses) else None


def _calmer(path: Path, middles: Tensor, by: Callable[[None], Path]) -> Path | None:
    """The path by sweeps alone if velocities shake the one by both; None: they do not."""
    before = _jitter(path, middles)
    shaken = before > torch.tensor(SHAKEN)
    if not shaken.any():
        return None
    alone = by(None)
    return alone if bool((_jitter(alone, middles) < CALMER * before)[shaken].all()) else None


def _jitter(path: Path, middles: Tensor) -> Tensor:  # [2] radians and metres
    return torch.tensor(jitter(middles, path.at(middles))[::-1])


def _refined(
    clouds: Sequence[Cloud], middles: Tensor, first: Tensor, span: tuple[float, float], twists: Twists | None
) -> Path:
    """Refines the first path. Corrections of measured twists begin at zero; where none were measured, all of the twist is a correction."""
    (path, at), measured = _first_path(middles, first, span, twists), twists is not None
    walk = torch.zeros(len(path.times), 6, dtype=torch.float64) if measured else path.twists.at(path.times)
    for reach, source in ROUNDS:
        found = list(equations(_still(path, clouds), path.poses[at], reach, source))
        path, walk = improved(path, at, found, MEASURED if measured else ALONE, walk)
    return path


def _agree(twists: Twists, middles: Tensor, poses: Tensor) -> bool:
    """Whether most motions between sweeps are about those of the twists."""
    steps, said = invert(poses[:-1]) @ poses[1:], integrated(twists, middles[:-1], middles[1:])
    apart, way = (log(T).view(-1, 2, 3).norm(dim=2) for T in (invert(said) @ steps, steps))
    return float((apart < torch.tensor([RADIANS, METRES]) + PART * way).all(1).double().mean()) > MOST


def _first_path(
    middles: Tensor, poses: Tensor, span: tuple[float, float], twists: Twists | None
) -> tuple[Path, Tensor]:
    """Knots at the middles of the sweeps, at the ends of the drive, and between where sweeps are far apart."""
    ends = [middles.new_tensor([t]) for t in span if not middles[0] <= t <= middles[-1]]
    times = torch.cat([middles, *ends]).sort().values
    more = [
        torch.linspace(a, b, 2 + min(MOST_BETWEEN, int((b - a) / LONGEST)), dtype=torch.float64)[1:-1]
        for a, b in pairwise(times.tolist())
    ]
    times = torch.cat([times, *more]).sort().values
    own = twists if twists is not None else Twists(times, _twists_of(middles, poses).at(times))
    return Path(times, interpolate_trajectory(middles, poses, times), own), torch.searchsorted(times, middles)


def _twists_of(times: Tensor, poses: Tensor) -> Twists:
    """Twists of a path, linear through the middles of the steps."""
    steps = log(invert(poses[:-1]) @ poses[1:]) / times.diff()[:, None]
    return Twists(0.5 * (times[1:] + times[:-1]), steps)


def _still(path: Path, clouds: Sequence[Cloud]) -> list[Tensor]:  # [n, 3] in the rig's axes at the middle of each sweep
    middles = invert(path.at(torch.tensor([cloud.time for cloud in clouds], dtype=torch.float64)))
    return moved(clouds, lambda times: middles[:, None] @ path.at(times))
