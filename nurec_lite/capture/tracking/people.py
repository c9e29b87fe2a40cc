# SPDX-License-Identifier: Apache-2.0
"""People that walk or ride side by side, told from a vehicle: nothing is between them, at all moments together.

Letters: n moments, p returns.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nurec_lite.capture.tracking.boxes import Moments, Path, directions, turned
from nurec_lite.capture.tracking.classes import Kind
from nurec_lite.capture.tracking.smooth import Doubles, smooth

PEOPLE = ("Pedestrian", "Cyclist")
WIDEST = 1.1  # metres across the way
LOWEST = 1.2  # metres above the ground, of their highest returns
LANE = 0.1  # metres across the way: width of the lanes that returns are counted in
VALLEY = 0.25  # of the returns of the fuller lanes on either side: a lane between people has so many at most
SHARE = 0.1  # of all returns: each has so many at least
DENSE = 20  # returns of a moment, of all together: sparser ones leave gaps in a vehicle
FEWEST = 4  # returns of a moment, of one
ERROR = 0.3  # metres: standard deviation of the middle of a person's returns
PERSON = Kind("Pedestrian", (0.6, 0.6, 1.8))  # as far as returns are gathered at first


def separated(moments: Moments, path: Path) -> list[Moments]:
    """Moments of each of some people that are one object so far; none if it is a vehicle. The box of a vehicle may slip along
    them, since their front or rear anchors it, but not across their way."""
    if len(moments) == 0 or path.kind.name in PEOPLE or float(np.median(moments.counts)) < DENSE:
        return []
    places, yaws = path.at(moments.times)
    across = turned(moments.points - places[moments.of], yaws[moments.of])[:, 1]
    number, count = _strips(across)
    shares = np.bincount(number, minlength=count) / len(across)
    rows = [number == i for i in np.flatnonzero(shares >= SHARE)]
    alike = all(_is_person(across[each], moments.heights[each]) for each in rows)
    return [_part(moments, each) for each in rows] if len(rows) > 1 and alike else []


def _is_person(across: Doubles, heights: Doubles) -> bool:
    return bool(np.ptp(np.quantile(across, [0.02, 0.98])) < WIDEST and np.quantile(heights, 0.98) > LOWEST)


def _strips(across: Doubles) -> tuple[NDArray[np.int64], int]:  # [p] the strip of each return, and how many there are
    """Strips of lanes, cut at the emptiest lane between two full ones."""
    lane = np.floor((across - across.min()) / LANE).astype(np.int64)
    count = np.bincount(lane)
    left, right = np.maximum.accumulate(count), np.maximum.accumulate(count[::-1])[::-1]
    full = np.flatnonzero(count > VALLEY * np.minimum(left, right))
    gaps = [(a, b) for a, b in pairwise(full) if b > a + 1]
    cuts = [a + 1 + int(count[a + 1 : b].argmin()) for a, b in gaps]
    return np.searchsorted(np.array(cuts, np.int64), lane, side="right"), len(cuts) + 1


def _part(moments: Moments, chosen: NDArray[np.bool_]) -> Moments:  # [p]
    """Moments with some of their returns; those that have few are left out."""
    count = np.bincount(moments.of[chosen], minlength=len(moments))
    kept = count >= FEWEST
    rows = np.flatnonzero(chosen & kept[moments.of])
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
