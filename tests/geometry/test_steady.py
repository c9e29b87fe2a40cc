# SPDX-License-Identifier: Apache-2.0
"""A steady motion by Rodrigues' formula is that of quaternions, for one frame and several, also without a turn."""

import pytest
import torch
from torch import Tensor

from nurec_lite.geometry.se3 import Motion, quat_rotate, rotvec_to_quat
from nurec_lite.geometry.steady import SteadyMotion

TURNS = [(0.0, 0.0, 0.0), (1e-13, 0.0, 0.0), (1e-7, -2e-8, 0.0), (0.02, -0.01, 0.3), (1.0, 2.0, -2.0)]


def moving(turns: Tensor) -> Motion:
    generator = torch.Generator().manual_seed(3)
    q, t, way = (torch.randn(len(turns), n, dtype=torch.float64, generator=generator) for n in (3, 3, 3))
    return Motion(rotvec_to_quat(q), turns, 1000 * t, way)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def test_several_motions_carry_points_and_vectors() -> None:
    motion, points, fraction = moving(torch.tensor(TURNS, dtype=torch.float64)), 30 * drawn(5, 40, 3), 2 * drawn(5, 40)
    alike = Motion(*(part[:, None] for part in motion))
    q, t = alike.at(fraction)
    steady = SteadyMotion.of(motion)
    torch.testing.assert_close(steady.rotated(points, fraction), quat_rotate(q, points), rtol=0, atol=1e-12)
    world = steady.to_world(points, fraction)
    torch.testing.assert_close(world, quat_rotate(q, points) + t, rtol=0, atol=1e-11)
    torch.testing.assert_close(steady.to_rig(world, fraction), points, rtol=0, atol=1e-11)


@pytest.mark.parametrize("turn", TURNS, ids=str)
def test_one_motion_needs_no_first_axis(turn: tuple[float, float, float]) -> None:
    several, points, fraction = moving(torch.tensor([turn], dtype=torch.float64)), drawn(7, 3), drawn(7)
    alone = SteadyMotion.of(Motion(*(part[0] for part in several)))
    expected = SteadyMotion.of(several).to_world(points[None], fraction[None])[0]
    torch.testing.assert_close(alone.to_world(points, fraction), expected, rtol=0, atol=1e-12)
    assert alone.to_world(points[:0], fraction[:0]).shape == (0, 3)


def test_single_motions_stack_to_several() -> None:
    steady = SteadyMotion.of(moving(torch.tensor(TURNS, dtype=torch.float64)))
    again = SteadyMotion.stack([SteadyMotion(*parts) for parts in zip(*steady, strict=True)])
    assert all(torch.equal(a, b) for a, b in zip(again, steady, strict=True))
