# SPDX-License-Identifier: Apache-2.0
"""Objects that move, from the returns that contradict other sweeps to boxes over time. Uncertain ones are left out."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nurec_lite.base.waiting import shared_out
from nurec_lite.capture.tracking.boxes import Moments, Path, fit, turned
from nurec_lite.capture.tracking.chains import Chain, joined
from nurec_lite.capture.tracking.classes import Kind as ObjectKind
from nurec_lite.capture.tracking.cloud import Cloud
from nurec_lite.capture.tracking.clusters import Groups, group
from nurec_lite.capture.tracking.follow import follow
from nurec_lite.capture.tracking.grow import grown, may_be_long
from nurec_lite.capture.tracking.people import PEOPLE, middle_way, separated
from nurec_lite.capture.tracking.returns import WORKERS
from nurec_lite.capture.tracking.sides import whole
from nurec_lite.capture.tracking.smooth import Doubles

AROUND = 0.4  # metres around a group, and
AROUND_BOX = 0.3  # metres around a box, where returns are gathered
WITHIN_BOX = 0.3  # metres from the sides of a box: others that see past a return further inside see through the object
GAP = 0.3  # sweeps without a return between two moments
FEWEST = 4  # returns of a moment
FURTHER = 3  # moments of a double before or after, so that they are tried
LONGER = 3.5  # sweeps that are searched for an object before its first and after its last moment
ROUNDS = 3
REFITS = 12  # at most, of a box whose side was measured: each finds moments before and after
ROOM = 6.0  # metres along of an object that shows no more: a longer box would gather returns of others
ALIKE = 0.6  # of the usual number of returns: a box before the first or after the last moment then holds the object

MOMENTS, SECONDS = 8, 0.65  # least number of moments, and seconds between the first and the last
WAY = 1.0  # metres that an object moves at least, and
WAY_LENGTHS = 0.3  # in its own lengths
SHARE = 0.5  # of its returns that move for certain, while it drives
DRIVEN = 0.1  # of its returns, while it drives: fewer are of something else
SCATTER = 0.3  # metres that its middles may scatter about its way
KEPT = 0.5  # share of the sweeps between its first and last moment that show it
WIDEST = {"Pedestrian": 1.1, "Cyclist": 1.1, "Car": 2.3, "Van": 2.62, "Truck": 2.95}  # metres
TRUCK_WIDTH = 2.5  # metres
MOST = 0.7  # of the returns of people are those of sure ones: others are hidden
FULL = 0.6  # of the returns of a moment that shows all
FASTEST = 60.0  # metres a second


def find_objects(cloud: Cloud) -> list[Path]:
    groups = group(cloud)
    objects = joined(cloud, groups, follow(groups, cloud.period))
    found = shared_out(lambda chains: _objects(cloud, groups, chains), objects, WORKERS)
    return _without_doubles(cloud, [path for paths in found for path in paths])


def _objects(cloud: Cloud, groups: Groups, chains: list[Chain]) -> list[Path]:
    """One object of all chains, or people side by side."""
    moments, path = _followed(cloud, _of_groups(cloud, groups, np.concatenate([c.groups for c in chains])))
    if path is None:
        return []
    parts = separated(moments, path)
    people = [(one, len(part.of)) for one, part in ((_person(cloud, part), part) for part in parts) if one is not None]
    if len(people) > 1 and sum(count for _, count in people) >= MOST * sum(len(part.of) for part in parts):
        return [one for one, _ in people]
    if path.kind.size[1] >= WIDEST[path.kind.name]:
        moments, path = _narrowed(cloud, moments, path)
    return [_long(cloud, path)] if is_sure(cloud, moments, path) else []


def _long(cloud: Cloud, path: Path) -> Path:
    """The path with a longer or shorter box, if its side is seen from end to end, or grown."""
    if not may_be_long(path.kind):
        return path
    one = whole(cloud, path)
    if one is None:
        return grown(cloud, path)
    for _ in range(2):
        moments = gathered(cloud, one)
        one = fit(moments, known=one.kind)
    return one if is_sure(cloud, moments, one) else grown(cloud, path)


def _narrowed(cloud: Cloud, moments: Moments, path: Path) -> tuple[Moments, Path]:
    """A vehicle that seems too wide, since parts of it that came out from behind a corner turned its box: fitted anew with the width
    of a truck, from those moments that show most of it."""
    length, _, height = path.kind.size
    kind = ObjectKind(path.kind.name, (length, TRUCK_WIDTH, height))
    if not is_sure(cloud, moments, replace(path, kind=kind)):
        return moments, path
    full = np.flatnonzero(moments.counts >= FULL * np.quantile(moments.counts, 0.85))
    shown = _between(moments, full[0], full[-1])
    if len(shown) < MOMENTS:
        return moments, path
    one = fit(shown, known=kind)
    for known in (kind, kind, kind, None):
        shown = gathered(cloud, one)
        if len(shown) < MOMENTS:
            return moments, path
        one = fit(shown, known=known)
    return shown, one


def _between(moments: Moments, first: int, last: int) -> Moments:
    a, b = moments.first[first], moments.first[last] + moments.counts[last]
    rows = slice(first, last + 1)
    parts = (moments.times[rows], moments.sensors[rows], moments.moving[rows], moments.first[rows] - a)
    return Moments(*parts, moments.of[a:b] - first, moments.points[a:b], moments.heights[a:b], moments.ceilings[rows])


def _person(cloud: Cloud, moments: Moments) -> Path | None:
    """A person with the returns that are its own so far, or with those about its way."""
    for gather in (False, True):
        if gather and len(moments):
            moments = gathered(cloud, middle_way(moments))
        if not _promising(moments, None):
            return None
        path = fit(moments)
        if path.kind.name in PEOPLE and is_sure(cloud, moments, path):
            return path
    return None


def _followed(cloud: Cloud, moments: Moments) -> tuple[Moments, Path | None]:
    """Moments of an object and its path, once returns were gathered in its boxes; None if it hardly moves."""
    path: Path | None = None
    for _ in range(ROUNDS):
        if not _promising(moments, path):
            return moments, None
        path = fit(moments, ROOM)
        if np.linalg.norm(path.places - path.places[0], axis=1).max() < 0.7 * WAY:
            return moments, None
        moments = gathered(cloud, path)
    return moments, fit(moments) if _promising(moments, path) else None


def _promising(moments: Moments, path: Path | None) -> bool:
    if len(moments) < MOMENTS or moments.times[-1] - moments.times[0] < SECONDS:
        return False
    if path is None:  # most of a chain may be of an object that waits
        return bool((moments.moving >= 0.6 * SHARE).sum() >= MOMENTS)
    drives = path.drives(moments.times)
    driving = moments.moving[drives] if drives.sum() >= MOMENTS else moments.moving
    return max(float(np.median(moments.moving)), float(np.median(driving))) >= 0.6 * SHARE


def is_sure(cloud: Cloud, moments: Moments, path: Path) -> bool:
    way = float(np.linalg.norm(path.places - path.places[0], axis=1).max())
    seen = len(moments) / (1 + (path.times[-1] - path.times[0]) / cloud.period)
    speed = np.linalg.norm(np.diff(path.places, axis=0), axis=1) / np.diff(path.times)
    steady = float(np.median(path.scatter)) <= SCATTER and seen >= KEPT and float(speed.max()) <= FASTEST
    moves = way >= max(WAY, WAY_LENGTHS * path.kind.size[0]) and _share(cloud, moments, path) >= SHARE
    return steady and moves and path.kind.size[1] < WIDEST[path.kind.name]


def _share(cloud: Cloud, moments: Moments, path: Path) -> float:
    """The share of returns in the boxes that move for certain, at all moments or while the object drives."""
    a, b = np.searchsorted(cloud.still[:, 3], [path.times[0] - 0.02, path.times[-1] + 0.02])
    low, high = path.reach(0.0)
    still = cloud.still[a:b]
    still = still[((still[:, :2] > low) & (still[:, :2] < high)).all(1)]
    still = still[_inside(path, still[:, :2], still[:, 2], still[:, 3], 0.0)]
    own = [_inside(path, still[:, :2], still[:, 2], still[:, end], AROUND_BOX) for end in (4, 5)]
    still = still[~(own[0] & own[1])]  # a slow object itself was there all the time
    share = _part(moments, np.ones(len(moments), np.bool_), len(still))
    drives = path.drives(moments.times)
    if drives.sum() < MOMENTS or moments.counts[drives].sum() < DRIVEN * moments.counts.sum():
        return share
    return max(share, _part(moments, drives, int(path.drives(still[:, 3]).sum())))


def _part(moments: Moments, chosen: NDArray[np.bool_], still: int) -> float:
    counts = moments.counts[chosen]
    return float((moments.moving[chosen] * counts).sum()) / (int(counts.sum()) + still)


def _inside(path: Path, points: Doubles, heights: Doubles, times: Doubles, margin: float) -> NDArray[np.bool_]:
    places, yaws = path.at(times)
    own = turned(points - places, yaws)
    half = 0.5 * np.array(path.kind.size[:2]) + margin
    return (np.abs(own) < half).all(1) & (heights < path.kind.size[2] + margin)


def _of_groups(cloud: Cloud, groups: Groups, numbers: NDArray[np.int64]) -> Moments:
    """Moments of groups: those of about one time are one moment."""
    rows = []
    for i in numbers:
        near = cloud.rows(groups.times[i] - 0.4 * cloud.period, groups.times[i] + 0.4 * cloud.period)
        points = cloud.points[near, :2]
        inside = ((points > groups.low[i] - AROUND) & (points < groups.high[i] + AROUND)).all(1)
        rows.append(np.flatnonzero(inside) + near.start)
    return _moments(cloud, np.unique(np.concatenate(rows)), None)


def gathered(
    cloud: Cloud,
    path: Path,
    longer: float = LONGER,  # sweeps that are searched beyond the ends
) -> Moments:
    """Returns in the boxes, and beyond the ends of the path where they move."""
    longer *= cloud.period
    rows = cloud.rows(path.times[0] - longer, path.times[-1] + longer)
    low, high = path.reach(longer)
    points = cloud.points[rows, :2]
    near = np.flatnonzero(((points > low) & (points < high)).all(1)) + rows.start
    inside = _inside(path, cloud.points[near, :2], cloud.heights[near], cloud.times[near], AROUND_BOX)
    return _moments(cloud, near[inside], path)


def _moments(cloud: Cloud, rows: NDArray[np.int64], path: Path | None) -> Moments:
    """Rows of the cloud, a moment for those of about one time; moments with few returns are left out."""
    times = cloud.times[rows]
    number = np.cumsum(np.diff(times, prepend=times[:1]) > GAP * cloud.period)
    count = np.bincount(number)
    mean = np.bincount(number, times) / count
    moving = np.bincount(number, cloud.moving[rows] if path is None else _moved_on(cloud, path, rows)) / count
    kept = count >= FEWEST
    if path is not None:
        within = (mean > path.times[0] - 0.5 * cloud.period) & (mean < path.times[-1] + 0.5 * cloud.period)
        usual = float(np.median(count[within])) if within.any() else np.inf
        kept &= (
            within | (moving >= SHARE) | (count >= ALIKE * usual)
        )  # an object that follows another never saw past it
    rows, of = rows[kept[number]], (np.cumsum(kept) - 1)[number[kept[number]]]
    mean, points = mean[kept], cloud.points[rows, :2]
    if path is not None:
        points = points + path.at(mean)[0][of] - path.at(cloud.times[rows])[0]
    first = np.searchsorted(of, np.arange(len(mean)))
    middles = np.stack([np.bincount(of, points[:, i], len(mean)) for i in (0, 1)], axis=1) / np.bincount(of)[:, None]
    ceilings = cloud.ceilings(mean, middles)
    return Moments(mean, cloud.sensor(mean), moving[kept], first, of, points, cloud.heights[rows], ceilings)


def _moved_on(cloud: Cloud, path: Path, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether returns move for certain: others saw past them while the box was elsewhere. Others see past parts of parked cars, too."""
    points, heights, gone = cloud.points[rows, :2], cloud.heights[rows], cloud.gone[rows]
    covered = [_inside(path, points, heights, gone[:, side], -WITHIN_BOX) for side in (0, 1)]
    return cloud.moving[rows] & ~(covered[0] & covered[1])


