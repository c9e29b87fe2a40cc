# SPDX-License-Identifier: Apache-2.0
"""Chains of groups that are one object, joined: its parts next to each other, and its ways before and after a time unseen."""

import math

import numpy as np
from numpy.typing import NDArray

from nurec_lite.capture.tracking.cloud import Cloud
from nurec_lite.capture.tracking.clusters import Groups
from nurec_lite.capture.tracking.ends import are_ends
from nurec_lite.capture.tracking.follow import LATE, Chain, chain
from nurec_lite.capture.tracking.smooth import Doubles

SHORTEST = 3  # groups
JUMP, LARGE = 0.4, 1.2  # metres between the extents of groups of vehicles, and of these
BACK, UNSURE = 5, 0.5  # groups that tell the velocity, and metres a second that it may be wrong
FAST = 3.0  # metres a second: faster objects come into view part by part
BESIDE = 1.2  # metres between the extents of parts of one object
MOVES = 0.7  # metres a second that tell the direction of a way
TOGETHER = 2.0  # metres a second that their velocities may differ
ASIDE = 1.7  # metres across the way between their middles at most: the next lane is further
LONGEST = 12.0  # metres of an object
UNSEEN = 2.0  # seconds
APART = 1.5, 1.5  # metres, and metres a second unseen, between where an object is expected and where it is


def joined(cloud: Cloud, groups: Groups, followed: list[NDArray[np.int64]]) -> list[list[Chain]]:
    """Chains of each object, the longest first."""
    parts = [part for numbers in followed if len(numbers) >= SHORTEST for part in _without_jumps(groups, numbers)]
    chains = [chain(groups, numbers) for numbers in parts if len(numbers) >= SHORTEST]
    chains.sort(key=lambda c: -int(groups.sizes[c.groups].sum()))
    objects: list[list[Chain]] = []
    for new in chains:
        home = next((o for o in objects if any(_one(cloud, groups, c, new) for c in o)), None)
        if home is None:
            objects.append([new])
        else:
            home.append(new)
    return objects


def _without_jumps(groups: Groups, numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Parts of a slow chain between jumps to another vehicle: there, extents lie next to each other, not upon each other."""
    one = chain(groups, numbers)
    if len(numbers) <= BACK + 1 or float(np.median(np.linalg.norm(one.rates, axis=1))) > FAST:
        return [numbers]
    times, places = groups.times[numbers], groups.places[numbers]
    late = np.diff(times)[BACK:, None]
    step = late * ((places[BACK:-1] - places[: -BACK - 1]) / (times[BACK:-1] - times[: -BACK - 1])[:, None])
    a, b = numbers[BACK:-1], numbers[BACK + 1 :]
    gap = np.maximum(groups.low[b] - groups.high[a] - step, groups.low[a] + step - groups.high[b])
    large = np.minimum(*((groups.high[i] - groups.low[i]).max(1) for i in (a, b))) > LARGE
    return np.split(numbers, np.flatnonzero((gap > JUMP + UNSURE * late).any(1) & large) + BACK + 1)


def _one(cloud: Cloud, groups: Groups, a: Chain, b: Chain) -> bool:
    if a.times[-1] < b.times[0]:
        return _goes_on(a, b)
    if b.times[-1] < a.times[0]:
        return _goes_on(b, a)
    return _beside(groups, a, b) or are_ends(cloud, groups, a, b)


def _goes_on(a: Chain, b: Chain) -> bool:
    """Whether b begins where a is expected to be, after a time without returns."""
    gap = b.times[0] - a.times[-1]
    if gap > UNSEEN or len(a.times) < 4 or len(b.times) < 4:
        return False
    away = a.places[-1] + 0.5 * gap * a.rates[-1] - (b.places[0] - 0.5 * gap * b.rates[0])
    if math.hypot(*away) >= APART[0] + APART[1] * gap:
        return False
    return math.hypot(*(a.rates[-3:].mean(0) - b.rates[:3].mean(0))) < TOGETHER + 2 * gap


def _beside(groups: Groups, a: Chain, b: Chain) -> bool:
    """Whether parts move together, and are no further apart than an object is long."""
    known = (b.times >= a.times[0] - LATE) & (b.times <= a.times[-1] + LATE)
    if known.sum() < 0.5 * len(b.times) or _away(a, b) >= BESIDE:
        return False
    near = np.abs(a.times[:, None] - b.times[known]).argmin(0)
    i, j = a.groups[near], b.groups[known]
    shift = (b.times[known] - a.times[near])[:, None] * a.rates[near]
    low_a, high_a = groups.low[i] + shift, groups.high[i] + shift
    gap = np.maximum(np.maximum(groups.low[j] - high_a, low_a - groups.high[j]), 0)
    whole = np.maximum(groups.high[j], high_a) - np.minimum(groups.low[j], low_a)
    rate = np.linalg.norm(a.rates[near] - b.rates[known], axis=1)
    close = (np.linalg.norm(gap, axis=1) < BESIDE) & (np.linalg.norm(whole, axis=1) < LONGEST)
    one = _across(a, groups.places[j] - groups.places[i] - shift, near) < ASIDE
    return bool((close & one & (rate < TOGETHER)).mean() > 0.6)


def _away(a: Chain, b: Chain) -> float:
    """Metres between the extents of both over all times, at least."""
    gaps = (max(*pair, 0.0) for pair in zip(b.low - a.high, a.low - b.high, strict=True))
    return math.hypot(*gaps) - a.coast


def _across(
    a: Chain,
    steps: Doubles,  # [n, 2] metres
    at: NDArray[np.int64],  # [n] moments of the chain
) -> Doubles:  # [n] metres across the way; 0 where a chain hardly moves
    speed = np.linalg.norm(a.rates[at], axis=1)
    aside = np.abs(steps[:, 0] * a.rates[at, 1] - steps[:, 1] * a.rates[at, 0]) / np.maximum(speed, 1e-6)
    return np.where(speed > MOVES, aside, 0.0)
