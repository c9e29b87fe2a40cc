# SPDX-License-Identifier: Apache-2.0
"""Times of a lidar's rays: one turn a sweep, in the direction that the lidar says, and points as they were measured.

A point that was moved to where the lidar was at another time no longer lies on the beam that measured it. By how much its elevation
differs says by how much it was moved: nothing for points as they were measured, once the motion of the vehicle for points that were
compensated. Letters: n points.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from torch import Tensor

from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.half_turns import NAME, half_turned
from nurec_lite.capture.checks.ordered import Ordered
from nurec_lite.capture.checks.rays import NAME as RAYS
from nurec_lite.capture.checks.register import velocity_of
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.turns import turns
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.types import SweepFrame
from nurec_lite.geometry.free_lidar import same_rays
from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation
from nurec_lite.geometry.se3 import invert

SWEEPS = 3  # of a lidar
SEVERAL = 1.25  # turns in a sweep
AGAIN, TOGETHER = 0.3, 0.05  # share of rays that have another one of their direction, and steps of azimuth between both
MOVES = 0.3  # metres that the lidar moves during a sweep, at least, for its times to matter
NEAR, FLAT = 30.0, 0.3  # metres to points, and below or above the lidar: others change their elevation little
FEWEST, MOST = 500, 30_000  # of them that tell anything, and that are looked at, about
BY = (0.6, 1.5)  # times the motion that compensation has taken out of points
SURE = 6.0  # standard errors
STILL = 1e-3  # of a sweep's duration: rays of one time


def check_ray_times(sample: Sample) -> Iterator[Verdict]:
    for lidar in sample.capture.lidars:
        known = of_sweeps(sample, lidar)
        images = _half_turned(sample, lidar) if lidar.spins and known.level is Level.RIGHT else None
        yield images or known


def of_sweeps(sample: Sample, lidar: Lidar) -> Verdict:
    """The verdict of the sweeps alone."""
    return sample.kept(("times of rays", lidar.name), partial(_of_sweeps, sample, lidar))


def _of_sweeps(sample: Sample, lidar: Lidar) -> Verdict:
    frames = sample.some_sweeps(lidar.name, SWEEPS)
    pairs = [(frame, sweep) for frame in frames if len(sweep := sample.sweep(frame)) > 1]
    if not pairs or sample.blamed(RAYS, subject=lidar.name):
        return Verdict(NAME, lidar.name, Level.UNKNOWN, f"Sweeps of {lidar.name} do not tell the times of its rays.")
    if lidar.spins:
        return _several(sample, lidar, pairs) or _moved(sample, lidar, pairs) or _turning(sample, lidar, pairs)
    return _repeated(sample, lidar, pairs) or _unknown_turn(lidar)


def _half_turned(sample: Sample, lidar: Lidar) -> Verdict | None:
    """Verdict of images. Where these cannot be looked at, the check of cameras meets the error again and reports it."""
    with suppress(Exception):
        return half_turned(sample, lidar)
    return None


Pairs = Sequence[tuple[SweepFrame, Sweep]]


def _verdict(lidar: Lidar, level: Level, sentence: str, remedy: str | None, **figures: float) -> Verdict:
    return Verdict(NAME, lidar.name, level, sentence, None if remedy is None else f"{remedy} {MADE}", figures)


# ---- turns


def _several(sample: Sample, lidar: Lidar, pairs: Pairs) -> Verdict | None:
    ways = [abs(way) for _, sweep in pairs if (way := turns(sweep)) is not None]
    if ways and median(ways) > SEVERAL:
        sentence = f"A sweep of {lidar.name} holds {median(ways):.1f} turns of the lidar."
        return _verdict(
            lidar,
            Level.CERTAIN,
            sentence,
            "store each turn as a sweep of its own, with its own times and poses",
            turns=median(ways),
        )
    return _repeated(sample, lidar, pairs)


def _repeated(sample: Sample, lidar: Lidar, pairs: Pairs) -> Verdict | None:
    again = median(_again(lidar, sample.ordered(frame)) for frame, _ in pairs)
    if again > AGAIN:
        sentence = f"{100 * again:.0f} % of the rays of {lidar.name} have the direction of another ray of their sweep."
        remedy = "store each turn as a sweep of its own, and of several returns of a ray the strongest"
        return _verdict(lidar, Level.CERTAIN, sentence, remedy, again=again)
    return None


def _unknown_turn(lidar: Lidar) -> Verdict:
    sentence = f"{lidar.name} has no rows and columns, so no turn shows the times of its rays."
    return _verdict(lidar, Level.UNKNOWN, sentence, None)


def _again(lidar: Lidar, rays: Ordered) -> float:
    """The share of the rays that have another one of their ring and direction before them."""
    if not lidar.spins:  # a curve that crosses itself meets a direction again at another time
        return float(same_rays(rays.sweep.directions, rays.sweep.times).double().mean())
    apart = rays.azimuth[rays.order].diff()
    same = (rays.sweep.rings[rays.order].diff() == 0) & (apart < TOGETHER * 2 * math.pi / lidar.azimuth_steps)
    return float(same.double().mean()) if len(same) else 0.0


def _turning(sample: Sample, lidar: Lidar, pairs: Pairs) -> Verdict:
    ways = [way for _, sweep in pairs if (way := turns(sweep)) is not None]
    if not ways:
        return _verdict(lidar, Level.UNKNOWN, f"The rays of {lidar.name} do not turn steadily with time.", None)
    way = median(ways)
    if (way > 0) == lidar.clockwise and not sample.blamed("poses"):
        seen, said = ("counter-clockwise", "clockwise") if way > 0 else ("clockwise", "counter-clockwise")
        sentence = (
            f"By the times of its rays, {lidar.name} turns {seen}, {abs(way):.2f} turns a sweep, but it says {said}."
        )
        remedy = (
            "times of the rays are reversed, x and y of directions are exchanged, or clockwise is wrong: correct it"
        )
        return _verdict(lidar, Level.CERTAIN, sentence, remedy, turns=way)
    return _verdict(lidar, Level.RIGHT, f"A sweep of {lidar.name} is {abs(way):.2f} turns.", None, turns=way)


# ---- points that were moved


@dataclass(frozen=True)
class Moved:
    """The shift of points, in parts of the motion of the lidar since their own times."""

    part: float
    error: float  # standard error
    seconds: float  # after the middle of the sweep: to where they were moved
    way: float  # metres that the lidar moves during the sweep


def _moved(sample: Sample, lidar: Lidar, pairs: Pairs) -> Verdict | None:
    if sample.blamed("poses"):
        return None
    found = [moved for frame, sweep in pairs if (moved := moved_by(frame, sweep, lidar)) is not None]
    if not found:
        return None
    part, error, seconds, way = (
        median(getattr(m, name) for m in found) for name in ("part", "error", "seconds", "way")
    )
    one_time = median(_lasting(frame, sweep) for frame, sweep in pairs) < STILL
    compensated = BY[0] < part < BY[1] and part > SURE * error
    raw = abs(part) < 1 - BY[0] and error * SURE < 1
    figures = {"part": part, "error": error, "way_m": way}
    if compensated and not one_time:
        sentence = (
            f"The points of {lidar.name} are motion-compensated already ({part:.2f} of the {way:.2f} m that it moves in a sweep): "
            "their own times would move them again."
        )
        remedy = (
            "store points as they were measured, or give all rays of a sweep the time they were moved to, "
            f"{seconds:+.3f} s from its middle,"
        )
        return _verdict(lidar, Level.CERTAIN, sentence, remedy, **figures)
    if raw and one_time:
        sentence = (
            f"All rays of a sweep of {lidar.name} have one time, but it moves {way:.2f} m in a sweep and its points are not "
            "motion-compensated."
        )
        return _verdict(lidar, Level.CERTAIN, sentence, "give each ray the time when it was measured", **figures)
    if compensated:
        sentence = f"The points of {lidar.name} are motion-compensated, to the one time that all rays of a sweep have."
        return _verdict(lidar, Level.RIGHT, sentence, None, **figures)
    return None


def _lasting(frame: SweepFrame, sweep: Sweep) -> float:
    """The part of the sweep's duration that stamps of rays cover."""
    return float(sweep.times.max() - sweep.times.min()) / max(1e-9, frame.time_end - frame.time_start)


