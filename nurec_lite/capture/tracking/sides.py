# SPDX-License-Identifier: Apache-2.0
"""Ends of a long side that the lidar sees askew, as from behind in the next lane: neighbouring rays end on it, and the next pass by.

A side that moves along itself seems to stand. So all returns count, and its ends stay in the box's axes. Letters: n moments, p returns.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nurec_lite.capture.tracking.boxes import Path, turned
from nurec_lite.capture.tracking.cloud import Cloud
from nurec_lite.capture.tracking.grow import LONGEST, longer
from nurec_lite.capture.tracking.returns import TURN
from nurec_lite.capture.tracking.smooth import Doubles

REACH = 18.0  # metres along from the middle of the box
LOWEST = 0.4  # metres above the ground
ACROSS = 0.3  # metres from the side
NEARER = 0.5  # metres that a return is nearer than an end that it hides
BESIDE = 0.5  # metres from the side to the lidar, across: it sees the side
APART, STEPS = 0.8, 1.5  # metres between neighbours along a side, or steps from ray to ray
FINE = 1.0  # metres from ray to ray where a side ends: coarser ends are not known
FEWEST = 4  # returns of a side, and moments that show a long one
SHORTEST = 5.5  # metres of a long side
CHANGE = 0.4  # metres of length that are worth another fit
AGREE = 0.3  # metres that lengths differ, more where rays are coarse
SHARE = 0.5  # of the moments that show a long side agree


@dataclass(frozen=True, eq=False)
class _Side:
    """Returns of sides, by moments and then along."""

    moments: NDArray[np.int64]  # [p]
    along: Doubles  # [p] metres
    steps: Doubles  # [p] metres to the next ray's


@dataclass(frozen=True, eq=False)
class _Around:
    """All returns while a path lasts, with the nearest moment of each."""

    points: Doubles  # [p, 2] metres
    times: Doubles  # [p] seconds
    moments: NDArray[np.int64]  # [p]


def whole(cloud: Cloud, path: Path) -> Path | None:
    """The path with a box from end to end of its side, if most moments that show a long one agree how long it is."""
    around = _around(cloud, path)
    side = _side(cloud, path, around)
    first, last = _open(cloud, path, around, side, *_long_runs(side, 0.5 * path.kind.size[0]))
    lengths, steps = side.along[last] - side.along[first], side.steps[first] + side.steps[last]
    length = _agreed(lengths, steps)
    if length is None or abs(length - path.kind.size[0]) < CHANGE:
        return None
    shown = np.abs(lengths - length) < AGREE
    middles = 0.5 * (side.along[first] + side.along[last])[shown]
    return longer(path, length, np.interp(np.arange(len(path.times)), side.moments[first][shown], middles))


def _around(cloud: Cloud, path: Path) -> _Around:
    a, b = np.searchsorted(cloud.still[:, 3], [path.times[0], path.times[-1]])
    still, rows = cloud.still[a:b], cloud.rows(path.times[0], path.times[-1])
    heights = np.concatenate([still[:, 2], cloud.heights[rows]])
    kept = (heights > LOWEST) & (heights < path.kind.size[2])
    points = np.concatenate([still[:, :2], cloud.points[rows, :2]])[kept]
    times = np.concatenate([still[:, 3], cloud.times[rows]])[kept]
    return _Around(points, times, np.searchsorted(0.5 * (path.times[1:] + path.times[:-1]), times))


def _side(cloud: Cloud, path: Path, around: _Around) -> _Side:
    low, high = path.places.min(0) - REACH, path.places.max(0) + REACH
    near = ((around.points > low) & (around.points < high)).all(1)
    points, times, moments = around.points[near], around.times[near], around.moments[near]
    places, yaws = path.at(times)
    own = turned(points - places, yaws)
    lidar = _lidar(cloud, path)[moments]
    half = 0.5 * path.kind.size[1]
    away = np.abs(lidar[:, 1]) - half
    kept = (away > BESIDE) & (np.abs(np.sign(lidar[:, 1]) * own[:, 1] - half) < ACROSS) & (np.abs(own[:, 0]) < REACH)
    moments, along, lidar, away = moments[kept], own[kept, 0], lidar[kept], away[kept]
    order = np.lexsort((along, moments))
    steps = cloud.step * ((along - lidar[:, 0]) ** 2 + away**2) / away
    return _Side(moments[order], along[order], steps[order])


def _lidar(cloud: Cloud, path: Path) -> Doubles:  # [n, 2] metres along and across, from the boxes
    return turned(cloud.sensor(path.times) - path.places, path.yaws)


def _open(
    cloud: Cloud, path: Path, around: _Around, side: _Side, first: NDArray[np.int64], last: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last returns of sides, at moments when nothing hides the ends."""
    if len(first) < FEWEST:
        return first[:0], last[:0]
    signs = np.repeat([-1.0, 1.0], len(first))
    hidden = _hidden(cloud, path, around, side, np.concatenate([first, last]), signs).reshape(2, -1).any(0)
    return first[~hidden], last[~hidden]


