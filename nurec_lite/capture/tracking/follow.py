# SPDX-License-Identifier: Apache-2.0
"""Groups followed over time: a Kalman filter of constant velocity for each object, groups assigned by the Hungarian method.

Groups of all objects come in order of time. A window of half a sweep holds one group of an object at most.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from nurec_lite.capture.tracking.clusters import Groups

WINDOW = 0.5  # sweeps
FAST = 12.0  # metres a second: standard deviation of a velocity that nothing is known of
ACCELERATION = 4.0  # metres a second squared, likewise of what a velocity does
NOISE = 0.3  # metres: standard deviation of the middle of a group, and
NOISE_SIZE = 0.15  # of its extent
GATE = 11.0  # squared distance in standard deviations
LOST = 6.5  # sweeps without a group after which an object is given up, and
LOST_NEW = 2.5  # while it has only been seen once or twice
REFUSED = 1e6


@dataclass
class _Followed:
    state: NDArray[np.float64]  # [4] x, y, and their rates
    spread: NDArray[np.float64]  # [4, 4] its covariance
    time: float
    groups: list[int] = field(default_factory=list)

    def at(self, time: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        dt = time - self.time
        step = np.eye(4)
        step[:2, 2:] = dt * np.eye(2)
        gain = np.concatenate([0.5 * dt * dt * np.eye(2), dt * np.eye(2)])
        return step @ self.state, step @ self.spread @ step.T + ACCELERATION**2 * gain @ gain.T

    def take(self, number: int, time: float, place: NDArray[np.float64], noise: float) -> None:
        state, spread = self.at(time)
        inner = spread[:2, :2] + noise**2 * np.eye(2)
        gain = spread[:, :2] @ np.linalg.inv(inner)
        self.state, self.spread = state + gain @ (place - state[:2]), spread - gain @ spread[:2]
        self.time = time
        self.groups.append(number)


def follow(groups: Groups, period: float) -> list[NDArray[np.int64]]:
    """The groups of each object, in order of time."""
    noise = NOISE + NOISE_SIZE * np.linalg.norm(groups.high - groups.low, axis=1)
    places, alive, ended = groups.places.astype(np.float64), list[_Followed](), list[_Followed]()
    windows = np.floor(groups.times / (WINDOW * period)).astype(np.int64) if len(groups) else np.zeros(0, np.int64)
    for rows in np.split(np.arange(len(groups)), np.flatnonzero(np.diff(windows)) + 1):
        if len(rows) == 0:
            continue
        now = groups.times[rows[0]]
        lost = [now - f.time > period * (LOST if len(f.groups) > 2 else LOST_NEW) for f in alive]
        ended += [f for f, gone in zip(alive, lost, strict=True) if gone]
        alive = [f for f, gone in zip(alive, lost, strict=True) if not gone]
        taken = _assign(alive, rows, groups.times, places, noise, period)
        for f, row in taken:
            f.take(row, groups.times[row], places[row], noise[row])
        left = set(rows.tolist()) - {row for _, row in taken}
        alive += [_begin(row, groups.times[row], places[row], noise[row]) for row in sorted(left)]
    return [np.array(f.groups) for f in (*ended, *alive)]


def _begin(row: int, time: float, place: NDArray[np.float64], noise: float) -> _Followed:
    spread = np.diag([noise**2, noise**2, FAST**2, FAST**2])
    return _Followed(np.array([*place, 0.0, 0.0]), spread, time, [row])


def _assign(
    alive: list[_Followed], rows: NDArray[np.int64], times: NDArray[np.float64], places: NDArray[np.float64],
    noise: NDArray[np.float64], period: float,
) -> list[tuple[_Followed, int]]:  # fmt: skip
    cost = np.full((len(alive), len(rows)), REFUSED)
    for i, f in enumerate(alive):
        state, spread = f.at(float(times[rows].mean()))
        inner = spread[:2, :2] + np.eye(2) * noise[rows, None, None] ** 2
        away = places[rows] - state[:2] - state[2:] * (times[rows] - times[rows].mean())[:, None]
        distance = np.einsum("ni,nij,nj->n", away, np.linalg.inv(inner), away)
        possible = (distance < GATE) & (times[rows] - f.time > 0.4 * period)
        cost[i] = np.where(possible, distance + np.log(np.linalg.det(inner)), REFUSED)
    chosen = zip(*linear_sum_assignment(cost), strict=True) if cost.size else ()
    return [(alive[i], int(rows[j])) for i, j in chosen if cost[i, j] < REFUSED]
