# SPDX-License-Identifier: Apache-2.0
"""Distances by blocks are those that a tree finds."""

import pytest
import torch
from torch import Tensor

from nurec_lite.scene import closest
from nurec_lite.scene.closest import closest_by_blocks
from nurec_lite.scene.neighbours import nearest_by_tree


def scattered(n: int, seed: int) -> Tensor:
    """A hilly ground of 40 m, dense in its middle, and a tenth of the points anywhere above it."""
    xyz = torch.rand(n, 3, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    xyz[:, :2] *= 20 * xyz[:, :2].square()
    xyz[n // 10 :, 2] = torch.sin(xyz[n // 10 :, 0]) + 0.02 * xyz[n // 10 :, 2]
    xyz[: n // 10] *= 30
    return xyz


def by_tree(queries: Tensor, points: Tensor) -> Tensor:
    return nearest_by_tree(queries.double(), points.double(), 1)[0][:, 0].sort().values


@pytest.mark.parametrize(("q", "n"), [(1, 1), (1, 700), (31, 33), (64, 64), (3000, 65), (2500, 4001)])
def test_they_are_those_of_a_tree(q: int, n: int) -> None:
    queries, points = scattered(q, 0), scattered(n, 1)
    found = closest_by_blocks(queries, points)
    assert found.shape == (q,)
    torch.testing.assert_close(found.double().sort().values, by_tree(queries, points), rtol=1e-6, atol=1e-9)


def test_they_are_the_same_in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, points = scattered(900, 2), scattered(1100, 3)
    whole = closest_by_blocks(queries, points)
    monkeypatch.setattr(closest, "AT_ONCE", 3 * closest.SIZE)
    assert torch.equal(closest_by_blocks(queries, points), whole)


def test_equal_points_and_one_place_far_away() -> None:
    place = torch.tensor([[70.0, -30.0, 2.0]]).expand(200, 3)
    assert not closest_by_blocks(place, place).any()
    far = place + torch.tensor([0.0, 0.0, 4.0])
    assert closest_by_blocks(far, place).tolist() == [4.0] * 200


def test_most_pairs_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep against itself with noise: each query is compared with far fewer points than there are."""
    points = scattered(20_000, 4)
    queries = points + 0.01 * scattered(20_000, 5).sign()
    compared, of_pairs = list[int](), closest._worth

    def counted(*given: Tensor) -> list[tuple[Tensor, Tensor]]:
        found = list(of_pairs(*given))  # type: ignore[arg-type]
        compared.extend(len(query) for query, _ in found)
        return found

    monkeypatch.setattr(closest, "_worth", counted)
    closest_by_blocks(queries, points)
    assert 0 < sum(compared) < 12 * len(queries)  # blocks, of 313
