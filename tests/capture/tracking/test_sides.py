# SPDX-License-Identifier: Apache-2.0
"""A side that is seen askew, as from behind in the next lane, tells how long a vehicle is, unless something hides its end."""

import numpy as np
import pytest

from nurec_lite.capture.tracking.boxes import Path
from nurec_lite.capture.tracking.classes import Kind
from nurec_lite.capture.tracking.cloud import Cloud
from nurec_lite.capture.tracking.sides import whole
from nurec_lite.capture.tracking.smooth import Doubles

PERIOD = 0.1
TIMES = PERIOD * np.arange(20)
AHEAD, SIDE = 5.0, 2.0  # metres from the lidar to the rear, and to the side
TRUCK = Kind("Truck", (9.5, 2.5, 3.2))
LIDAR = np.column_stack([8.0 * TIMES, 0 * TIMES])  # it follows the truck


def cloud(points: list[Doubles]) -> Cloud:  # [k, 2] metres from the lidar, at all moments
    """Returns that move for certain."""
    of, count = np.concatenate(points), sum(len(p) for p in points)
    places = (LIDAR[:, None] + of).reshape(-1, 2)
    times = np.repeat(TIMES, count)
    shown = np.column_stack([places, np.ones(len(times))])
    gone = np.column_stack([times, times + 60])
    moves = np.ones(len(times), np.bool_)
    return Cloud(shown, times, shown[:, 2], moves, gone, np.zeros((0, 6)), TIMES, LIDAR, PERIOD)


def side(length: float) -> Doubles:
    along = AHEAD + np.linspace(0.02, length - 0.02, 40)
    return np.column_stack([along, np.full(40, SIDE)])


def box(kind: Kind = TRUCK, moments: int = 20) -> Path:
    """The rear faces the lidar, so that it places the box."""
    middle = LIDAR + np.array([AHEAD + 0.5 * kind.size[0], SIDE + 0.5 * kind.size[1]])
    return Path(TIMES[:moments], middle[:moments], np.zeros(moments), kind, np.zeros(moments), 800)


@pytest.mark.parametrize("length", [7.0, 12.0])
def test_a_truck_ahead_is_as_long_as_its_side(length: float) -> None:
    path = whole(cloud([side(length)]), box())
    assert path is not None
    assert path.kind.size[0] == pytest.approx(length, abs=0.1)
    assert np.abs(path.places[:, 0] - LIDAR[:, 0] - AHEAD - 0.5 * length).max() < 0.1


def test_an_end_that_something_hides_tells_no_length() -> None:
    """A car in front of it ends the visible part of the side at 7 metres."""
    ray = np.array([AHEAD + 7.0, SIDE])
    car = ray * 0.5 + np.column_stack([np.linspace(0.0, 1.5, 20), np.zeros(20)])
    assert whole(cloud([side(7.0)]), box()) is not None
    assert whole(cloud([side(7.0), car]), box()) is None


def test_a_side_that_is_not_seen_tells_no_length() -> None:
    rear = np.column_stack([np.full(20, AHEAD), np.linspace(SIDE, SIDE + 2.5, 20)])
    assert whole(cloud([rear]), box()) is None
    assert whole(cloud([np.zeros((0, 2))]), box()) is None
    assert whole(cloud([side(12.0)]), box(moments=2)) is None


def test_the_next_truck_in_a_queue_is_another() -> None:
    """A metre and a half lies between them."""
    both = np.concatenate([side(7.0), side(8.0) + np.array([8.5, 0.0])])
    path = whole(cloud([both]), box())
    assert path is not None
    assert path.kind.size[0] == pytest.approx(7.0, abs=0.1)
