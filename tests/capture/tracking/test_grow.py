# SPDX-License-Identifier: Apache-2.0
"""A box grows over the side of a slow truck, which seems to stand, and not over things beside its way."""

from dataclasses import replace

import numpy as np
import pytest

from nurec_lite.capture.tracking.boxes import Path
from nurec_lite.capture.tracking.classes import Kind
from nurec_lite.capture.tracking.cloud import Cloud
from nurec_lite.capture.tracking.grow import grown
from nurec_lite.capture.tracking.smooth import Doubles

SPEED, LENGTH, PERIOD = 2.0, 11.0, 0.1
TIMES = PERIOD * np.arange(50)
PLACES = np.column_stack([SPEED * TIMES, np.full(50, 4.0)])  # the middle of a truck, which drives along x


def cloud(
    ends: Doubles | None,
) -> Cloud:  # [n, 2] seconds around each return's time, of returns along the side; None without
    """Returns along the truck's side; those of its first and last metre move for certain."""
    along, moment = np.tile(np.linspace(-5.4, 5.4, 40), 50), np.repeat(np.arange(50), 40)
    points = np.column_stack([SPEED * TIMES[moment] + along, np.full(2000, 2.8), np.full(2000, 1.0)])
    inner = np.abs(along) < 4.5
    still = (
        np.column_stack([points, TIMES[moment], TIMES[moment, None] + ends])[inner]
        if ends is not None
        else np.zeros((0, 6))
    )
    times, shown = TIMES[moment][~inner], points[~inner]
    sure, gone = np.ones(len(times), bool), np.column_stack([times, times + 60])
    return Cloud(shown, times, shown[:, 2], sure, gone, still, TIMES, np.zeros((50, 2)), PERIOD)


def covered() -> Doubles:  # [2000, 2] seconds before and after, when the truck comes to a place and leaves it
    along = np.tile(np.linspace(-5.4, 5.4, 40), 50)
    return np.column_stack([along - 0.5 * LENGTH, along + 0.5 * LENGTH]) / SPEED


def part(kind: Kind) -> Path:
    """The front of the truck, found as a van."""
    front = PLACES + np.array([0.5 * (LENGTH - kind.size[0]), 0.0])
    return Path(TIMES, front, np.zeros(50), kind, np.zeros(50), 1000)


VAN = Kind("Van", (6.0, 2.5, 2.3))


def test_a_box_grows_over_the_side_of_a_slow_truck() -> None:
    path = grown(cloud(covered()), part(VAN))
    assert path.kind.name == "Truck"
    assert path.kind.size[0] == pytest.approx(LENGTH, abs=0.6)
    assert np.abs(path.places - PLACES).max() < 0.4


def test_a_box_does_not_grow_over_things_that_stand_beside_it() -> None:
    """They were there long before and after."""
    assert grown(cloud(np.tile([-8.0, 8.0], (2000, 1))), part(VAN)).kind == VAN


def test_a_box_without_returns_next_to_it_and_a_car_stay_as_they_are() -> None:
    alone = part(VAN)
    assert grown(cloud(None), alone) is alone
    empty = replace(
        cloud(None), points=np.zeros((0, 3)), times=np.zeros(0), heights=np.zeros(0), moving=np.zeros(0, bool)
    )
    assert grown(empty, alone) is alone
    car = part(Kind("Car", (4.3, 1.8, 1.5)))
    assert grown(cloud(covered()), car) is car
