# SPDX-License-Identifier: Apache-2.0
"""Poses of other times than their sweeps: where speed or turning changes, the sweeps' motions are those of the path a little later or
earlier. And poses whose heading drifts with the way.

Letters: m motions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.motion import Motion, Motions
from nurec_lite.capture.checks.motions import confirmed, more_motions
from nurec_lite.capture.checks.register import log
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.trajectory import Trajectory, trajectory_of
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import invert

LEAST = 0.06  # seconds; right drives are within 0.03
PERHAPS, SURE = 2.5, 3.5  # standard errors, of a few motions and of twice as many
METRES, RADIANS = 0.015, math.radians(0.04)  # usual errors of a motion along the way and of its turn to the side
LONGER, TURNING = 0.03, math.radians(0.03)  # of the way, and a metre: other errors of poses that explain them as well
NOISE = 0.6  # of the usual errors, at least
STEP = 0.1  # seconds, of a difference quotient
FEWEST = 3  # motions
DRIFT, EACH, MANY = math.radians(0.014), math.radians(0.007), 0.75  # a metre: the median, most motions, and their share
LONG, WAY = 3.0, 15.0  # metres of a motion that tells a drift, and of all of them
REMEDY = f"estimate them from the sweeps by data.poses.source=lidar, or correct them {MADE}"


@dataclass(frozen=True)
class Delay:
    """Seconds that poses are late, with their standard error."""

    seconds: float
    error: float

    def more_than(self, errors: float) -> bool:
        return abs(self.seconds) > max(LEAST, errors * self.error)


def delayed(sample: Sample, lidar: Lidar, motions: Motions, check: str) -> Verdict | None:
    """A finding about poses that seem right otherwise; twice as many motions confirm it."""
    path, found = trajectory_of(sample.capture), None
    first = _delay(sample, lidar, motions.all, path)
    if first is not None and first.more_than(PERHAPS):
        found = _delay(sample, lidar, more_motions(sample, lidar), path)
    if found is None or not found.more_than(SURE):
        return None
    side, order = ("earlier", "before") if found.seconds > 0 else ("later", "after")
    sentence = (
        f"The poses are those of about {abs(found.seconds):.2f} s {side}: the sweeps of {lidar.name} change their speed so much {order} "
        "the poses do."
    )
    remedy = (
        f"give each frame the pose of its own time {MADE}, or estimate poses from the sweeps by data.poses.source=lidar"
    )
    return Verdict(check, lidar.name, Level.LIKELY, sentence, remedy, {"late_s": found.seconds, "error_s": found.error})


def _delay(sample: Sample, lidar: Lidar, motions: Sequence[Motion], path: Trajectory) -> Delay | None:
    """Least squares, with a longer way and a drifting heading as other causes; None: too few motions."""
    frames, (first, last) = sample.of_lidar(lidar.name), path.span
    middles = [[frames[i].time_mid for i in m.frames] for m in motions]
    inside = [k for k, (a, b) in enumerate(middles) if first <= a - STEP and b + STEP <= last]
    if len(inside) < FEWEST:
        return None
    some = Motions([motions[k] for k in inside])
    off, ends = _off(some), torch.tensor([middles[k] for k in inside], dtype=torch.float64)
    change = (_motion(path, ends + STEP) - _motion(path, ends - STEP)) / (2 * STEP)
    return _solved(off, change, log(some.of_rig(some.posed))[:, 3].abs())


def _off(motions: Motions) -> Tensor:  # [m, 6]
    """Motions of the rig by the sweeps, less those by the poses."""
    return log(motions.of_rig(motions.measured)) - log(motions.of_rig(motions.posed))


def _motion(path: Trajectory, ends: Tensor) -> Tensor:  # [m, 2] seconds -> [m, 6]
    return log(invert(path.at(ends[:, 0])) @ path.at(ends[:, 1]))


def _solved(off: Tensor, change: Tensor, ways: Tensor) -> Delay:  # [m, 6], [m, 6] a second, [m] metres
    none = torch.zeros_like(ways)
    along = torch.stack([change[:, 3], LONGER * ways, none, off[:, 3]], dim=1) / METRES
    aside = torch.stack([change[:, 2], none, TURNING * ways, off[:, 2]], dim=1) / RADIANS
    rows, wanted = torch.cat([along, aside]).split([3, 1], dim=1)
    H = rows.T @ rows + torch.diag(torch.tensor([1e-6, 1.0, 1.0], dtype=torch.float64))
    x = torch.linalg.solve(H, rows.T @ wanted)
    scatter = max(NOISE, float((wanted - rows @ x).square().mean().sqrt()))
    return Delay(float(x[0]), scatter * float(torch.linalg.inv(H)[0, 0].sqrt()))


# ---- headings that drift


def turning(sample: Sample, lidar: Lidar, motions: Motions, check: str) -> Verdict | None:
    """A finding about poses that seem right otherwise."""
    drift = confirmed(sample, lidar, motions, _drift)
    if drift is None:
        return None
    side = "left" if drift > 0 else "right"
    sentence = (
        f"The heading of the poses drifts to the {side}: they turn farther than the sweeps of {lidar.name}, by "
        f"{math.degrees(abs(drift)):.3f}° a metre."
    )
    return Verdict(check, lidar.name, Level.LIKELY, sentence, REMEDY, {"drift_deg_m": math.degrees(drift)})


def _drift(motions: Motions) -> float | None:
    """Radians a metre that the poses turn farther to the left; None: too few, or too little to tell."""
    ways = log(motions.of_rig(motions.posed))[:, 3:].norm(dim=1)
    long = ways > LONG
    if int(long.sum()) < FEWEST or float(ways[long].sum()) < WAY:
        return None
    drifts = -(_off(motions)[:, 2] / ways)[long]
    median = float(drifts.quantile(0.5))
    sided = float((math.copysign(1.0, median) * drifts > EACH).double().mean())
    return median if abs(median) > DRIFT and sided >= MANY else None
