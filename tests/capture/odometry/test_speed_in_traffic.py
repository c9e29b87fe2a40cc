# SPDX-License-Identifier: Apache-2.0
"""The first speed of a rig between vehicles that drive as fast, and of one that stands beside traffic."""

import pytest
import torch
from torch import Tensor

from nurec_lite.capture.odometry import front
from nurec_lite.capture.odometry.beside import speed_of_rest
from nurec_lite.capture.odometry.clouds import Cloud
from nurec_lite.capture.odometry.front import scan_to_map


def patch(x: float, y: float, wide: float, high: float, across: bool) -> Tensor:  # [n, 3]
    """An upright surface, across the road or along it."""
    along, up = torch.cartesian_prod(torch.arange(0, wide, 0.3), torch.arange(0.3, high, 0.3)).double().unbind(1)
    none = torch.zeros_like(along)
    return torch.stack([x + (none if across else along), y + (along if across else none), up], dim=1)


def seen(time: float, rig: float, cars: float) -> Cloud:
    """Signs on both sides of a road, and vans on four lanes; speeds of the rig and of the vans in metres a second."""
    places = torch.rand(80, 2, generator=torch.Generator().manual_seed(2)).double()
    signs = [
        patch(200 * x - 100 - rig * time, (12 + 6 * y) * (-1) ** k, 1.5, 2.5, True)
        for k, (x, y) in enumerate(places.tolist())
    ]
    starts = [
        (x + 5 * k + (cars - rig) * time, y) for k, y in enumerate((-7.0, -4.0, 2.5, 5.5)) for x in range(-60, 61, 16)
    ]
    vans = [patch(x, y, *size) for x, y in starts for size in ((4.5, 2.2, False), (1.8, 2.2, True))]
    generator = torch.Generator().manual_seed(round(10 * time))
    ground = torch.rand(3000, 3, generator=generator).double() * torch.tensor([80.0, 20, 0]) - torch.tensor(
        [40.0, 10, 0]
    )
    points = torch.cat([*signs, *vans, ground])
    points = points[points.norm(dim=1) < 60]
    points = points + 0.01 * torch.randn(points.shape, generator=generator, dtype=torch.float64)
    return Cloud(time, points, torch.full((len(points),), time, dtype=torch.float64))


def first_speed(rig: float, cars: float) -> float:
    times = torch.tensor([0.0, 0.1]).double()
    found = scan_to_map([seen(float(t), rig, cars) for t in times], times, None)
    return float(found.poses[1, 0, 3]) / 0.1


@pytest.mark.parametrize("speed", [30.0, 36.0])
def test_the_world_moves_where_vehicles_stand_beside_the_rig(speed: float, monkeypatch: pytest.MonkeyPatch) -> None:
    assert abs(first_speed(speed, speed) - speed) < 2.5
    monkeypatch.setattr(front, "STILL", -1.0)
    assert abs(first_speed(speed, speed)) < 1.0  # otherwise


@pytest.mark.parametrize("cars", [0.0, 9.0, 25.0])
def test_a_rig_that_stands_beside_traffic_stands(cars: float) -> None:
    assert abs(first_speed(0.0, cars)) < 1.0


def test_nothing_agrees_on_no_speed() -> None:
    nothing, cloud = (front._source(points) for points in (torch.zeros(0, 3).double(), seen(0.0, 0.0, 0.0).points))
    for pair in ((nothing, nothing), (nothing, cloud), (cloud, nothing), (cloud, cloud)):
        assert speed_of_rest(*pair, 0.1) is None
