# SPDX-License-Identifier: Apache-2.0
"""Poses that jump by centimetres or parts of a degree, and single poses that are off: accelerations say where, and sweeps decide.

Letters: n frames of a lidar.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.capture.checks.motions import motion_between
from nurec_lite.capture.checks.paths import NAME, REMEDY, Path
from nurec_lite.capture.checks.register import exp, log
from nurec_lite.capture.checks.sample import BY_SWEEPS, JUMP_AT, JUMP_END, Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import invert

FROM_SWEEPS = f"estimate poses from the sweeps by data.poses.source=lidar, or {REMEDY}"
# a step may be so far from its neighbours': roll and pitch, yaw, metres,
LEAST = math.radians(0.15), math.radians(0.1), 0.03
NOISE = 4.5, 4.5, 5.0  # and so many times the median; longer motions by the square root of their steps more
REACH = 3  # neighbours of a step on each side that the expected motion comes from, at most
WAY = 2  # the part of a step that is no turn
CLOSER = 0.4  # of the distance from the neighbours' motion to that of the poses: the sweeps move as the neighbours
BACK = 0.3  # of a jump is left where the steps after it take it back
MOST = 2  # motions that the sweeps are asked for
LONGEST = 3  # steps of such a motion: poses between frames are interpolated, which smears a jump
SURER = 1.2  # times as far off as the shorter ones in it is a longer motion, at least


@dataclass(frozen=True)
class Suspect:
    """A motion from a frame to one of the next that its neighbours contradict."""

    first: int  # places of the frames
    last: int
    off: Tensor  # [3, 3] roll and pitch, yaw, way: by how much it differs
    excess: Tensor  # [3] the same in parts of the largest usual difference
    alone: int | None = None  # place of the frame with a pose that is off alone


def small_jumps(sample: Sample, path: Path) -> Iterator[Verdict]:
    """A finding about the worst step that the sweeps do not show; none where an earlier check names a jump."""
    lidar = next((lidar for lidar in sample.capture.lidars if lidar.name == path.sensor), None)
    named = sample.jumps()
    for suspect in suspects(path)[:MOST] if lidar else []:
        if lidar and not any(_about(path, suspect, *span) for span in named) and _refuted(sample, lidar, suspect):
            yield _verdict(path, suspect)
            return


def _about(path: Path, suspect: Suspect, first: float, last: float) -> bool:
    """Whether times reach into a motion or the steps beside it."""
    before, after = max(0, suspect.first - 1), min(len(path.times) - 1, suspect.last + 1)
    return float(path.times[before]) <= last and first <= float(path.times[after])


def suspects(path: Path) -> list[Suspect]:
    """The worst comes first; a longer motion only where it is farther off than those in it."""
    off = _contradicted(path)  # [n - 1, 3, 3]
    if len(off) < 3 or float(path.times.diff().amin()) <= 0:
        return []
    usual = off[1:-1].norm(dim=2).quantile(0.5, dim=0)
    bound = torch.tensor(LEAST, dtype=torch.float64) + torch.tensor(NOISE, dtype=torch.float64) * usual
    found, within = list[Suspect](), torch.zeros(len(off), dtype=torch.float64)
    for steps in range(1, min(LONGEST, len(off)) + 1):
        sums = off.unfold(0, steps, 1).sum(-1)
        excess = sums.norm(dim=2) / bound  # of one step
        worst = excess.amax(1)
        far = worst > (SURER * within).clamp(min=math.sqrt(steps))
        for i in far.nonzero()[:, 0].tolist():
            alone = _alone(sums, i, steps, int(excess[i].argmax()))
            found.append(Suspect(i, i + steps, sums[i], excess[i] / math.sqrt(steps), alone))
        within = torch.maximum(worst, within).unfold(0, 2, 1).amax(1) if len(worst) > 1 else worst[:0]
    return sorted(found, key=lambda s: -float(s.excess.max()))


def _contradicted(path: Path) -> Tensor:  # [n - 1, 3, 3]
    """Roll and pitch, yaw and way of steps, without those that as many steps before as after expect; 0 at the ends."""
    seconds = path.times.diff()[:, None]
    steps = log(invert(path.poses[:-1]) @ path.poses[1:])
    rates, n = steps / seconds, len(steps)
    off, place = torch.zeros_like(steps), torch.arange(n)
    reach = torch.minimum(place, n - 1 - place).clamp(max=REACH)
    for r in range(1, int(reach.max()) + 1 if n else 0):
        at = place[reach == r]
        beside = rates[at[:, None] + torch.tensor([k for k in range(-r, r + 1) if k])]
        off[at] = steps[at] - beside.quantile(0.5, dim=1) * seconds[at]
    return _parts(off)


def _parts(steps: Tensor) -> Tensor:  # [n, 6] -> [n, 3, 3]
    yaw = steps[:, :3] * torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    return torch.stack([steps[:, :3] - yaw, yaw, steps[:, 3:]], dim=1)


def _alone(sums: Tensor, i: int, steps: int, k: int) -> int | None:
    """The place of the pose that is off alone, if the motion before or after takes this one back."""
    for other, frame in ((i + steps, i + steps), (i - steps, i)):
        if 0 <= other < len(sums) and float((sums[i, k] + sums[other, k]).norm()) < BACK * float(sums[i, k].norm()):
            return frame
    return None


def _refuted(sample: Sample, lidar: Lidar, suspect: Suspect) -> bool:
    """Whether the sweeps move as the neighbours make one expect."""
    motion = motion_between(sample, lidar, suspect.first, suspect.last, lambda T: _steady(lidar, T, suspect))
    if motion is None or not motion.known:
        return False
    T = lidar.T_rig_lidar.double()
    posed, measured = (_parts(log(T @ M @ invert(T))[None])[0] for M in (motion.posed, motion.fit.T_a_b))
    k = int(suspect.excess.argmax())
    off = suspect.off[k]
    return float((measured[k] - posed[k] + off).norm()) < CLOSER * float(off.norm())


def _steady(lidar: Lidar, posed: Tensor, suspect: Suspect) -> Tensor:
    """The motion of the lidar without the jump."""
    T = lidar.T_rig_lidar.double()
    return invert(T) @ exp(log(T @ posed @ invert(T)) - torch.cat([suspect.off[:WAY].sum(0), suspect.off[WAY]])) @ T


def _verdict(path: Path, suspect: Suspect) -> Verdict:
    k = int(suspect.excess.argmax())
    way = k == WAY
    amount = float(suspect.off[k].norm()) if way else math.degrees(float(suspect.off[k].norm()))
    first, last = (path.frames[i].index for i in (suspect.first, suspect.last))
    by = f"{amount:.2f} m" if way else f"{amount:.1f}°"
    if suspect.alone is not None:
        sentence = f"The pose of frame {path.frames[suspect.alone].index} of {path.sensor} is {'off' if way else 'turned'} by about {by}"
    else:
        where = f"before frame {last}" if suspect.last == suspect.first + 1 else f"between frames {first} and {last}"
        sentence = f"The poses {'jump' if way else 'turn at once'} by {by} {where} of {path.sensor}"
    times = {JUMP_AT: float(path.times[suspect.first]), JUMP_END: float(path.times[suspect.last]), BY_SWEEPS: 1.0}
    figures = {"jump_m" if way else "turn_deg": amount} | times
    return Verdict(NAME, path.sensor, Level.LIKELY, f"{sentence}; its sweeps show no such step.", FROM_SWEEPS, figures)
