# SPDX-License-Identifier: Apache-2.0
"""Boxes of long vehicles, grown over sides that seem to stand: a side that moves along itself is seen at one place for seconds.

Letters: n returns.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nurec_lite.capture.tracking.boxes import Path, turned
from nurec_lite.capture.tracking.classes import MARGIN, MARGIN_TOP, Kind, kind_of
from nurec_lite.capture.tracking.cloud import Cloud
from nurec_lite.capture.tracking.smooth import Doubles, velocities

HIGHEST = 1.85  # metres: lower vehicles are cars
HIGH, LONG = 2.2, 5.2  # metres: higher or longer vehicles may be trucks
LONGEST = 18.0  # metres
BIN = 0.5  # metres along
SHOWN = 0.3  # of the moments that show the box, show a part of it
AROUND, ENDS = 0.2, 0.7  # metres from the sides, and from the ends
MOST = 4000  # returns that are looked at
MORE = 1.0  # metres that a box grows at least
DENSE = 0.1  # of the returns that the box has along a metre, has the part that is added
CERTAIN = 0.7  # of the returns of the part that is added are the vehicle's own


def may_be_long(kind: Kind) -> bool:
    return kind.size[2] >= HIGH or (kind.size[0] >= LONG and kind.size[2] >= HIGHEST)


def grown(cloud: Cloud, path: Path) -> Path:
    """The path with a longer box, if returns next to it were there only while that covered them."""
    if not may_be_long(path.kind):
        return path
    along, first, last, moments = _beside(cloud, path)
    if len(along) == 0:
        return path
    low, high = _occupied(along, moments, path)
    half = 0.5 * path.kind.size[0]
    best, ends, usual = 0.0, (-half, half), float((np.abs(along) < half).sum()) / half
    for a in np.arange(-half, low - BIN, -BIN):
        for b in np.arange(half, min(high, a + LONGEST) + BIN, BIN):
            added = (along > a) & (along < b) & (np.abs(along) > half) & (last != first)
            own = added & (np.minimum(first, last) > a - ENDS) & (np.maximum(first, last) < b + ENDS)
            score = float(own.sum()) - CERTAIN * float(added.sum())
            if score > best and own.sum() > DENSE * usual * (0.5 * (b - a) - half):
                best, ends = score, (float(a), float(b))
    if ends[1] - ends[0] < 2 * half + MORE:
        return path
    return longer(path, ends[1] - ends[0], np.full(len(path.times), 0.5 * sum(ends)))


def longer(
    path: Path,
    length: float,  # metres
    step: Doubles,  # [n] metres along to the new middles
) -> Path:
    speed = np.linalg.norm(velocities(path.times, path.places), axis=1)
    size = np.array([length, path.kind.size[1] - MARGIN, path.kind.size[2] - MARGIN_TOP])  # as they were seen
    kind = kind_of(size, float(np.quantile(speed, 0.8)), whole=True)
    return replace(path, places=path.places + turned(np.column_stack([step, 0 * step]), -path.yaws), kind=kind)


def _beside(cloud: Cloud, path: Path) -> tuple[Doubles, Doubles, Doubles, NDArray[np.int64]]:
    """Returns in the strip of the box: [n] metres along, at their times and when something was there first and last, and moments."""
    a, b = np.searchsorted(cloud.still[:, 3], [path.times[0], path.times[-1]])
    still, moving = cloud.still[a:b], cloud.rows(path.times[0], path.times[-1])
    sure = cloud.moving[moving]
    points = np.concatenate([still[:, :2], cloud.points[moving][sure, :2]])
    heights = np.concatenate([still[:, 2], cloud.heights[moving][sure]])
    times = np.concatenate([still[:, 3], cloud.times[moving][sure]])
    ends = np.concatenate([still[:, 4:6], np.repeat(cloud.times[moving][sure, None], 2, axis=1)])
    low, high = path.places.min(0) - LONGEST, path.places.max(0) + LONGEST
    near = np.flatnonzero(
        ((points > low) & (points < high)).all(1) & (heights < path.kind.size[2]) & path.drives(times)
    )
    own = _own(path, points[near], times[near])
    inside = (np.abs(own[:, 1]) < 0.5 * path.kind.size[1] + AROUND) & (np.abs(own[:, 0]) < LONGEST)
    rows, along = near[inside], own[inside, 0]
    every = 1 + len(rows) // MOST
    rows, along = rows[::every], along[::every]
    first, last = (_own(path, points[rows], ends[rows, side])[:, 0] for side in (0, 1))
    return along, first, last, np.rint(times[rows] / cloud.period).astype(np.int64)


def _own(path: Path, points: Doubles, times: Doubles) -> Doubles:  # [n, 2] metres along and across
    places, yaws = path.at(times)
    return turned(points - places, yaws)


def _occupied(along: Doubles, moments: NDArray[np.int64], path: Path) -> tuple[float, float]:
    """Ends of the parts about the box that follow each other without a gap, in metres along."""
    place = ((along + LONGEST) / BIN).astype(np.int64)
    pairs = np.unique(np.column_stack([place, moments]), axis=0)
    shown = np.bincount(pairs[:, 0], minlength=int(2 * LONGEST / BIN) + 1)
    inner = [int((LONGEST + sign * 0.5 * path.kind.size[0]) / BIN) for sign in (-1, 1)]
    least = SHOWN * shown[inner[0] : inner[1] + 1].max()
    first, last = inner
    while first > 0 and shown[first - 1] > least:
        first -= 1
    while last + 1 < len(shown) and shown[last + 1] > least:
        last += 1
    return BIN * first - LONGEST, BIN * (last + 1) - LONGEST
