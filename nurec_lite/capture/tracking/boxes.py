# SPDX-License-Identifier: Apache-2.0
"""Boxes of one object over time: one size for all moments, places anchored at the sides that the lidar sees, yaw along the way.

A side that faces away from the lidar is never measured. So the nearest corner places a box, not the middle of its returns.
Letters: n moments, p returns.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nurec_lite.capture.tracking.classes import Kind, kind_of
from nurec_lite.capture.tracking.smooth import Doubles, along, smooth, velocities

EDGE = 0.02  # share of returns that may lie outside of a side
ENOUGH = 8  # returns that show an extent
SHOWN = 0.85  # share of the moments that show no more of a side
CUT = 0.25  # metres below the highest beam: an object that reaches so high may be higher
LAYER = 0.2  # metres of height
THIN = 0.15  # of the usual number of returns in a layer: layers above a thin one belong to something else
FACING = 1.5  # metres along a side, a metre across it; the lidar then sees the side from end to end
SIDES, AGREE = 4, 0.2  # moments that show a side so, and metres that they differ
ERROR, ERROR_UNSEEN = 0.12, 0.5  # metres: standard deviations along an axis with and without a side that is seen
FEW = 8  # returns; so few double the errors
MOVES = 1.0  # least metres a second whose way tells the yaw
DRIVES = 1.0  # metres a second, of one that does not wait
STANDS = 0.2  # of its speed: slower, its middle may only seem to move
TURN_SPAN, LONGEST_SPAN = 0.35, 1.5  # seconds of averaged directions at least and at most, and
TURN_LENGTHS, LONG = 0.3, 5.5  # of the way, in the lengths of an object, if that is long: metres
STRAIGHT = 10.0  # degrees a second: an object that turns faster shows its sides askew
ROUNDS = 2
OUTLINED = 40  # returns of a moment that show how sides are turned
MOST = 4000  # returns that tell the angle of the sides
FAR = 6.0  # metres of way that tell the yaw better than sides
WAY_ERROR = 0.4  # metres: standard deviation of the ends of a way, across it
LARGEST_TURN = 20.0  # degrees
CLOSE = 0.02  # metres: standard deviation of the mean distance from the sides
INNER = 0.4  # metres from the sides: returns farther inside are of the interior


@dataclass(frozen=True, eq=False)
class Moments:
    """Returns of an object, moment after moment."""

    times: Doubles  # [n] seconds
    sensors: Doubles  # [n, 2] metres
    moving: Doubles  # [n] share of the returns that move for certain
    first: NDArray[np.int64]  # [n] first return of each moment
    of: NDArray[np.int64]  # [p] moment of each return
    points: Doubles  # [p, 2] metres, each moved to the time of its moment
    heights: Doubles  # [p] metres above the ground
    ceilings: Doubles  # [n] metres above the ground that the lidar's highest beam reaches

    def __len__(self) -> int:
        return len(self.times)

    @property
    def counts(self) -> NDArray[np.int64]:  # [n] returns
        return np.diff(self.first, append=len(self.of))


@dataclass(frozen=True, eq=False)
class Path:
    """Boxes at n moments."""

    times: Doubles  # [n] seconds
    places: Doubles  # [n, 2] metres, centres
    yaws: Doubles  # [n] radians, without jumps
    kind: Kind
    scatter: Doubles  # [n] metres between a centre as it was measured and as it was smoothed
    returns: int

    def reach(self, seconds: float) -> tuple[Doubles, Doubles]:
        """Lowest and highest x and y of its boxes, also some seconds before and after."""
        ends = self.at(np.array([self.times[0] - seconds, self.times[-1] + seconds]))[0]
        places, size = np.concatenate([self.places, ends]), np.linalg.norm(self.kind.size[:2])
        return places.min(0) - size, places.max(0) + size

    def at(self, times: Doubles) -> tuple[Doubles, Doubles]:  # places [m, 2], yaws [m]
        return along(self.times, self.places, times), np.interp(times, self.times, self.yaws)

    def part(self, rows: NDArray[np.int64]) -> "Path":
        return replace(self, **{name: getattr(self, name)[rows] for name in ("times", "places", "yaws", "scatter")})

    def drives(self, times: Doubles) -> NDArray[np.bool_]:  # [m]
        """Whether the object drives: one that waits looks like a parked one."""
        speed = np.linalg.norm(velocities(self.times, self.places), axis=1)
        return np.interp(times, self.times, speed) >= DRIVES


def turned(
    points: Doubles,  # [m, 2]
    yaws: Doubles,  # [m] radians
) -> Doubles:  # [m, 2] in axes that are turned by so much
    c, s = np.cos(yaws), np.sin(yaws)
    return np.stack([c * points[:, 0] + s * points[:, 1], c * points[:, 1] - s * points[:, 0]], axis=1)


def fit(
    moments: Moments,
    room: float = np.inf,  # metres along that sides which are never seen may have
    known: Kind | None = None,  # size of the object, if it was measured otherwise
) -> Path:
    low, high = _extents(moments, np.zeros(len(moments)))
    places = smooth(moments.times, 0.5 * (low + high), np.full(len(moments), 0.5))
    yaws = directions(moments.times, places)
    for _ in range(ROUNDS):
        low, high = _extents(moments, yaws)
        kind = known or _kind(moments, low, high, yaws, places, room)
        anchored, errors = _anchored(moments, low, high, yaws, kind)
        places = _smooth_in_own_axes(moments.times, anchored, errors, yaws)
        yaws = directions(moments.times, places, kind.size[0] if kind.size[0] > LONG else 0.0)
        yaws = yaws + _turn_of_sides(moments, yaws, places)
    scatter = np.linalg.norm(places - anchored, axis=1)
    return Path(moments.times, places, yaws, kind, scatter, len(moments.of))


def _turn_of_sides(moments: Moments, yaws: Doubles, places: Doubles) -> float:  # radians
    """Angle from the way to the sides. The way of a slow object is known only roughly; with the right angle, returns
    lie near the sides (the criterion of closeness of Zhang et al., "Efficient L-shape fitting", 2017)."""
    many = moments.counts >= OUTLINED
    way = float(np.linalg.norm(places - places[0], axis=1).max())
    if many.sum() < 4 or way > FAR:
        return 0.0
    angles, some = np.deg2rad(np.arange(-LARGEST_TURN, LARGEST_TURN + 1, 2.0)), _thinned(moments, many)
    away = np.array([_from_sides(some, yaws[many] + angle).mean() for angle in angles])
    expected = np.arctan2(WAY_ERROR, way)
    return float(angles[(away / CLOSE + 0.5 * (angles / expected) ** 2).argmin()])


def _thinned(moments: Moments, kept: NDArray[np.bool_]) -> Moments:
    """Some of the moments, with every second or third return if there are many."""
    every = min(OUTLINED // ENOUGH, 1 + int(moments.counts[kept].sum()) // MOST)
    rows = np.flatnonzero(kept[moments.of])[::every]
    of = (np.cumsum(kept) - 1)[moments.of[rows]]
    first = np.searchsorted(of, np.arange(kept.sum()))
    parts = (moments.times[kept], moments.sensors[kept], moments.moving[kept])
    return Moments(*parts, first, of, moments.points[rows], moments.heights[rows], moments.ceilings[kept])


def _from_sides(moments: Moments, yaws: Doubles) -> Doubles:  # [p] metres to the nearest side of the visible part
    low, high = _extents(moments, yaws)
    own = turned(moments.points, yaws[moments.of])
    away = np.minimum(np.abs(own - low[moments.of]), np.abs(own - high[moments.of])).min(1)
    return np.minimum(away, INNER)


def _extents(moments: Moments, yaws: Doubles) -> tuple[Doubles, Doubles]:  # lowest and highest [n, 2], in turned axes
    own, count = turned(moments.points, yaws[moments.of]), moments.counts
    low, high = np.zeros((len(moments), 2)), np.zeros((len(moments), 2))
    outside = np.floor(EDGE * count).astype(np.int64)
    for axis in (0, 1):
        apart = moments.of * (np.ptp(own[:, axis]) + 1)  # keeps the moments in their order
        ordered = np.sort(own[:, axis] + apart) - apart
        low[:, axis] = ordered[moments.first + outside]
        high[:, axis] = ordered[moments.first + count - 1 - outside]
    return low, high


def directions(
    times: Doubles,  # [n]
    places: Doubles,  # [n, 2]
    length: float = 0.0,  # metres of the object: a long one does not turn in a short way
) -> Doubles:  # [n] radians: of the way, where there is one; a thing that stands keeps the direction it came from
    rate = velocities(times, places)
    speed = np.linalg.norm(rate, axis=1)
    whole = places[-1] - places[0]
    stands = max(0.5 * MOVES, STANDS * float(np.quantile(speed, 0.9)))
    weight = np.maximum(speed - stands, 0) ** 2 if speed.max() > MOVES else speed
    apart = times[:, None] - times
    span = np.clip(TURN_LENGTHS * length / np.maximum(_mean(times, speed), MOVES), TURN_SPAN, LONGEST_SPAN)[:, None]
    near = np.exp(-0.5 * (apart / span) ** 2) + 1e-6 * np.exp(-np.abs(apart))
    mean = (near * weight) @ (rate / np.maximum(speed, 1e-6)[:, None])
    mean = np.where(np.linalg.norm(mean, axis=1, keepdims=True) > 1e-9, mean, whole)
    return np.unwrap(np.arctan2(mean[:, 1], mean[:, 0]))


def _mean(times: Doubles, values: Doubles) -> Doubles:
    near = np.exp(-0.5 * ((times[:, None] - times) / TURN_SPAN) ** 2)
    return near @ values / near.sum(1)


def _kind(moments: Moments, low: Doubles, high: Doubles, yaws: Doubles, places: Doubles, room: float) -> Kind:
    shown = _shown(moments, yaws)
    seen = (high - low)[shown] if shown.any() else high - low
    speed = np.linalg.norm(velocities(moments.times, places), axis=1)
    size = np.array([*np.quantile(seen, SHOWN, axis=0).tolist(), _top(moments.heights)])
    cut = size[2] > float(np.quantile(moments.ceilings, 0.9, method="lower")) - CUT
    whole = _whole_length(moments, low, high, yaws)
    size[0] = size[0] if whole is None else whole
    return kind_of(size, float(np.quantile(speed, 0.8)), whole is not None, cut, room)


def _shown(moments: Moments, yaws: Doubles) -> NDArray[np.bool_]:  # [n] moments that show how large an object is
    many = moments.counts >= ENOUGH
    straight = many & (np.abs(np.gradient(np.rad2deg(yaws), moments.times)) < STRAIGHT)
    return straight if straight.sum() >= SIDES else many


def _whole_length(moments: Moments, low: Doubles, high: Doubles, yaws: Doubles) -> float | None:  # metres
    """Length of an object, if the lidar faced its long side from end to end, so that several moments agree."""
    beyond = np.abs(turned(moments.sensors, yaws) - 0.5 * (low + high))
    facing = (moments.counts >= OUTLINED) & (beyond[:, 0] < FACING * beyond[:, 1])
    lengths = (high - low)[facing, 0]
    if len(lengths) < SIDES or np.ptp(np.quantile(lengths, [0.25, SHOWN])) > AGREE:
        return None
    return float(lengths.max())


def _top(
    heights: Doubles,  # [p] metres above the ground, of all moments
) -> float:
    """Returns the top of an object in metres: below a layer with few returns, since trees, signs and bridges lie above it."""
    layers = np.bincount((heights / LAYER).astype(np.int64))
    below = np.cumsum(layers) / np.maximum(np.cumsum(layers > 0), 1)
    thin = np.flatnonzero((layers < THIN * below) & (np.arange(len(layers)) * LAYER > 0.8))
    top = heights[heights < thin[0] * LAYER] if len(thin) else heights
    return float(np.quantile(top, 0.98)) if len(top) else float(np.median(heights))


def _anchored(
    moments: Moments,
    low: Doubles,  # [n, 2] metres, in turned axes
    high: Doubles,  # [n, 2]
    yaws: Doubles,
    kind: Kind,
) -> tuple[Doubles, Doubles]:  # centres [n, 2] metres, and their errors [n, 2] along and across
    size = np.array(kind.size[:2])
    centre = 0.5 * (low + high)
    beyond = turned(moments.sensors, yaws) - centre
    hidden = high - low < size - 0.1
    faced = np.abs(beyond) > 0.5 * size
    nearest = np.where(beyond > 0, high - 0.5 * size, low + 0.5 * size)
    anchored = np.where(hidden & faced, nearest, centre)
    errors = np.where(hidden & ~faced, ERROR_UNSEEN, ERROR) * (1 + FEW / moments.counts)[:, None]
    return turned(anchored, -yaws), errors


def _smooth_in_own_axes(times: Doubles, places: Doubles, errors: Doubles, yaws: Doubles) -> Doubles:
    """Smooths a way with its errors along and across: it is smoothed with either, and each result counts along its own axis."""
    ways = [smooth(times, places, errors[:, i]) for i in (0, 1)]
    own = np.stack([turned(way, yaws)[:, i] for i, way in enumerate(ways)], axis=1)
    return turned(own, -yaws)
