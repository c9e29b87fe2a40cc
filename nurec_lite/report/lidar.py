# SPDX-License-Identifier: Apache-2.0
"""A sweep as the report shows it: range maps at the lidar's own resolution, and its points from above."""

from dataclasses import dataclass

import numpy as np

from nurec_lite.evaluation.drawing import DrawnSweep
from nurec_lite.evaluation.metrics import NEVER_CROSSED_M
from nurec_lite.evaluation.pictures import (
    ERROR_MAP,
    MEASURED,
    RANGE_ERROR_M,
    RANGE_MAP,
    RENDERED,
    Bar,
    range_image,
    round_range,
)  # fmt: skip
from nurec_lite.geometry.lidar import azimuth_elevation

MAX_COLUMNS = 1024  # of a range map
CELLS = 320  # along a side of the view from above
BOTH = (214, 214, 208)
_GROUND, _SENSOR = (22, 22, 26), (120, 220, 120)


@dataclass(frozen=True)
class Map:
    title: str
    bar: Bar
    picture: np.ndarray  # [B, W, 3] uint8


def range_maps(drawn: DrawnSweep) -> list[Map]:
    """Measured range, rendered range (median) and its absolute error; black where nothing returned."""
    returned, ranges, median, seen = _ranges(drawn)
    error = np.abs(np.where(median > 0, median, NEVER_CROSSED_M) - ranges)
    far, wrong = Bar(RANGE_MAP, 0, round_range(ranges[returned]), "m"), Bar(ERROR_MAP, 0, RANGE_ERROR_M, "m")
    azimuths = azimuth_elevation(drawn.sweep.directions)[:, 0].numpy()
    rings, elevations = drawn.sweep.rings.numpy(), drawn.lidar.elevations.numpy()
    width = min(drawn.lidar.azimuth_steps, MAX_COLUMNS)

    def painted(title: str, bar: Bar, values: np.ndarray, mask: np.ndarray) -> Map:
        shown = range_image(np.where(mask, values, np.nan), rings, azimuths, elevations, width)
        return Map(title, bar, bar.paint(shown))

    return [
        painted("measured range", far, ranges, returned),
        painted("rendered range", far, median, seen),
        painted("absolute error", wrong, error, returned),
    ]


def from_above(
    drawn: DrawnSweep,
) -> tuple[np.ndarray, float]:  # [CELLS, CELLS, 3] uint8, metres from the middle to an edge
    """Measured and rendered points in the lidar's frame, ahead on top. A measured and a rendered point in touching cells count as equal."""
    returned, ranges, median, seen = _ranges(drawn)
    directions = drawn.sweep.directions.numpy()
    flat = np.linalg.norm(directions[returned, :2], axis=1) * ranges[returned]
    reach = round_range(flat)
    measured = _cells((directions * ranges[:, None])[returned], reach)
    rendered = _cells((directions * median[:, None])[seen], reach)
    picture = np.full((CELLS, CELLS, 3), _GROUND, np.uint8)
    picture[rendered] = RENDERED
    picture[measured] = MEASURED
    picture[(measured & _widened(rendered)) | (rendered & _widened(measured))] = BOTH
    middle = slice(CELLS // 2 - 2, CELLS // 2 + 2)
    picture[middle, middle] = _SENSOR
    return picture, reach


def _ranges(drawn: DrawnSweep) -> tuple[np.ndarray, ...]:
    """[R] each: returned, measured metres, rendered metres (0: none), whether the rendered ray returns."""
    returned, ranges, median, drop = (
        t.detach().numpy() for t in (drawn.sweep.returned, drawn.sweep.ranges, drawn.returns.median, drawn.returns.drop)
    )
    return returned, ranges, median, (median > 0) & (drop <= 0.5)


def _cells(
    points: np.ndarray,  # [n, 3] metres
    reach: float,  # metres
) -> np.ndarray:  # [CELLS, CELLS] bool
    place = np.floor((1 - points[:, :2] / reach) * CELLS / 2).astype(np.int64)
    place = place[((place >= 0) & (place < CELLS)).all(axis=1)]
    cells = np.zeros((CELLS, CELLS), bool)
    cells[place[:, 0], place[:, 1]] = True
    return cells


def _widened(
    cells: np.ndarray,  # [CELLS, CELLS] bool
) -> np.ndarray:  # [CELLS, CELLS] bool, neighbours included
    padded = np.pad(cells, 1)
    size = len(cells)
    return np.logical_or.reduce([padded[i : i + size, j : j + size] for i in range(3) for j in range(3)])