def _without_doubles(cloud: Cloud, found: list[Path]) -> list[Path]:
    """Paths without doubles: of two boxes in one place at one time, the one with more returns stays. It goes on as the other does."""
    kept: list[Path] = []
    for path in sorted(found, key=lambda p: -p.returns):
        twin = next((i for i, other in enumerate(kept) if _overlap(path, other)), None)
        if twin is None:
            kept.append(path)
        elif (longer := _longer(cloud, kept[twin], path)) is not None:
            kept[twin] = longer
        elif (rest := _rest(cloud, path, kept)) is not None:
            kept.append(rest)
    return sorted(kept, key=lambda p: p.times[0])


def _longer(cloud: Cloud, path: Path, other: Path) -> Path | None:
    """The path with the moments of its double before and after, if that is one sure object."""
    outside = (other.times < path.times[0] - GAP * cloud.period) | (other.times > path.times[-1] + GAP * cloud.period)
    if outside.sum() < FURTHER:
        return None
    both = ~outside & (other.times >= path.times[0]) & (other.times <= path.times[-1])
    step = np.median(path.at(other.times[both])[0] - other.places[both], axis=0)
    times = np.concatenate([path.times, other.times[outside]])
    order = np.argsort(times)
    places = np.concatenate([path.places, other.places[outside] + step])[order]
    yaws = np.unwrap(np.concatenate([path.yaws, other.yaws[outside]])[order])
    moments = gathered(cloud, replace(path, times=times[order], places=places, yaws=yaws))
    one = fit(moments)
    return one if is_sure(cloud, moments, one) else None


