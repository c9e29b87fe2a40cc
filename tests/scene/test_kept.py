# SPDX-License-Identifier: Apache-2.0
"""Points are held in memory that does not grow with the drive: more of them become means of small voxels."""

from dataclasses import fields, replace

import pytest
import torch
from tiny_capture import tiny_capture, tiny_config
from torch import Tensor

from nurec_lite.scene import kept
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.scene.init import make_scene
from nurec_lite.scene.kept import Kept
from nurec_lite.scene.moments import Asked, seen
from nurec_lite.scene.points import Points

CPU = torch.device("cpu")


def some(n: int, seed: int) -> Points:
    """Points of three nodes on the ground; every third has no colour."""
    generator = torch.Generator().manual_seed(seed)
    place = torch.rand(n, 3, generator=generator, dtype=torch.float64) * torch.tensor([40.0, 20, 0.1]) - 10
    node = torch.randint(0, 3, (n,), generator=generator)
    coloured = torch.rand(n, generator=generator) > 1 / 3
    colour = torch.where(coloured[:, None], torch.rand(n, 3, generator=generator), 0.5)
    return Points(place, node, colour, coloured, torch.rand(n, generator=generator))


def all_of(moments: list[Points], most: int, monkeypatch: pytest.MonkeyPatch) -> Points:
    monkeypatch.setattr(kept, "MOST", most)
    store = Kept(CPU, 10)
    for points in moments:
        store.add(points)
        assert store._n <= most
    return store.take()


def totals(points: Points) -> list[Tensor]:
    """Per node: the number of points, the number of those with a colour, and sums over them."""
    weights = points.weighed()
    values = [weights, weights[:, :1] * points.xyz, weights[:, 1:] * points.colour, weights[:, 0] * points.intensity]
    return [torch.zeros(3, *v.shape[1:], dtype=torch.float64).index_add_(0, points.node, v.double()) for v in values]


def test_what_fits_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [some(300, seed) for seed in range(4)]
    found, wanted = all_of(moments, 1200, monkeypatch), Points.cat(moments)
    assert found.weights is None
    for name in ("xyz", "node", "colour", "coloured", "intensity"):
        assert torch.equal(getattr(found, name), getattr(wanted, name)), name


def test_sums_are_those_of_all_points_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [some(300, seed) for seed in range(20)]
    found = all_of(moments, 1000, monkeypatch)
    assert len(found) <= 1000 and found.weights is not None
    for value, wanted in zip(totals(found), totals(Points.cat(moments)), strict=True):
        torch.testing.assert_close(value, wanted, rtol=1e-5, atol=1e-3)
    assert torch.equal(found.coloured, found.weights[:, 1] > 0)
    again = all_of(moments, 1000, monkeypatch)
    assert torch.equal(found.xyz, again.xyz) and torch.equal(found.colour, again.colour)


def test_more_are_kept_where_more_are_wanted() -> None:
    assert Kept(CPU, 10).most == kept.MOST and Kept(CPU, 10**7).most == kept.A_WANTED * 10**7


def test_none_are_none() -> None:
    assert len(Kept(CPU, 10).take()) == 0


def test_a_scene_of_means_of_small_voxels_is_about_that_of_all_points(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(tiny_config().model, points=300)
    whole = make_scene(tiny_capture(), config, 0, "cpu").gaussians
    monkeypatch.setattr(kept, "MOST", 2000)  # of 3 500
    bounded = make_scene(tiny_capture(), config, 0, "cpu").gaussians
    assert not torch.equal(bounded.means[:50], whole.means[:50])
    assert abs(len(bounded) - len(whole)) < 0.05 * len(whole)
    monkeypatch.undo()
    points = seen(Asked(tiny_capture(), torch.zeros(0, 3, dtype=torch.float64), 8)).background.xyz.float()
    apart = [torch.cdist(g.means[g.node == 0], points).min(1).values.median() for g in (bounded, whole)]
    assert apart[0] < 1.2 * apart[1]
    assert set(bounded.node.tolist()) == set(whole.node.tolist())
    for field in fields(Gaussians):
        assert getattr(bounded, field.name).isfinite().all(), field.name
