# SPDX-License-Identifier: Apache-2.0
"""Groups followed over time: a Kalman filter of constant velocity for each object, groups assigned by the Hungarian method.

Groups of all objects come in order of time. A window of half a sweep holds one group of an object at most.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nurec_lite.base.aside import go_on
from nurec_lite.capture.tracking.clusters import Groups
from nurec_lite.capture.tracking.smooth import Doubles, smooth, velocities

WINDOW = 0.5  # sweeps
SOONEST = 0.4  # sweeps between two groups of one object
FAST = 12.0  # metres a second: standard deviation of a velocity that nothing is known of
ACCELERATION = 4.0  # metres a second squared, standard deviation of a velocity's change
NOISE = 0.3  # metres: standard deviation of the middle of a group, and
NOISE_SIZE = 0.15  # of its extent
GATE = 11.0  # squared distance in standard deviations
LOST = 6.5  # sweeps without a group until an object is given up, and
LOST_NEW = 2.5  # while it has only been seen once or twice
REFUSED = 1e6
ERROR = 0.4  # metres: standard deviation of the middle of a group of a chain
LATE = 0.3  # seconds before the first and after the last group that a chain says where its object is


@dataclass(frozen=True, eq=False)
class _Filters:
    """Filters of a objects."""

    numbers: NDArray[np.int64]  # [a] which object
    times: Doubles  # [a] seconds, of the last group
    states: Doubles  # [a, 4] x, y, and their rates, then
    spreads: Doubles  # [a, 4, 4] their covariances
    seen: NDArray[np.int64]  # [a] groups so far

    def of(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> "_Filters":
        return _Filters(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def at(self, times: Doubles) -> tuple[Doubles, Doubles]:  # states [a, 4] and spreads [a, 4, 4] at a time each
        dt = times - self.times
        step = np.tile(np.eye(4), (len(dt), 1, 1))
        step[:, [0, 1], [2, 3]] = dt[:, None]
        gain = np.zeros((len(dt), 4, 2))
        gain[:, [0, 1], [0, 1]], gain[:, [2, 3], [0, 1]] = (0.5 * dt * dt)[:, None], dt[:, None]
        spreads = step @ self.spreads @ step.transpose(0, 2, 1) + ACCELERATION**2 * gain @ gain.transpose(0, 2, 1)
        return (step @ self.states[:, :, None])[:, :, 0], spreads


def follow(groups: Groups, period: float) -> list[NDArray[np.int64]]:
    """The numbers of the groups of each object, in order of time."""
    if len(groups) == 0:
        return []
    noise = NOISE + NOISE_SIZE * np.linalg.norm(groups.high - groups.low, axis=1)
    followed: list[list[int]] = []
    alive = _begun(groups, np.zeros(0, np.int64), noise, 0)
    windows = np.floor(groups.times / (WINDOW * period)).astype(np.int64)
    for rows in np.split(np.arange(len(groups)), np.flatnonzero(np.diff(windows)) + 1):
        go_on()
        patience = period * np.where(alive.seen > 2, LOST, LOST_NEW)
        alive = alive.of(groups.times[rows[0]] - alive.times <= patience)
        one, row = _assigned(alive, groups, rows, noise, period)
        for number, taken in zip(alive.numbers[one].tolist(), row.tolist(), strict=True):
            followed[number].append(taken)
        alive = _updated(alive, one, row, groups, noise)
        new = np.setdiff1d(rows, row)
        alive = _both(alive, _begun(groups, new, noise, len(followed)))
        followed += [[number] for number in new.tolist()]
    return [np.array(numbers) for numbers in followed]


def _begun(groups: Groups, rows: NDArray[np.int64], noise: Doubles, first: int) -> _Filters:
    count = len(rows)
    spreads = np.tile(np.diag([0, 0, FAST**2, FAST**2]), (count, 1, 1))
    spreads[:, [0, 1], [0, 1]] = noise[rows, None] ** 2
    states = np.concatenate([groups.places[rows], np.zeros((count, 2))], axis=1)
    return _Filters(first + np.arange(count), groups.times[rows], states, spreads, np.ones(count, np.int64))


def _both(a: _Filters, b: _Filters) -> _Filters:
    return _Filters(*(np.concatenate([getattr(a, n), getattr(b, n)]) for n in a.__dataclass_fields__))


def _assigned(
    alive: _Filters, groups: Groups, rows: NDArray[np.int64], noise: Doubles, period: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # rows of the filters, and the group of each
    now = float(groups.times[rows].mean())
    states, spreads = alive.at(np.full(len(alive.times), now))
    inner = spreads[:, None, :2, :2] + np.eye(2) * noise[rows, None, None] ** 2
    late = groups.times[rows] - now
    away = groups.places[rows] - states[:, None, :2] - states[:, None, 2:] * late[:, None]
    distance = np.einsum("ani,anij,anj->an", away, np.linalg.inv(inner), away)
    possible = (distance < GATE) & (groups.times[rows] - alive.times[:, None] > SOONEST * period)
    cost = np.where(possible, distance + np.log(np.linalg.det(inner)), REFUSED)
    from scipy.optimize import linear_sum_assignment

    one, column = linear_sum_assignment(cost)
    kept = cost[one, column] < REFUSED
    return one[kept], rows[column[kept]]


def _updated(
    alive: _Filters, one: NDArray[np.int64], row: NDArray[np.int64], groups: Groups, noise: Doubles
) -> _Filters:
    states, spreads = alive.of(one).at(groups.times[row])
    inner = spreads[:, :2, :2] + np.eye(2) * noise[row, None, None] ** 2
    gain = spreads[:, :, :2] @ np.linalg.inv(inner)
    away = groups.places[row] - states[:, :2]
    new = replace(alive, times=alive.times.copy(), states=alive.states.copy(), spreads=alive.spreads.copy())
    new.times[one], new.seen[one] = groups.times[row], new.seen[one] + 1
    new.states[one] = states + (gain @ away[:, :, None])[:, :, 0]
    new.spreads[one] = spreads - gain @ spreads[:, :2]
    return new


@dataclass(eq=False)
class Chain:
    """Groups of one object by rising times; several may be of one time."""

    groups: NDArray[np.int64]
    times: Doubles  # [n] seconds
    places: Doubles  # [n, 2] metres, smoothed
    rates: Doubles  # [n, 2] metres a second
    low: Doubles  # [2] metres, of the extents of all groups
    high: Doubles  # [2]
    coast: float  # metres that it moves at most from one of its groups to a time that is nearest to that


def chain(groups: Groups, numbers: NDArray[np.int64]) -> Chain:
    times = groups.times[numbers]
    places = smooth(times, groups.places[numbers], np.full(len(times), ERROR))
    rates = velocities(times, places)
    low, high = groups.low[numbers].min(0), groups.high[numbers].max(0)
    longest = max(LATE, 0.5 * float(np.diff(times).max()))
    coast = longest * float(np.linalg.norm(rates, axis=1).max())
    return Chain(numbers, times, places, rates, low, high, coast)
