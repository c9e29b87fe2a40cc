# SPDX-License-Identifier: Apache-2.0
"""People that walk or ride side by side, told from a vehicle: nothing is between them, at all moments together.

Letters: n moments, p returns.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nurec_lite.capture.tracking.boxes import Moments, Path, directions, turned
from nurec_lite.capture.tracking.classes import Kind
from nurec_lite.capture.tracking.smooth import Doubles, smooth

PEOPLE = ("Pedestrian", "Cyclist")
WIDEST, LONGEST = 1.1, 2.3  # metres across the way, and along
LOWEST, HIGHEST = 1.2, 2.2  # metres above the ground, of their highest returns
LANE = 0.1  # metres across the way: width of the lanes that returns are counted in
VALLEY = 0.25  # of the returns of the fuller lanes on either side: a lane between people has so many at most
SHARE = 0.1  # of all returns: a part that has so many and is no person belongs to a vehicle
DENSE = 20  # returns of a moment, of all together: sparser ones leave gaps in a vehicle
FEWEST = 4  # returns of a moment, of one
ERROR = 0.3  # metres: standard deviation of the middle of a person's returns
PERSON = Kind("Pedestrian", (0.6, 0.6, 1.8))  # as far as returns are gathered at first


def separated(moments: Moments, path: Path) -> list[Moments]:
    """Moments of each of some people that are one object so far; none if it is a vehicle. Those next to each other leave empty lanes
    along the way, those behind each other empty lanes across it."""
    if len(moments) == 0 or path.kind.name in PEOPLE or float(np.median(moments.counts)) < DENSE:
        return []
    places, yaws = path.at(moments.times)
    own = turned(moments.points - places[moments.of], yaws[moments.of])
    seen = _Seen(own, moments.heights, moments.of)
    strips = _cut(seen, np.arange(len(own)), across=True)
    parts = [part for strip in strips for part in _cut(seen, strip, across=False)]
    people = [each for each in parts if seen.is_person(each)]
    many = [each for each in parts if len(each) >= SHARE * len(own)]
    alike = len(people) > 1 and all(seen.is_person(each) for each in many)
    return [_part(moments, each) for each in people] if alike else []


@dataclass(frozen=True, eq=False)
class _Seen:
    own: Doubles  # [p, 2] metres along and across
    heights: Doubles  # [p] metres above the ground
    moments: NDArray[np.int64]  # [p]

    def is_person(self, rows: NDArray[np.int64]) -> bool:
        width = float(np.ptp(np.quantile(self.own[rows, 1], [0.02, 0.98])))
        top = float(np.quantile(self.heights[rows], 0.98))
        return width < WIDEST and LOWEST < top < HIGHEST and self._length(rows) < LONGEST

    def _length(self, rows: NDArray[np.int64]) -> float:  # metres
        """Usual length of a moment. That of all moments is larger, since a box slips along."""
        first = np.flatnonzero(np.diff(self.moments[rows], prepend=-1))
        along = self.own[rows, 0]
        return float(np.median(np.maximum.reduceat(along, first) - np.minimum.reduceat(along, first)))


def _cut(seen: _Seen, rows: NDArray[np.int64], across: bool) -> list[NDArray[np.int64]]:
    """Rows of returns in strips along or across the way; a person stays whole."""
    if len(rows) < FEWEST or seen.is_person(rows):
        return [rows]
    number, count = _strips(seen.own[rows, int(across)])
    return [rows[number == i] for i in range(count)]


def _strips(across: Doubles) -> tuple[NDArray[np.int64], int]:  # [p] the strip of each return, and how many there are
    """Strips of lanes, cut at the emptiest lane between two full ones."""
    lane = np.floor((across - across.min()) / LANE).astype(np.int64)
    count = np.bincount(lane)
    left, right = np.maximum.accumulate(count), np.maximum.accumulate(count[::-1])[::-1]
    full = np.flatnonzero(count > VALLEY * np.minimum(left, right))
    gaps = [(a, b) for a, b in pairwise(full) if b > a + 1]
    cuts = [a + 1 + int(count[a + 1 : b].argmin()) for a, b in gaps]
    return np.searchsorted(np.array(cuts, np.int64), lane, side="right"), len(cuts) + 1


def _part(moments: Moments, chosen: NDArray[np.int64]) -> Moments:
    """Moments with some of their returns; those that have few are left out."""
    count = np.bincount(moments.of[chosen], minlength=len(moments))
    kept = count >= FEWEST
    rows = np.sort(chosen[kept[moments.of[chosen]]])
    of = (np.cumsum(kept) - 1)[moments.of[rows]]
    first = np.searchsorted(of, np.arange(np.count_nonzero(kept)))
    times, sensors, moving, ceilings = (
        values[kept] for values in (moments.times, moments.sensors, moments.moving, moments.ceilings)
    )
    return Moments(times, sensors, moving, first, of, moments.points[rows], moments.heights[rows], ceilings)


def middle_way(moments: Moments) -> Path:
    """The way of the middle of all returns, as a pedestrian's."""
    parts = np.split(moments.points, moments.first[1:])
    places = smooth(moments.times, np.array([np.median(part, axis=0) for part in parts]), np.full(len(moments), ERROR))
    return Path(moments.times, places, directions(moments.times, places), PERSON, 0 * moments.times, len(moments.of))
