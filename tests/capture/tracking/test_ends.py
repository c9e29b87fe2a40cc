# SPDX-License-Identifier: Apache-2.0
"""The front and the rear of a slow truck are one vehicle, where only they seem to move; two cars of a queue stay two."""

import numpy as np
import pytest
from test_objects import Doubles

from nurec_lite.capture.tracking.cloud import Cloud
from nurec_lite.capture.tracking.objects import find_objects

SPEED, PERIOD, COUNT = 2.0, 0.1, 50
TIMES = PERIOD * np.arange(COUNT)


def side(
    first: float, last: float, top: float, width: float = 2.4
) -> Doubles:  # [n, 3] metres along, across and up, of the right side and the rear
    along, up = np.meshgrid(np.arange(first, last, 0.2), np.arange(0.4, top, 0.2))
    across, high = np.meshgrid(np.arange(2.8, 2.8 + width, 0.2), np.arange(0.4, top, 0.2))
    rear = np.column_stack([np.full(across.size, first), across.ravel(), high.ravel()])
    return np.concatenate([np.column_stack([along.ravel(), np.full(along.size, 2.75), up.ravel()]), rear])


def cloud(parts: list[Doubles], moving: list[tuple[float, float]]) -> Cloud:  # metres along
    """Vehicles that drive along x to the left of a lidar which stands. Returns that seem to stand were there while these covered them."""
    shape = np.concatenate(parts)
    moment = np.repeat(np.arange(COUNT), len(shape))
    own = np.tile(shape, (COUNT, 1))
    own = own + np.random.default_rng(0).uniform(-0.1, 0.1, own.shape)
    points = own + SPEED * TIMES[moment, None] * (1.0, 0.0, 0.0)
    sure = np.any([(own[:, 0] >= a) & (own[:, 0] <= b) for a, b in moving], axis=0)
    times = TIMES[moment]
    held = times[:, None] + np.column_stack([own[:, 0] - 5.2, own[:, 0] + 5.2]) / SPEED
    still = np.column_stack([points, times, held])[~sure]
    gone = np.column_stack([times, times + 60])[sure]
    sensors = np.tile([6.0, 0.0], (COUNT, 1))
    return Cloud(
        points[sure], times[sure], points[sure, 2], np.ones(sure.sum(), bool), gone, still, TIMES, sensors, PERIOD
    )


@pytest.mark.parametrize("top", [2.6, 3.4])
def test_a_front_and_a_rear_with_a_closed_side_between_them_are_one_truck(top: float) -> None:
    (path,) = find_objects(cloud([side(-5.5, 5.5, top)], moving=[(-6.0, -4.0), (4.0, 6.0)]))
    assert path.kind.name == "Truck"
    assert path.kind.size[0] == pytest.approx(11.0, abs=0.4)
    assert np.abs(path.places[:, 0] - SPEED * path.times).max() < 0.4


def test_cars_of_a_queue_are_two() -> None:
    """They are as far apart as the front and the rear of the truck, and nothing is between them."""
    paths = find_objects(cloud([side(-5.5, -1.5, 1.5, 1.7), side(1.5, 5.5, 1.5, 1.7)], moving=[(-6.0, 6.0)]))
    assert [path.kind.name for path in paths] == ["Car", "Car"]


def test_low_cars_bumper_to_bumper_are_no_truck() -> None:
    paths = find_objects(
        cloud([side(-5.5, -0.4, 1.5, 1.7), side(0.2, 5.5, 1.5, 1.7)], moving=[(-6.0, -4.0), (4.0, 6.0)])
    )
    assert all(path.kind.name != "Truck" for path in paths)
