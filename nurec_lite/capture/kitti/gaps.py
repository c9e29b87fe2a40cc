# SPDX-License-Identifier: Apache-2.0
"""Steps between neighbours of a ring, and the rays that are missing in long ones."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.capture.kitti.turns import BACKWARD, TURN
from nurec_lite.geometry.lidar import Sweep, unit_directions

_GAP = 1.5  # nominal steps; a longer step lacks rays
_FINEST = TURN / 8192  # radians between rays; at 5 turns a second a beam sends 4000


@dataclass(frozen=True)
class Steps:
    """Steps from each point of a sweep to the next one of its ring; the first point follows the last."""

    after: Tensor  # [n] int64, index of the next point
    gap: Tensor  # [n] radians of azimuth, forward
    nominal: Tensor  # [] radians between two rays: the mean of the steps that are no gaps


def ring_steps(
    angles: Tensor,  # [n, 2] azimuth and elevation, ring after ring, each by rising azimuth
    rings: Tensor,  # [n] not decreasing
) -> Steps:
    """Steps of a sweep. The encoder is quantised to 0.09 degrees, so single steps are uneven and their mean is nominal."""
    after = _next_in_ring(rings)
    gap = (angles[after, 0] - angles[:, 0]) % TURN
    gap = torch.where(gap > TURN - BACKWARD, torch.zeros_like(gap), gap)
    gap = torch.where(after == torch.arange(len(after)), torch.full_like(gap, TURN), gap)
    nominal = gap[gap < _GAP * gap.median()].mean().clamp(min=_FINEST)  # NaN where equal angles have no mean step
    return Steps(after, gap, nominal)


def missing_angles(
    angles: Tensor,  # [n, 2] as of ring_steps
    rings: Tensor,  # [n]
) -> tuple[Tensor, Tensor]:  # angles [m, 2] and rings [m] of the rays that did not return
    """Fills each gap between neighbours of a ring with rays one step apart, at an elevation interpolated across the gap."""
    steps = ring_steps(angles, rings)
    after, gap, nominal = steps.after, steps.gap, steps.nominal
    n_steps = torch.where(gap > _GAP * nominal, (gap / nominal).round(), torch.ones_like(gap)).long()
    left = torch.repeat_interleave(torch.arange(len(gap)), n_steps - 1)
    first = (n_steps - 1).cumsum(0) - (n_steps - 1)
    fraction = (torch.arange(len(left)) - first[left] + 1).double() / n_steps[left]
    azimuth = angles[left, 0] + fraction * gap[left]
    elevation = torch.lerp(angles[left, 1], angles[after[left], 1], fraction)
    return torch.stack([torch.remainder(azimuth + math.pi, TURN) - math.pi, elevation], dim=-1), rings[left]


def whole_sweep(
    angles: Tensor,  # [n, 2] azimuth and elevation of returns, in any order
    ranges: Tensor,  # [n] metres
    intensities: Tensor,  # [n] 0 to 1
    times: Tensor,  # [n] seconds
    rings: Tensor,  # [n] beams
    clock: Callable[[Tensor, Tensor], Tensor],  # azimuths [m], beams [m] -> seconds [m] when the lidar looks there
    own: Tensor | None = None,  # [n] bool: returns of the vehicle itself, which are neither returns nor empty
) -> Sweep:
    """The whole sweep: returns and the rays between them that did not return, beam after beam, each by its azimuth."""
    order = torch.argsort(rings * 8 + angles[:, 0] % TURN, stable=True)
    more, more_rings = missing_angles(angles[order], rings[order])
    order = order if own is None else order[~own[order]]
    n, none = len(order), torch.zeros(len(more))
    return Sweep(
        directions=torch.cat([unit_directions(angles[order]), unit_directions(more)]).float(),
        ranges=torch.cat([ranges[order].float(), none]),
        intensities=torch.cat([intensities[order], none]),
        times=torch.cat([times[order], clock(more[:, 0], more_rings)]),
        rings=torch.cat([rings[order], more_rings]),
        returned=torch.arange(n + len(more)) < n,
    )


def _next_in_ring(
    rings: Tensor,  # [n] not decreasing
) -> Tensor:  # [n] index of the following point of the same ring; the last point's successor is the first
    n = len(rings)
    first = torch.searchsorted(rings, rings)
    last = torch.searchsorted(rings, rings, right=True) - 1
    index = torch.arange(n)
    return torch.where(index == last, first, index + 1)
