# SPDX-License-Identifier: Apache-2.0
"""Nearest points by cells are those that a tree finds."""

import pytest
import torch
from torch import Tensor

from nurec_lite.scene import neighbours
from nurec_lite.scene.neighbours import nearest_by_cells, nearest_by_tree


@pytest.fixture(autouse=True)
def cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the search take cells for the few points of a test, too."""
    monkeypatch.setattr(neighbours, "ALL_PAIRS", 2000)
    monkeypatch.setattr(neighbours, "SEVERAL", 7)
    monkeypatch.setattr(neighbours, "AT_ONCE", 5000)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def surface(n: int) -> Tensor:
    """A hilly ground, with a hundredth of the points lost above it."""
    xyz = random(n, 3) * torch.tensor([40.0, 30, 0]) - 20
    xyz[:, 2] = torch.sin(xyz[:, 0]) + 0.01 * random(n, seed=1)
    xyz[: n // 100, 2] += 15 * random(n // 100, seed=2)
    return xyz


@pytest.mark.parametrize("k", [1, 3, 8])
def test_on_a_surface_they_are_the_same(k: int) -> None:
    xyz = surface(3000)
    distances, numbers = nearest_by_cells(xyz, xyz, k)
    expected, _ = nearest_by_tree(xyz, xyz, k)
    assert torch.equal(numbers[:, 0], torch.arange(3000)) and not distances[:, 0].any()
    torch.testing.assert_close((xyz[numbers] - xyz[:, None]).norm(dim=-1), distances)
    assert (distances >= expected - 1e-9).all() and (distances.diff(dim=1) >= 0).all()
    assert ((distances - expected).abs() < 1e-9).float().mean() > 0.98
    assert (distances[:, -1] <= 2 * expected[:, -1] + 1e-9).all()
    assert all(len(row.unique()) == k for row in numbers[:50])


def test_from_afar_one_stands_for_those_around_it() -> None:
    crowd, queries = surface(2000), random(1500, 3, seed=3) * 200 - 100
    distances, numbers = nearest_by_cells(queries, crowd, 1)
    expected, _ = nearest_by_tree(queries, crowd, 1)
    torch.testing.assert_close((crowd[numbers[:, 0]] - queries).norm(dim=-1), distances[:, 0])
    assert (distances >= expected - 1e-9).all() and (distances <= 1.5 * expected + 1e-9).all()


@pytest.mark.parametrize(("n", "q", "k"), [(1, 5, 1), (8, 8, 8), (9, 400, 8), (60, 31, 2), (33, 0, 1)])
def test_few_points_and_odd_numbers(n: int, q: int, k: int) -> None:
    points, queries = random(n, 3), 3 * random(q, 3, seed=5)
    distances, _ = nearest_by_cells(queries, points, k)
    assert distances.shape == (q, k)
    torch.testing.assert_close(distances, nearest_by_tree(queries, points, k)[0])


def test_points_that_lie_in_one_another_are_neighbours() -> None:
    xyz = random(50, 3).repeat(20, 1)
    distances, numbers = nearest_by_cells(xyz, xyz, 8)
    assert not distances.any() and (numbers % 50 == torch.arange(1000)[:, None] % 50).all()


def test_groups_far_apart_with_fewer_than_are_asked_for() -> None:
    """Some must look far beyond their own."""
    xyz = (1000 * random(200, 1, 3) + 0.001 * random(200, 5, 3, seed=6)).flatten(0, 1)
    distances, numbers = nearest_by_cells(xyz, xyz, 8)
    assert (distances[:, :5] < 0.01).all() and (distances[:, 5:] > 0.01).all() and distances.isfinite().all()
    assert (numbers[:, :5] // 5 == (torch.arange(1000) // 5)[:, None]).all()
    assert (
        distances[:, 5] <= 1.5 * nearest_by_tree(xyz, xyz, 8)[0][:, 5]
    ).all()  # of another group there may be but one
