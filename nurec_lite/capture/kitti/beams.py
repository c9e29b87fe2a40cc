# SPDX-License-Identifier: Apache-2.0
"""Beams of a drive: the elevations that its sweeps have in common, and the beam of each ring of a sweep.

Most sweeps of a drive have as many rings as the lidar has beams. A sweep may lack a ring without returns, or have
one too many, where noise cut a ring in two. So rings are compared by their elevations, not counted.
"""

from collections import Counter

import numpy as np
import torch
from torch import Tensor

_GAP = 1.0  # cost of a ring without a beam or a beam without a ring, in distances between beams
_ANCHOR = 0.05  # cost of a distance between a ring and its beam
_SPARE = 2  # rings and beams that may be left out at one place, beyond the difference of their numbers


def ring_medians(
    elevation: Tensor,  # [n] radians, in the order of the file
    turns: Tensor,  # [n] not decreasing, each number from 0 occurs
) -> Tensor:  # [rings] radians
    return torch.stack([ring.median() for ring in elevation.split(torch.bincount(turns).tolist())])


def drive_beams(
    sweeps: list[Tensor],  # each [rings] elevations in radians, from the top
) -> Tensor:  # [B] elevations from the top
    """Median elevations of the rings of all sweeps; the lasers of a beam do not sit in the origin, so its elevation changes with
    the range, by half a degree from street to street. A ring that only one of several sweeps has is noise."""
    counts = Counter(len(rings) for rings in sweeps)
    usual = [count for count, often in counts.items() if often >= min(2, len(sweeps))]
    if usual:
        return torch.stack([rings for rings in sweeps if len(rings) == max(usual)]).median(0).values
    beams = _union(sweeps)
    rows = [_matches(rings, beams) for rings in sweeps]
    seen = torch.stack([torch.bincount(row[row >= 0], minlength=len(beams)) for row in rows]).sum(0)
    kept = seen >= min(2, len(sweeps) - 1)
    values = torch.full((len(sweeps), len(beams)), torch.nan, dtype=beams.dtype)
    for value, rings, row in zip(values, sweeps, rows, strict=True):
        value[row[row >= 0]] = rings[row >= 0]
    return values.nanmedian(0).values[kept]


def _union(sweeps: list[Tensor]) -> Tensor:  # [beams] elevations from the top
    """The sweep with most rings, and the rings that only other sweeps have."""
    longest = max(range(len(sweeps)), key=lambda i: len(sweeps[i]))
    beams = sweeps[longest]
    for rings in sweeps:
        other = rings[_matches(rings, beams) < 0]
        beams = torch.cat([beams, other]).sort(descending=True).values
    return beams


def align(
    rings: Tensor,  # [n] elevations of a sweep, from the top
    beams: Tensor,  # [B] elevations of the drive, from the top
) -> Tensor:  # [n] int64: the beam of each ring
    """Beam of each ring, in the order of the rings; a ring without a beam of its own has the beam of the ring with the nearest
    elevation."""
    if len(rings) == len(beams):
        return torch.arange(len(beams))
    match = _matches(rings, beams)
    known = (match >= 0).nonzero()[:, 0]
    return match[known[(rings[:, None] - rings[known]).abs().argmin(1)]]


def _matches(
    rings: Tensor,  # [n] from the top
    beams: Tensor,  # [B] from the top
) -> Tensor:  # [n] int64, -1: none
    """Pairs in the same order at the least cost. A whole part of a sweep may be shifted by more than a beam, where all is near:
    so it costs little how far a ring lies from its beam, but much how this changes from one ring to the next.
    """
    n, count = len(rings), len(beams)
    gap = _GAP * float(beams.diff().abs().median()) if count > 1 else 1.0
    offset = (rings[:, None] - beams).numpy()
    cost, before = _ANCHOR * np.abs(offset), np.full((n, count, 2), -1)
    cost += gap * np.minimum(np.arange(n)[:, None], n) + gap * np.arange(
        count
    )  # rings and beams left out before this pair
    steps = [(1, j) for j in range(1, max(1, count - n) + _SPARE + 1)] + [
        (i, 1) for i in range(2, max(1, n - count) + _SPARE + 1)
    ]
    for ring in range(1, n):
        for i, j in steps:
            if i <= ring and j < count:
                change = np.abs(offset[ring, j:] - offset[ring - i, :-j])
                other = cost[ring - i, :-j] + change + _ANCHOR * np.abs(offset[ring, j:]) + gap * (i + j - 2)
                better = np.flatnonzero(other < cost[ring, j:])
                cost[ring, j + better] = other[better]
                before[ring, j + better] = np.stack([np.full(len(better), ring - i), better], axis=1)
    cost += gap * (np.arange(n)[::-1, None] + np.arange(count)[::-1])  # and after it
    return torch.from_numpy(_trace(before, *np.unravel_index(int(cost.argmin()), cost.shape)))


def _trace(before: np.ndarray, ring: np.intp, beam: np.intp) -> np.ndarray:
    match = np.full(len(before), -1)
    while ring >= 0:
        match[ring] = beam
        ring, beam = before[ring, beam]
    return match
