# SPDX-License-Identifier: Apache-2.0
"""Moments of a drive: frames of all sensors that lie together in time.

Frame numbers pair frames only where they do so as well as times. Sensors may run at different rates, start late or count on their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

ENOUGH = 5  # frames that a sensor needs to set the period of moments,
COVERED = 0.5  # and the share of the drive that they cover
SLOWER = 1.5  # periods between numbers; beyond, a sensor counts other moments than the numbers
LOOSER = 0.25  # periods that numbers may spread a moment wider than times do
LATEST = 1e12  # seconds; a check of the capture refuses later times
MOST = 1_000_000  # moments in all; more come from clocks that differ, and a check of the capture refuses these
FREE = 0.1  # periods: where no larger gap is, sensors run freely and a moment ends halfway between two


class Timed(Protocol):
    """A frame of a sensor."""

    @property
    def sensor(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def time_mid(self) -> float: ...  # seconds


@dataclass(frozen=True)
class Moments:
    """Number of the moment of each frame; moments follow one another in time as their numbers do."""

    images: tuple[int, ...]
    sweeps: tuple[int, ...]

    def places(self) -> dict[int, int]:
        """Place of each moment for splits. Numbers without a gap are their own places, so that a part of a drive is split as the whole;
        else moments are counted from 0."""
        numbers = sorted({*self.images, *self.sweeps})
        first = numbers[0] if numbers and numbers[-1] - numbers[0] == len(numbers) - 1 else 0
        return {number: first + k for k, number in enumerate(numbers)}


def moments_of(images: Sequence[Timed], sweeps: Sequence[Timed]) -> Moments:
    """Moments by the frames' own numbers if these agree with times; else by times."""
    frames = [*sweeps, *images]
    numbers = _numbers(frames) if frames else []
    return Moments(tuple(numbers[len(sweeps) :]), tuple(numbers[: len(sweeps)]))


def _numbers(frames: Sequence[Timed]) -> list[int]:
    times, own = np.array([f.time_mid for f in frames]), np.array([f.index for f in frames])
    if not (np.abs(times) < LATEST).all():
        return [int(n) for n in own]
    period, anchors, first = _reference(frames)
    by_time = _by_time(times, anchors)
    if _agree(times, own, by_time, period):
        return [int(n) for n in own]
    ranks = np.unique(by_time, return_inverse=True)[1]
    shift = max(0, frames[first].index - int(ranks[first]))  # a part that begins later keeps the numbers of the whole
    return [int(n) + shift for n in ranks]


def _reference(frames: Sequence[Timed]) -> tuple[float, np.ndarray, int]:
    """Period of moments in seconds, a time in each of them [m], and which frame is the first of the sensor that sets them: the slowest of
    those that cover the drive."""
    places: dict[str, list[int]] = {}
    for k in sorted(range(len(frames)), key=lambda k: frames[k].time_mid):
        places.setdefault(frames[k].sensor, []).append(k)
    times = np.array([f.time_mid for f in frames])
    span, enough = float(np.ptp(times)), min(ENOUGH, max(map(len, places.values())))
    periods = {s: float(np.median(np.diff(times[own]))) if len(own) > 1 else 0.0 for s, own in places.items()}
    able = [s for s, own in places.items() if len(own) >= enough and len(own) * periods[s] >= COVERED * span]
    sensor = max(able, key=periods.__getitem__) if able else max(places, key=lambda s: len(places[s]))
    own = places[sensor]
    return periods[sensor], _anchors(times[own], periods[sensor], times.min(), times.max()), own[0]


def _anchors(times: np.ndarray, period: float, first: float, last: float) -> np.ndarray:
    """The times, and others about a period apart where there are gaps, from before the first to after the last frame of all sensors."""
    if period <= 0:
        return np.array([first, last + 1.0])
    ends = [times[0] - period * (np.ceil((times[0] - first) / period) + 1), *times]
    ends += [times[-1] + period * (np.ceil((last - times[-1]) / period) + 1)]
    steps = np.maximum(1, np.round(np.diff(ends) / period))
    if steps.sum() > MOST:
        steps = np.minimum(steps, max(1, MOST // len(steps)))
    parts = [np.linspace(a, b, n, endpoint=False) for a, b, n in zip(ends, ends[1:], steps.astype(int), strict=False)]
    return np.concatenate([*parts, ends[-1:]])


def _by_time(times: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    """[n] int64. Moments are as long as anchors are apart, and begin where the fewest frames are near."""
    before = (np.searchsorted(anchors, times, side="right") - 1).clip(0, len(anchors) - 2)
    phases = (times - anchors[before]) / np.diff(anchors)[before]
    edges = np.unique([0.0, *phases, 1.0])
    gaps = np.diff(edges)
    widest = int(np.flatnonzero(gaps >= gaps.max() - 0.5 * FREE)[-1])
    end = 0.5 if gaps[widest] < FREE else 0.5 * (edges[widest] + edges[widest + 1])
    return before + (phases >= end)


def _agree(times: np.ndarray, own: np.ndarray, by_time: np.ndarray, period: float) -> bool:
    """Whether moments by the frames' own numbers follow one another, and are as short as moments by time."""
    low, high = _ends(times, own)
    step = float(np.median(np.diff(low))) if len(low) > 1 else period
    if (high[:-1] >= low[1:]).any() or period > SLOWER * step:
        return False
    first, last = _ends(times, by_time)
    return float((high - low).max()) <= float((last - first).max()) + LOOSER * period


def _ends(times: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and last time of each group, in the order of the groups' numbers."""
    numbers, group = np.unique(groups, return_inverse=True)
    low, high = np.full(len(numbers), np.inf), np.full(len(numbers), -np.inf)
    np.minimum.at(low, group, times)
    np.maximum.at(high, group, times)
    return low, high
