# SPDX-License-Identifier: Apache-2.0
"""Sizes of pictures: as large as this machine renders in time, coarse while a camera moves and finer once it stands still."""

from collections import deque
from threading import Lock

import numpy as np

MOVING_S, STILL_S = 0.06, 1.5  # seconds that a picture may take while something moves, and at rest
STEPS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # the full height over that of a picture
LEAST = 48  # rows of a picture
_KEPT, _FIRST = 40, 4.0  # measurements that are believed, and the step of the first picture


class Pace:
    """Learns the cost of a picture: seconds for any, and seconds a pixel."""

    def __init__(self) -> None:
        self._found: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._lock = Lock()

    def learn(self, pixels: float, seconds: float) -> None:
        with self._lock:
            self._found.append((pixels, seconds))

    def seconds(self, pixels: float) -> float | None:
        """Expected time of a picture of so many pixels; None: nothing was measured yet."""
        with self._lock:
            found = np.array(self._found)
        if len(found) == 0:
            return None
        sizes, times = found.T
        if np.ptp(sizes) < 0.2 * sizes.max():
            return float(np.median(times) * max(1.0, pixels / np.median(sizes)))
        slope, base = np.polyfit(sizes, times, 1)
        if slope < 0 or base < 0:
            return float(np.median(times / sizes) * pixels) if base < 0 else float(np.median(times))
        return float(base + slope * pixels)

    def heights(
        self,
        full: int,  # rows of the finest picture
        aspect: float,  # width over height
        moving: bool = False,  # no finer picture follows
    ) -> list[int]:
        """Rows of the picture that comes at once, and of the finer ones that follow."""
        rows = sorted({max(min(LEAST, full), round(full / step)) for step in STEPS}, reverse=True)
        if self.seconds(1.0) is None:
            first = max(min(LEAST, full), round(full / _FIRST))
            return [first] if moving else [first, *([full] if full > first else [])]
        costs = {h: self.seconds(h * h * aspect) or 0.0 for h in rows}
        first = self._finest(costs, MOVING_S)
        last = self._finest(costs, STILL_S)
        return [first] if moving or last <= first else [first, last]

    @staticmethod
    def _finest(costs: dict[int, float], limit: float) -> int:
        """The finest height within the limit; where none is, the finest that hardly takes longer than the coarsest."""
        within = [h for h, cost in costs.items() if cost <= limit]
        return max(within) if within else max(h for h, cost in costs.items() if cost <= 1.3 * min(costs.values()))
