# SPDX-License-Identifier: Apache-2.0
"""Cells over a plane that count the points that fall into them. Memory is bounded by the number of cells, not of points."""

import math
from dataclasses import dataclass, field

import numpy as np

from nurec_lite.evaluation.pictures import RANGE_MAP, Bar

BACK, ORANGE = (18, 18, 22), (255, 140, 50)  # orange: measured
FAINTEST = 0.3  # brightness of a cell with a single point


@dataclass
class Canvas:
    """Counts of points in cells. Row 0 lies at `high` of the second axis, column 0 at `low` of the first."""

    low: np.ndarray  # [2] metres
    high: np.ndarray  # [2] metres
    cell: float  # metres
    counts: np.ndarray = field(init=False)  # [H, W] points
    totals: np.ndarray = field(init=False)  # [H, W] sum of the points' values

    def __post_init__(self) -> None:
        width, height = (max(1, round(float(side) / self.cell)) for side in self.high - self.low)
        self.counts, self.totals = np.zeros((height, width)), np.zeros((height, width))

    def pixels(
        self,
        points: np.ndarray,  # [..., 2] metres
    ) -> np.ndarray:  # [..., 2] column and row
        return np.stack([points[..., 0] - self.low[0], self.high[1] - points[..., 1]], axis=-1) / self.cell

    def add(
        self,
        points: np.ndarray,  # [n, 2] metres
        value: float = 0.0,  # of these points, such as their time
    ) -> None:
        height, width = self.counts.shape
        column, row = np.floor(self.pixels(points)).astype(np.int64).T
        inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        found = np.bincount(row[inside] * width + column[inside], minlength=height * width).reshape(height, width)
        self.counts += found
        self.totals += value * found

    def cropped(
        self,
        kept: np.ndarray,  # [m, 2] metres: places that stay
        margin: float,  # metres
    ) -> "Canvas":
        """The part with these places and nearly all of the points; 0.5 % of the cells at each side may be cut off."""
        rows, columns = np.nonzero(self.counts)
        places = np.stack([columns, rows], axis=1) if len(rows) else np.zeros((0, 2))
        ends = (
            np.concatenate([np.quantile(places, (0.005, 0.995), axis=0), self.pixels(kept)])
            if len(places)
            else self.pixels(kept)
        )
        height, width = self.counts.shape
        left, top = np.floor(ends.min(0) - margin / self.cell).astype(int).clip(0)
        right, bottom = np.minimum(np.ceil(ends.max(0) + margin / self.cell).astype(int) + 1, (width, height))
        low, high = self.low + self.cell * np.array([left, 0]), self.high - self.cell * np.array([0, top])
        part = Canvas(low, high, self.cell)
        part.counts, part.totals = (a[top:bottom, left:right] for a in (self.counts, self.totals))
        return part

    def painted(
        self,
        bar: Bar | None = None,  # colours the mean value of a cell; None: all cells are orange
    ) -> np.ndarray:  # [H, W, 3] uint8; the more points, the brighter
        picture, hit = np.full((*self.counts.shape, 3), BACK, np.uint8), self.counts > 0
        counts, colours = self.counts[hit], np.array(ORANGE, dtype=float)
        if not len(counts):
            return picture
        if bar is not None:
            colours = bar.paint(self.totals[hit] / counts).astype(float)
        share = (np.log1p(counts) / np.log1p(np.quantile(counts, 0.99))).clip(0, 1)
        strength = (FAINTEST + (1 - FAINTEST) * share)[:, None]
        picture[hit] = (colours * strength + np.array(BACK) * (1 - strength)).round()
        return picture


def time_bar(low: float, high: float) -> Bar:
    """Colours from the first to the last tenth of a second; without the darkest, which hardly show on a dark map."""
    first = math.floor(10 * low) / 10
    return Bar(RANGE_MAP[2:], first, max(math.ceil(10 * high) / 10, first + 0.1), "s")
