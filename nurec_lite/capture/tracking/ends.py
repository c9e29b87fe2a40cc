# SPDX-License-Identifier: Apache-2.0
"""Front and rear of one slow long vehicle: only they seem to move, since the side between them moves along itself.

Letters: n returns.
"""

from dataclasses import dataclass

import numpy as np

from nurec_lite.capture.tracking.boxes import turned
from nurec_lite.capture.tracking.cloud import Cloud
from nurec_lite.capture.tracking.clusters import Groups
from nurec_lite.capture.tracking.follow import Chain
from nurec_lite.capture.tracking.grow import HIGHEST, LONGEST
from nurec_lite.capture.tracking.smooth import Doubles

SLOW = 5.0  # metres a second: a faster vehicle soon has left its place, and its side moves for certain
SAMPLES = 10  # moments that are looked at
SECONDS = 0.65  # that both ends are seen together
WIDEST = 2.5  # metres between the middles of both ends, across the way
AROUND, ASIDE = 0.4, 0.7  # metres from the side that the lidar sees, and between both ends there
OPEN = 0.8  # metres along without a return: cars of a queue are further apart
CHANGE = 0.4  # metres from the usual length at most
TOGETHER = 2.0  # metres a second that the velocities of both ends differ
CUT = 0.15  # metres below the highest beam: vehicles that reach so high may be higher
NEAR = 0.4  # sweeps before and after, of returns of one moment
SHARE = 0.6  # of the moments that show a side without a gap


@dataclass(frozen=True, eq=False)
class _Lane:
    """Axes along and across the way of both ends."""

    middle: Doubles  # [2] metres
    yaw: float  # radians

    def own(self, points: Doubles) -> Doubles:  # [n, 2] metres along and across
        return turned(points - self.middle, np.full(len(points), self.yaw))


def are_ends(cloud: Cloud, groups: Groups, a: Chain, b: Chain) -> bool:
    """Whether two chains are the front and the rear of one vehicle: the side between them is closed, high, and keeps its length."""
    first, last = max(a.times[0], b.times[0]), min(a.times[-1], b.times[-1])
    if last - first < SECONDS or not _may_be(a, b, 0.5 * (first + last)):
        return False
    known: list[float] = []
    for i, time in enumerate(np.linspace(first, last, SAMPLES)):
        length = _length(cloud, groups, a, b, time)
        known += [] if length is None else [length]
        if len(known) + SAMPLES - 1 - i < SHARE * SAMPLES:
            return False
    return bool((np.abs(np.array(known) - np.median(known)) < CHANGE).sum() >= SHARE * SAMPLES)


def _may_be(a: Chain, b: Chain, time: float) -> bool:
    i, j = (int(np.abs(one.times - time).argmin()) for one in (a, b))
    (x, y), (u, v) = b.places[j] - a.places[i], b.rates[j] - a.rates[i]
    return bool(abs(x) < LONGEST and abs(y) < LONGEST and abs(u) < 2 * TOGETHER and abs(v) < 2 * TOGETHER)


def _length(cloud: Cloud, groups: Groups, a: Chain, b: Chain, time: float) -> float | None:
    """Metres from the rear to the front at a time; None where the side between them is open or low."""
    i, j = (int(np.abs(one.times - time).argmin()) for one in (a, b))
    rate, apart = a.rates[i] + b.rates[j], b.places[j] - a.places[i]
    if np.linalg.norm(rate) > 2 * SLOW or np.linalg.norm(a.rates[i] - b.rates[j]) > TOGETHER:
        return None
    lane = _Lane(a.places[i] + 0.5 * apart, float(np.arctan2(rate[1], rate[0])))
    along, across = lane.own(b.places[j : j + 1])[0]
    if abs(along) > 0.5 * LONGEST or abs(across) > 0.5 * WIDEST:
        return None
    own = [lane.own(_moving(cloud, groups, one.groups[k])) for one, k in ((a, i), (b, j))]
    return _closed(cloud, lane, a.times[i], own) if min(len(one) for one in own) else None


def _closed(cloud: Cloud, lane: _Lane, time: float, own: list[Doubles]) -> float | None:
    """Metres from end to end, if returns of a high side fill the space between both."""
    low, high = (np.array([bound(one, axis=0) for one in own]) for bound in (np.min, np.max))
    first, last = low[:, 0].min(), high[:, 0].max()
    left = lane.own(cloud.sensor(np.array([time])))[0, 1] > 0
    sides = high[:, 1] if left else low[:, 1]
    if last - first > LONGEST or np.ptp(sides) > ASIDE:
        return None
    along, heights = _strip(cloud, lane, time, (first, sides.min() - AROUND), (last, sides.max() + AROUND))
    between = heights[(along > high[:, 0].min()) & (along < low[:, 0].max())]
    if len(between) == 0 or np.diff(np.sort(along)).max(initial=0.0) > OPEN:
        return None
    ceiling = float(cloud.ceilings(np.array([time]), lane.middle[None])[0])
    return float(last - first) if np.quantile(between, 0.98) > min(HIGHEST, ceiling - CUT) else None


def _moving(cloud: Cloud, groups: Groups, number: int) -> Doubles:  # [n, 2] metres: returns of a group
    rows = cloud.rows(groups.times[number] - NEAR * cloud.period, groups.times[number] + NEAR * cloud.period)
    points = cloud.points[rows, :2]
    return points[((points >= groups.low[number]) & (points <= groups.high[number])).all(1) & cloud.moving[rows]]


def _strip(
    cloud: Cloud, lane: _Lane, time: float, low: tuple[float, float], high: tuple[float, float]
) -> tuple[Doubles, Doubles]:  # [n] metres along, and heights, of all returns there
    a, b = np.searchsorted(cloud.still[:, 3], [time - NEAR * cloud.period, time + NEAR * cloud.period])
    rows = cloud.rows(time - NEAR * cloud.period, time + NEAR * cloud.period)
    points = np.concatenate([cloud.still[a:b, :2], cloud.points[rows, :2]])
    heights = np.concatenate([cloud.still[a:b, 2], cloud.heights[rows]])
    near = (np.abs(points - lane.middle) < LONGEST).all(1)
    own = lane.own(points[near])
    inside = ((own >= low) & (own <= high)).all(1)
    return own[inside, 0], heights[near][inside]