def moved_by(frame: SweepFrame, sweep: Sweep, lidar: Lidar) -> Moved | None:
    """Returns the motion that the points of a sweep show; None: the lidar stands, or too few points tell."""
    T = lidar.T_rig_lidar.double()
    seconds = frame.time_end - frame.time_start
    if seconds <= 0:
        return None
    velocity = velocity_of(invert(frame.T_world_rig_start.double() @ T) @ frame.T_world_rig_end.double() @ T, seconds)
    way = float(velocity[3:].norm()) * seconds
    points = (sweep.directions * sweep.ranges[:, None]).double()
    telling = sweep.returned & (sweep.ranges < NEAR) & (points[:, 2].abs() > FLAT) & (points[:, :2].norm(dim=1) > 1)
    if way < MOVES or int(telling.sum()) < FEWEST:
        return None
    some = telling.nonzero()[:, 0]
    some = some[:: max(1, len(some) // MOST)]
    late = _late(frame, sweep, lidar)[some]
    found = _regressed(points[some], sweep.rings[some], late, velocity)
    return Moved(found[0], found[1], -found[2] / found[0] if found[0] else 0.0, way)


def _late(frame: SweepFrame, sweep: Sweep, lidar: Lidar) -> Tensor:  # [R] seconds after the middle of the sweep
    """Delays by the rays' own times; where these are all the same, by the turn of the lidar."""
    if _lasting(frame, sweep) > STILL:
        return sweep.times - frame.time_mid
    azimuth = azimuth_elevation(sweep.directions)[:, 0].double()
    return (lidar.spin_fraction(azimuth) - 0.5) * (frame.time_end - frame.time_start)


def _regressed(
    points: Tensor,  # [n, 3] metres, as the capture has them
    rings: Tensor,  # [n]
    late: Tensor,  # [n] seconds
    velocity: Tensor,  # [6] of the lidar in its own axes
) -> tuple[float, float, float]:
    """Dependence of the points' elevation on how far they were moved: by their own times, its standard error, and alike
    for all (in seconds)."""
    x, y, z = points.unbind(1)
    flat, square = torch.hypot(x, y), points.square().sum(1)
    up = torch.stack([-z * x / flat, -z * y / flat, flat], dim=1) / square[:, None]  # change of elevation a metre
    speed = (up * (velocity[3:] + torch.linalg.cross(velocity[:3].expand_as(points), points))).sum(
        1
    )  # radians a second
    rows = torch.stack([late * speed, speed, torch.ones_like(speed)], dim=1)
    elevation = torch.atan2(z, flat)
    count = torch.bincount(rings).clamp(min=1).double()
    for values in (rows[:, 0], rows[:, 1], elevation):  # of each ring, only differences tell
        values -= (torch.bincount(rings, values) / count)[rings]
    rows = rows[:, :2]
    weights = torch.ones_like(elevation)
    for _ in range(4):
        H = (rows * weights[:, None]).T @ rows
        solved = torch.linalg.solve(
            H + 1e-12 * H.trace() * torch.eye(2).double(), (rows * weights[:, None]).T @ elevation
        )
        left = elevation - rows @ solved
        scale = 1.5 * float(left.abs().median()) + 1e-6
        weights = (1 + (left / scale) ** 2) ** -1
    error = scale * float(torch.linalg.inv(H)[0, 0].clamp(min=0).sqrt())
    return float(solved[0]), error, float(solved[1])
