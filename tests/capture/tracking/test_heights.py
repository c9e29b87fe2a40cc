# SPDX-License-Identifier: Apache-2.0
"""Heights of boxes where the map of the ground is wrong: by the object itself, a kerb, a ditch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nurec_lite.capture.tracking.boxes import Path
from nurec_lite.capture.tracking.classes import Kind
from nurec_lite.capture.tracking.found import _centres, _tracks
from nurec_lite.capture.tracking.ground import CELL, Ground
from nurec_lite.capture.tracking.smooth import Doubles

CAR = Kind("Car", (4.3, 1.8, 1.5))
Raise = Callable[[Doubles, Doubles], Doubles]


def heights_of(street: Raise) -> Doubles:  # [n] metres above 0 of a car that drives 30 m along x, its lower face
    x, y = np.meshgrid(np.arange(0, 60, CELL) + 0.5 * CELL, np.arange(-8, 8, CELL) + 0.5 * CELL, indexing="ij")
    ground = Ground(street(x, y).astype(np.float32), np.array([0.0, -8.0]))
    return _centres(along_x(), ground)[:, 2] - 0.5 * CAR.size[2]


HIDDEN: Raise = lambda x, y: np.where((x > 34) & (np.abs(y) < 1.0), 0.3, 0.0)  # noqa: E731  where the car is at last


@pytest.mark.parametrize(
    ("street", "most"),
    [
        (lambda x, y: 0 * x, 0.001),
        (HIDDEN, 0.02),
        (lambda x, y: HIDDEN(x, y) + np.where(y < -1.8, 0.12, 0.0), 0.13),
        (lambda x, y: np.where(y < -1.8, 0.12, 0.0), 0.02),
        (lambda x, y: np.where(y > 1.8, -0.5, 0.0), 0.02),
        (lambda x, y: -0.015 * np.abs(y), 0.03),
    ],
    ids=["flat", "hidden at the end", "hidden beside a kerb", "a kerb", "a ditch", "a crown"],
)
def test_a_box_stands_on_the_street(street: Raise, most: float) -> None:
    assert float(np.abs(heights_of(street)).max()) < most


def test_a_box_climbs_with_the_street() -> None:
    found = heights_of(lambda x, y: 0.1 * x)
    assert float(np.abs(found - 0.1 * (10 + 10 * np.arange(0, 3.0, 0.1))).max()) < 0.06


def test_ground_that_is_not_known_beside_the_way_changes_nothing() -> None:
    found = heights_of(lambda x, y: np.where(np.abs(y) < 1.0, 0.0, np.inf))
    assert float(np.abs(found).max()) < 0.001


def test_cells_that_are_bridged_lift_no_box() -> None:
    """Beyond the last returns the map of the ground rises as far as a street may."""
    x = np.arange(0, 60, CELL) + 0.5 * CELL
    beyond = np.broadcast_to(x[:, None] > 36, (len(x), 20))
    ground = Ground(np.where(beyond, 0.2 * (x[:, None] - 36), 0.0).astype(np.float32), np.array([0.0, -8.0]), beyond)
    assert float(np.abs(_centres(along_x(), ground)[:, 2] - 0.5 * CAR.size[2]).max()) < 0.001


def test_a_box_over_cells_without_returns_stands_on_what_is_bridged() -> None:
    assert float(np.abs(_centres(along_x(), flat(0.5, bridged=True))[:, 2] - 0.5 * CAR.size[2] - 0.5).max()) < 0.001


def test_a_box_without_a_known_height_is_no_track() -> None:
    anything: Any = None
    assert len(_tracks([along_x()], anything, flat(np.inf, bridged=True))) == 0


def along_x() -> Path:
    times = np.arange(0, 3.0, 0.1)
    return Path(times, np.stack([10 + 10 * times, 0 * times], axis=1), np.zeros(30), CAR, np.zeros(30), 1000)


def flat(height: float, bridged: bool) -> Ground:
    heights = np.full((150, 40), height, np.float32)
    return Ground(heights, np.array([0.0, -8.0]), np.full(heights.shape, bridged))
