# SPDX-License-Identifier: Apache-2.0
"""The operator find_nearest against scipy's tree, over the emulation or on a GPU."""

import emulation
import pytest
import torch
from parity import DEVICES
from torch import Tensor

from nurec_lite.native import ops
from nurec_lite.scene.neighbours import MOST, nearest, nearest_by_tree


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cpu" and not emulation.EMULATED:
        pytest.skip("on a CPU over the emulation alone")
    ops.load()
    return str(request.param)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def surface(n: int, seed: int = 0) -> Tensor:
    """A hilly ground, with a hundredth of the points lost above it."""
    xyz = random(n, 3, seed=seed) * torch.tensor([40.0, 30, 0]) - 20
    xyz[:, 2] = torch.sin(xyz[:, 0]) + 0.01 * random(n, seed=seed + 1)
    xyz[: n // 100, 2] += 15 * random(n // 100, seed=seed + 2)
    return xyz


def found_on(device: str, queries: Tensor, points: Tensor, k: int) -> tuple[Tensor, Tensor]:
    distances, numbers = torch.ops.nurec_lite.find_nearest(queries.to(device), points.to(device), k)
    return distances.cpu(), numbers.cpu()


def check(device: str, queries: Tensor, points: Tensor, k: int) -> Tensor:
    """Compares distances with the tree's and the numbers with the distances; returns the numbers."""
    distances, numbers = found_on(device, queries, points, k)
    torch.testing.assert_close(distances, nearest_by_tree(queries, points, k)[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close((points[numbers] - queries[:, None]).norm(dim=-1), distances, rtol=1e-12, atol=1e-12)
    assert all(len(row.unique()) == k for row in numbers[:50])
    return numbers


@pytest.mark.parametrize("k", [1, 2, 3, 7, 8])
def test_neighbours_on_a_surface(device: str, k: int) -> None:
    xyz = surface(3000)
    assert torch.equal(check(device, xyz, xyz, k)[:, 0], torch.arange(3000))


@pytest.mark.parametrize("k", [1, 8])
def test_queries_among_the_points_and_far_beyond_them(device: str, k: int) -> None:
    check(device, torch.cat([surface(500, seed=5), random(500, 3, seed=3) * 2000 - 1000]), surface(2000), k)


@pytest.mark.parametrize(
    ("n", "q", "k"), [(1, 5, 1), (8, 8, 8), (9, 400, 8), (16, 257, 3), (17, 1, 8), (60, 31, 2), (1025, 129, 5)]
)
def test_few_points_and_odd_numbers(device: str, n: int, q: int, k: int) -> None:
    check(device, 3 * random(q, 3, seed=5), random(n, 3), k)


def test_no_query_has_no_neighbours(device: str) -> None:
    distances, numbers = found_on(device, torch.zeros(0, 3).double(), random(33, 3), 4)
    assert distances.shape == numbers.shape == (0, 4)


def test_points_that_lie_in_one_another_are_neighbours(device: str) -> None:
    xyz = random(50, 3).repeat(20, 1)
    distances, numbers = found_on(device, xyz, xyz, 8)
    assert not distances.any() and (numbers % 50 == torch.arange(1000)[:, None] % 50).all()
    assert all(len(row.unique()) == 8 for row in numbers)


@pytest.mark.parametrize("extent", [(0.0, 0, 0), (50.0, 0, 0), (0, 1e-7, 0), (1e6, 1e-3, 1.0)])
def test_points_of_one_place_and_on_a_line(device: str, extent: tuple[float, float, float]) -> None:
    """Coordinates of a map, far from its origin."""
    place = torch.tensor([4.5e5, 5.4e6, 120.0], dtype=torch.float64)
    points = place + random(200, 3) * torch.tensor(extent, dtype=torch.float64)
    distances, numbers = found_on(device, points[:70], points, 8)
    torch.testing.assert_close(distances, nearest_by_tree(points[:70], points, 8)[0], rtol=1e-9, atol=1e-12)
    assert all(len(row.unique()) == 8 for row in numbers)


def test_groups_far_apart_with_fewer_than_are_asked_for(device: str) -> None:
    xyz = (1000 * random(200, 1, 3) + 0.001 * random(200, 5, 3, seed=6)).flatten(0, 1)
    numbers = check(device, xyz, xyz, 8)
    assert (numbers[:, :5] // 5 == (torch.arange(1000) // 5)[:, None]).all()


def test_they_are_the_same_every_time(device: str) -> None:
    points = surface(2500).round(decimals=1)  # many of them equally near
    first, second = (found_on(device, points, points, 8) for _ in range(2))
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])


def test_a_query_that_is_not_finite_has_none(device: str) -> None:
    queries = torch.tensor([[torch.nan, 0, 0], [0.0, torch.inf, 0], [0, 0, 0]], dtype=torch.float64)
    distances, numbers = found_on(device, queries, random(40, 3), 2)
    assert distances[:2].isinf().all() and distances[2].isfinite().all() and (numbers < 40).all()


@pytest.mark.parametrize(
    ("queries", "points", "k", "said"),
    [
        (torch.zeros(4, 3), torch.zeros(9, 3).double(), 1, "queries is Float, but must be Double"),
        (torch.zeros(4, 2).double(), torch.zeros(9, 3).double(), 1, "queries has shape"),
        (torch.zeros(4, 3).double(), torch.zeros(9, 3).double(), MOST + 1, "k is 9, but must be 1 to 8"),
        (torch.zeros(4, 3).double(), torch.zeros(5, 3).double(), 6, "k is 6, but there are only 5 points"),
        (torch.zeros(4, 3).double(), torch.zeros(0, 3).double(), 1, "number of points is 0"),
    ],
)
def test_wrong_arguments(device: str, queries: Tensor, points: Tensor, k: int, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        found_on(device, queries, points, k)


@pytest.mark.gpu
def test_a_gpu_finds_them_with_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    ops.load()
    xyz = surface(1000).cuda()
    expected = nearest_by_tree(xyz, xyz, 3)
    monkeypatch.setattr("nurec_lite.scene.neighbours.nearest_by_tree", None)
    found = nearest(xyz, xyz, 3)
    assert (
        expected[0].is_cuda and torch.allclose(found[0], expected[0]) and torch.equal(found[1][:, 0], expected[1][:, 0])
    )


def test_a_host_finds_them_with_a_tree() -> None:
    xyz = surface(300)
    distances, numbers = nearest(xyz, xyz[:200], 2)
    assert distances.shape == numbers.shape == (300, 2) and not distances[:200, 0].any()
    apart = torch.cdist(xyz, xyz[:200]).sort(dim=1).values[:, :2]
    torch.testing.assert_close(distances, apart, rtol=0, atol=1e-6)