def _rest(cloud: Cloud, path: Path, others: list[Path]) -> Path | None:
    """The longest part of the path outside of other boxes, if that is one sure object: it was followed from one vehicle to the next."""
    free = np.logical_not(np.any([_shared(path, other) for other in others], axis=0))
    runs = np.split(np.arange(len(free)), np.flatnonzero(np.diff(free)) + 1)
    run = max((run for run in runs if free[run[0]]), key=len, default=np.zeros(0, np.int64))
    if len(run) < MOMENTS:
        return None
    part = path.part(run)
    moments = gathered(cloud, part, longer=0.5)
    if not _promising(moments, part):
        return None
    one = fit(moments)
    alone = not any(_overlap(one, other) for other in others)
    return one if alone and is_sure(cloud, moments, one) else None


def _overlap(a: Path, b: Path) -> bool:
    both = (a.times >= b.times[0]) & (a.times <= b.times[-1])
    return bool(both.any() and _shared(a, b)[both].mean() > 0.3)


def _shared(a: Path, b: Path) -> NDArray[np.bool_]:  # [n] moments of a when both have one place
    places, yaws = b.at(a.times)
    own = turned(a.places - places, yaws)
    half = 0.5 * (np.array(b.kind.size[:2]) + np.array(a.kind.size[1]))
    return (np.abs(own) < half).all(1) & (a.times >= b.times[0]) & (a.times <= b.times[-1])
