# SPDX-License-Identifier: Apache-2.0
import math

import pytest
import torch

from nurec_lite.geometry.lidar import Sweep, azimuth_elevation, unit_directions

F64 = torch.float64


def make_sweep(n: int) -> Sweep:
    directions = unit_directions(torch.randn(n, 2))
    times, rings = torch.rand(n, dtype=F64), torch.arange(n)
    return Sweep(directions, torch.rand(n), torch.rand(n), times, rings, torch.rand(n) > 0.5)


def test_azimuth_is_counter_clockwise_from_forward_and_elevation_upwards() -> None:
    forward, left, behind, up = azimuth_elevation(
        torch.tensor([[2.0, 0, 0], [0, 2, 0], [-2, 0, 0], [0, 0, 2]], dtype=F64)
    )
    # to a few units in the last place: whose arc tangent it is decides the last one
    for angles, expected in ((forward, [0, 0]), (left, [math.pi / 2, 0]), (behind, [math.pi, 0])):
        assert angles.tolist() == pytest.approx(expected, rel=1e-15, abs=1e-15)
    assert float(up[1]) == pytest.approx(math.pi / 2, rel=1e-15)


def test_angles_survive_the_round_trip() -> None:
    azimuth = torch.linspace(-math.pi, math.pi, 33, dtype=F64)
    angles = torch.cartesian_prod(azimuth, torch.linspace(-1.5, 1.5, 9, dtype=F64))
    torch.testing.assert_close(azimuth_elevation(unit_directions(angles)), angles)


def test_directions_survive_the_round_trip() -> None:
    directions = torch.nn.functional.normalize(torch.randn(101, 3, dtype=F64), dim=-1)
    poles = torch.tensor([[0.0, 0, 1], [0, 0, -1], [-1, 0, 0], [-1, -0.0, 0]], dtype=F64)
    directions = torch.cat([directions, poles])
    torch.testing.assert_close(unit_directions(azimuth_elevation(directions)), directions, atol=1e-15, rtol=1e-12)


def test_both_ends_of_the_azimuth_are_one_direction() -> None:
    a, b = unit_directions(torch.tensor([[math.pi, 0.3], [-math.pi, 0.3]], dtype=F64))
    torch.testing.assert_close(a, b, atol=1e-15, rtol=0)


def test_the_length_of_a_direction_does_not_matter() -> None:
    directions = torch.randn(31, 3, dtype=F64)
    torch.testing.assert_close(azimuth_elevation(7 * directions), azimuth_elevation(directions))


def test_directions_are_unit() -> None:
    torch.testing.assert_close(unit_directions(torch.randn(31, 2, dtype=F64)).norm(dim=-1), torch.ones(31, dtype=F64))


def test_gradients_of_the_angles() -> None:
    directions = torch.randn(7, 3, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(azimuth_elevation, (directions,))
    assert torch.autograd.gradcheck(unit_directions, (torch.randn(7, 2, dtype=F64, requires_grad=True),))


def test_a_sweep_selects_by_mask_and_by_index() -> None:
    sweep = make_sweep(31)
    kept = sweep.select(sweep.returned)
    assert len(kept) == int(sweep.returned.sum()) and kept.returned.all()
    again = sweep.select(sweep.returned.nonzero().squeeze(1))
    for name in Sweep.__dataclass_fields__:
        assert torch.equal(getattr(kept, name), getattr(again, name))
    assert len(sweep.select(torch.zeros(31, dtype=torch.bool))) == 0
