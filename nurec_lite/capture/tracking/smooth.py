# SPDX-License-Identifier: Apache-2.0
"""Paths smoothed as a whole: least squares of places and of accelerations, robust against wrong places."""

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
ACCELERATION = 3.0  # metres a second squared: standard deviation
ROUNDS = 4
OUTLIER = 2.0  # standard deviations; a place that is so far off counts half


def smooth(
    times: Doubles,  # [n] seconds, rising
    places: Doubles,  # [n, d]
    errors: Doubles,  # [n] standard deviations
    acceleration: float = ACCELERATION,
) -> Doubles:  # [n, d]
    curve = _curvature(times) / acceleration
    stiff, share = curve.T @ curve, np.ones(len(times))
    found: Doubles = places
    for _ in range(ROUNDS):
        weight = share / errors**2
        found = np.linalg.solve(stiff + np.diag(weight), weight[:, None] * places).astype(np.float64)
        away = np.linalg.norm(found - places, axis=1) / errors
        share = 1 / (1 + (away / OUTLIER) ** 2)
    return found


def _curvature(times: Doubles) -> Doubles:  # [n - 2, n]: accelerations of places, weighted by how long they last
    n = len(times)
    steps = np.diff(times)
    rows = np.zeros((max(0, n - 2), n))
    i = np.arange(n - 2)
    before, after = steps[:-1], steps[1:]
    length = 0.5 * (before + after)
    rows[i, i], rows[i, i + 2] = 1 / before, 1 / after
    rows[i, i + 1] = -1 / before - 1 / after
    return rows / length[:, None]


def velocities(
    times: Doubles,  # [n] seconds, two at least
    places: Doubles,  # [n, d]
) -> Doubles:  # [n, d] a second
    rates = np.diff(places, axis=0) / np.diff(times)[:, None]
    return np.concatenate([rates[:1], 0.5 * (rates[1:] + rates[:-1]), rates[-1:]])


def along(
    times: Doubles,  # [n] seconds
    places: Doubles,  # [n, d]
    at: Doubles,  # [m] seconds
) -> Doubles:  # [m, d]: between places, and beyond the ends at the speed there
    inner = np.stack([np.interp(at, times, places[:, i]) for i in range(places.shape[1])], axis=1)
    rate = velocities(times, places)
    return inner + np.minimum(at - times[0], 0)[:, None] * rate[0] + np.maximum(at - times[-1], 0)[:, None] * rate[-1]
