# SPDX-License-Identifier: Apache-2.0
"""Turns of the azimuth in files that hold ring after ring, and where the rings begin."""

import math

import torch
from torch import Tensor

from nurec_lite.capture.kitti.beams import ring_medians
from nurec_lite.geometry.lidar import wrap_angle

TURN = 2 * math.pi
BACKWARD = math.radians(2)  # noise: real files step back by up to 0.02 degrees within a ring
_LONG = 10  # times the usual step
_STRAY = 3  # points
_CANDIDATES = 6  # degrees where rings may begin


def find_turns(
    azimuth: Tensor,  # [n] radians, in the order of the file
    start: float = 0.0,  # radians, where a ring begins
    sense: int = 1,  # -1: azimuth falls within a ring
) -> Tensor:  # [n] int64, from 0, not decreasing
    """Number of the turn of each point. Every step goes forward, so a step that seems to go back by more than noise begins the next ring.

    A ring without a single return leaves no trace.
    """
    if start or sense < 0:
        azimuth = (azimuth - start) * sense
    first = azimuth[:1] % TURN
    step = torch.diff(azimuth) % TURN
    step = torch.where(step > TURN - BACKWARD, step - TURN, step)
    turns = torch.cat([first, first + step.cumsum(0)]).div(TURN).floor().long()
    turns = turns.cummax(0).values  # noise at azimuth 0 must not go back to the ring before
    return _without_ends(turns - turns[0]) if start else turns - turns[0]


def _without_ends(turns: Tensor) -> Tensor:
    """Beginnings of rings without false ones: a beginning is uncertain by one step, so the first or last point may seem
    to be its own ring."""
    counts = torch.bincount(turns)
    first = int(len(counts) > 1 and counts[0] <= _STRAY)
    last = len(counts) - 1 - int(len(counts) > 1 and counts[-1] <= _STRAY)
    return turns.clamp(first, max(first, last)) - first


def ring_start(
    sweeps: list[Tensor],  # each [n, 2] azimuth and elevation, in the order of its file
    sense: int,  # -1: azimuth falls within a ring
) -> float:  # radians
    """Azimuth where rings begin: 0, as in KITTI's files, if the steps there go through all elevations. Otherwise rings begin where steps go
    through most elevations, or where most long steps pass, if points were removed: where there are fewest rings, as a wrong place cuts one
    in two."""
    steps = torch.cat([_steps(angles, sense) for angles in sweeps])
    rise = _touching(steps, steps[:, 2])
    whole = sum(
        float(angles[-(len(angles) // 100 + 1) :, 1].median() - angles[: len(angles) // 100 + 1, 1].median())
        for angles in sweeps
    )
    share = rise * (math.copysign(1, whole) / math.degrees(max(abs(whole), 1e-6)))
    if min(float(share[0]), float(share[-1])) > 0.5:
        return 0.0
    long = steps[:, 1] > _LONG * steps[:, 1].median()
    through = [_through(steps, degree, whole) for degree in share.topk(_CANDIDATES).indices.tolist()]
    wide = long & _touches(steps, int(_touching(steps, long.double()).argmax()))
    starts = [sense * _between(steps[mask]) for mask in (*through, wide) if mask.any()]
    return min((*starts, 0.0), key=lambda start: _count_and_spread(sweeps, start, sense))


def _through(steps: Tensor, degree: int, whole: float) -> Tensor:  # [m] bool
    """Steps that touch a degree and go as far in elevation, and the same way, as those from ring to ring."""
    over = _touches(steps, degree) & (steps[:, 2] * whole > 0)
    return over & (steps[:, 2].abs() >= 0.5 * steps[over, 2].abs().quantile(0.9)) if over.any() else over


def _steps(
    angles: Tensor,  # [n, 2]
    sense: int,
) -> Tensor:  # [m, 3] degrees: azimuth in the rings' own sense, 0 to 360, step to the next point, change of elevation
    azimuth = torch.rad2deg(angles[:, 0] * sense) % 360
    forward = azimuth.diff() % 360
    steps = torch.stack([azimuth[:-1], forward, torch.rad2deg(angles[:, 1].diff())], dim=1)
    return steps[forward < 360 - math.degrees(BACKWARD)]


def _touching(
    steps: Tensor,  # [m, 3]
    values: Tensor,  # [m]
) -> Tensor:  # [360] sum of the values of all steps that touch a degree
    first = steps[:, 0].floor().long()
    last = (steps[:, 0] + steps[:, 1]).floor().long() + 1
    change = torch.zeros(2 * 360 + 1, dtype=torch.float64)
    change.index_add_(0, first, values).index_add_(0, last, -values)
    return change.cumsum(0)[:-1].view(2, 360).sum(0)


def _touches(steps: Tensor, degree: int) -> Tensor:  # [m] bool
    ahead = (degree - steps[:, 0].floor()) % 360
    return ahead <= (steps[:, 0] + steps[:, 1]).floor() - steps[:, 0].floor()


def _between(
    steps: Tensor,  # [m, 3] that pass where rings begin
) -> float:  # radians: where most of them pass
    middles = torch.deg2rad(steps[:, 0] + 0.5 * steps[:, 1])
    centre = torch.atan2(middles.sin().mean(), middles.cos().mean())
    ends = wrap_angle(torch.deg2rad(steps[:, 0]) - centre)
    begins = ends + torch.deg2rad(steps[:, 1])
    places, index = torch.cat([ends, begins]).sort()
    inside = torch.where(index < len(ends), 1, -1).cumsum(0)
    most = int(inside.argmax())
    return float(centre + 0.5 * (places[most] + places[most + 1]))


def _count_and_spread(sweeps: list[Tensor], start: float, sense: int) -> tuple[int, float]:
    """Rings, and the mean deviation of points from the elevation of their ring in radians."""
    count, spread = 0, 0.0
    for angles in sweeps:
        turns = find_turns(angles[:, 0], start, sense)
        count += int(turns[-1]) + 1
        spread += float((angles[:, 1] - ring_medians(angles[:, 1], turns)[turns]).abs().mean())
    return count, spread