def _hidden(
    cloud: Cloud,
    path: Path,
    around: _Around,
    side: _Side,
    ends: NDArray[np.int64],  # [k] returns of the side
    signs: Doubles,  # [k] along, to the outside
) -> NDArray[np.bool_]:  # [k]
    """Whether something nearer hides the space beyond the ends of sides."""
    at, lidar = side.moments[ends], _lidar(cloud, path)
    across = np.sign(lidar[at, 1]) * 0.5 * path.kind.size[1]
    end = np.column_stack([side.along[ends], across]) - lidar[at]
    beyond = turned(end + np.column_stack([signs * (AGREE + side.steps[ends]), 0 * across]), -path.yaws[at])
    rays = around.points - cloud.sensor(path.times)[around.moments]
    apart = 2 * TURN  # keeps the moments apart
    angles = np.arctan2(rays[:, 1], rays[:, 0]) + apart * around.moments
    order = np.argsort(angles)
    ranges = np.append(np.linalg.norm(rays, axis=1)[order], np.inf)
    angle = np.arctan2(beyond[:, 1], beyond[:, 0]) + apart * at
    a, b = (np.searchsorted(angles[order], angle + way * cloud.step) for way in (-1, 1))
    nearest = np.array([ranges[i : max(i + 1, j)].min() if j > i else np.inf for i, j in zip(a, b, strict=True)])
    return nearest < np.linalg.norm(end, axis=1) - NEARER


def _long_runs(side: _Side, half: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last return of each moment's part, if it is long and both of its ends are seen finely."""
    first, last = _runs(side, half)
    fine = np.maximum(side.steps[first], side.steps[last]) < FINE
    long = side.along[last] - side.along[first] > SHORTEST
    return first[fine & long], last[fine & long]


def _runs(side: _Side, half: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last return of each moment's largest part without a gap that the box shows."""
    far = np.maximum(APART, STEPS * np.maximum(side.steps[1:], side.steps[:-1]))
    cut = (np.diff(side.moments) > 0) | (np.diff(side.along) > far)
    number = np.cumsum(np.concatenate([[0], cut]))[: len(side.along)]
    first = np.flatnonzero(np.diff(number, prepend=-1))
    last = np.append(first[1:], len(number)) - 1
    shown = np.bincount(number, np.abs(side.along) < half, minlength=len(first))
    best = np.lexsort((-shown, side.moments[first]))  # of each moment, the run with most returns comes first
    best = best[np.diff(side.moments[first][best], prepend=-1) > 0]
    best = best[shown[best] >= FEWEST]
    return first[best], last[best]


def _agreed(lengths: Doubles, steps: Doubles) -> float | None:  # metres
    """The length of most moments: an end may be hidden, or lie between two rays."""
    if len(lengths) < FEWEST:
        return None
    short = lengths[:, None] - lengths  # [n, n] metres that the second is shorter
    alike = (short > -AGREE) & (short < AGREE + steps)
    best = int((alike.sum(1) + 1e-3 * lengths).argmax())
    length = float(lengths[alike[best]].max())
    return length if alike[best].mean() >= SHARE and length < LONGEST else None
