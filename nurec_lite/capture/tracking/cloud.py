# SPDX-License-Identifier: Apache-2.0
"""Returns of all sweeps that may be of something that moves, in order of time."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nurec_lite.capture.tracking.free_space import RUN, Candidates
from nurec_lite.capture.tracking.ground import Ground
from nurec_lite.capture.tracking.returns import TURN, Sweeps
from nurec_lite.capture.tracking.smooth import Doubles


@dataclass(frozen=True, eq=False)
class Cloud:
    """n returns, by rising times, and m that stand still for certain."""

    points: Doubles  # [n, 3] metres
    times: Doubles  # [n] seconds
    heights: Doubles  # [n] metres above the ground
    moving: NDArray[np.bool_]  # [n] for certain
    gone: Doubles  # [n, 2] seconds before and after when others saw past a return that moves; the return's own time without
    still: Doubles  # [m, 6] x, y, height above the ground, and time, by rising times; first and last time that something was there
    sensor_times: Doubles  # [S] seconds
    sensors: Doubles  # [S, 2] metres
    period: float  # seconds from sweep to sweep
    mounted: float = np.inf  # metres of the lidar above the ground
    rise: float = 0.0  # metres a metre: of its highest beam
    step: float = 0.006  # radians from ray to ray

    def rows(self, first: float, last: float) -> slice:
        """Rows of the returns between two times."""
        a, b = np.searchsorted(self.times, [first, last])
        return slice(int(a), int(b))

    def sensor(self, times: Doubles) -> Doubles:  # [k, 2] metres
        return np.stack([np.interp(times, self.sensor_times, self.sensors[:, i]) for i in (0, 1)], axis=1)

    def ceilings(
        self,
        times: Doubles,  # [k] seconds
        places: Doubles,  # [k, 2] metres
    ) -> Doubles:  # [k] metres above the ground that the highest beam reaches there
        return self.mounted + self.rise * np.linalg.norm(places - self.sensor(times), axis=1)


def cloud_of(sweeps: Sweeps, found: list[Candidates], ground: Ground) -> Cloud:
    points, times, heights = (_joined(found, name, np.float64) for name in ("points", "times", "heights"))
    free, again, seen, held, gone = (_joined(found, name) for name in ("free", "again", "seen", "held", "gone"))
    order = np.argsort(times, kind="stable")
    still = (free == 0) & (held > 0).any(1)
    own, others = order[~still[order]], order[still[order]]
    middles = np.array([s.frame.time_mid for s in sweeps.sweeps])
    places = np.array([s.sensor[:2] for s in sweeps.sweeps], dtype=np.float64)
    moving = (free >= RUN) & (seen >= again // 2)
    ends = times[others, None] + sweeps.period * held[others] * (-1, 1)
    passed = times[own, None] + sweeps.period * gone[own] * (-1, 1)
    standing = np.column_stack([points[others, :2], heights[others], times[others], ends])
    return Cloud(
        points[own], times[own], heights[own], moving[own], passed, standing, middles, places, sweeps.period,
        _mounted(sweeps, ground), math.tan(float(sweeps.lidar.elevations.max())), TURN / sweeps.grid.columns,
    )  # fmt: skip


def _mounted(sweeps: Sweeps, ground: Ground) -> float:  # metres of the lidar above the ground; infinite if not known
    places = np.array([s.sensor for s in sweeps.sweeps])
    above = places[:, 2] - ground.below(places)
    known = np.isfinite(above)
    return float(np.median(above[known])) if known.any() else np.inf


def _joined(found: list[Candidates], name: str, dtype: DTypeLike = np.int16) -> NDArray[Any]:
    return np.concatenate([getattr(c, name) for c in found]).astype(dtype)
