# SPDX-License-Identifier: Apache-2.0
"""Planes in closed form against LAPACK, and which points of a sweep meet a surface."""

import pytest
import torch

from nurec_lite.capture.odometry.clouds import Cloud
from nurec_lite.capture.odometry.front import scan_to_map
from nurec_lite.capture.odometry.planes import planes
from nurec_lite.capture.odometry.surfaces import surface_map
from nurec_lite.geometry.se3 import quat_to_matrix


@pytest.mark.parametrize("sizes", [(0.3, 0.2, 0.01), (0.3, 0.3, 1e-6), (5.0, 0.1, 0.05), (0.2, 0.2, 0.2)])
def test_planes_are_those_of_lapack(sizes: tuple[float, float, float]) -> None:
    """Far from the origin, turned in all directions."""
    generator = torch.Generator().manual_seed(0)
    turns = quat_to_matrix(torch.nn.functional.normalize(torch.randn(500, 4, generator=generator).double(), dim=1))
    own = torch.randn(500, 10, 3, generator=generator).double() * torch.tensor(sizes).double()
    points = own @ turns.transpose(1, 2) + 1000.0
    apart = points - points.mean(1, keepdim=True)
    squares, axes = torch.linalg.eigh(apart.transpose(1, 2) @ apart / 10)
    normals, thick, wide = planes(points)
    torch.testing.assert_close(thick, squares[:, 0].clamp(min=0).sqrt(), atol=1e-7, rtol=1e-6)
    torch.testing.assert_close(wide, squares[:, 1].sqrt(), atol=1e-7, rtol=1e-6)
    torch.testing.assert_close((normals * axes[:, :, 0]).sum(1).abs(), torch.ones(500).double(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("direction", [None, (1.0, 2.0, 3.0)])
def test_points_in_one_place_or_on_a_line_give_numbers(direction: tuple[float, float, float] | None) -> None:
    along = torch.zeros(3).double() if direction is None else torch.tensor(direction).double()
    points = torch.arange(10).double()[None, :, None] * along
    for found in planes(points):
        assert bool(found.isfinite().all())


def test_points_meet_the_surfaces_within_reach() -> None:
    """A floor: of three points one is too far away."""
    x, y = torch.meshgrid(torch.arange(-3, 3, 0.1), torch.arange(-3, 3, 0.1), indexing="ij")
    floor = torch.stack([x, y, torch.zeros_like(x)], dim=-1).view(-1, 3).double()
    rows, at, normals = surface_map(floor).surfaces(
        torch.tensor([[0, 0, 0.2], [1, 1, 0.9], [-1, 2, -0.3]]).double(), 0.5
    )
    assert rows.tolist() == [0, 2]
    torch.testing.assert_close(normals[:, 2].abs(), torch.ones(2).double())
    torch.testing.assert_close(floor[at][:, :2], torch.tensor([[0.0, 0.0], [-1.0, 2.0]]).double(), atol=0.06, rtol=0)


def test_nothing_near_is_no_surface() -> None:
    rows, at, normals = surface_map(torch.rand(50, 3).double()).surfaces(torch.full((4, 3), 99.0).double(), 0.5)
    assert len(rows) == len(at) == 0 and normals.shape == (0, 3)


@pytest.mark.parametrize("count", [0, 1, 9])
def test_few_points_of_a_map_are_no_surface(count: int) -> None:
    """The library ends the process where it looks into an empty tree."""
    rows, at, normals = surface_map(torch.rand(count, 3).double()).surfaces(torch.rand(4, 3).double(), 0.5)
    assert len(rows) == len(at) == 0 and normals.shape == (0, 3)


@pytest.mark.parametrize("empty", [(0, 1), (4, 5, 6), tuple(range(7))])
def test_sweeps_without_returns_leave_a_path(empty: tuple[int, ...]) -> None:
    room = (
        torch.rand(4000, 3, generator=torch.Generator().manual_seed(0)).double() * torch.tensor([20.0, 9, 4]).double()
    )
    clouds = [
        Cloud(0.1 * k, room[: 0 if k in empty else None], torch.full((0 if k in empty else 4000,), 0.1 * k).double())
        for k in range(7)
    ]
    found = scan_to_map(clouds, 0.1 * torch.arange(7).double(), None).poses
    assert found.shape == (7, 4, 4) and bool(found.isfinite().all())
