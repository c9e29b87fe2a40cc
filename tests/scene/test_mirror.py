# SPDX-License-Identifier: Apache-2.0
"""Actors that begin with a far side like the near one."""

from dataclasses import replace

import pytest
import torch
from tiny_capture import tiny_capture, tiny_config
from torch import Tensor

from nurec_lite.scene.init import make_scene
from nurec_lite.scene.mirror import APART_METRES, symmetric_nodes, with_mirrored
from nurec_lite.scene.points import Points


def points(xyz: list[list[float]]) -> Points:
    n = len(xyz)
    colour = torch.arange(3.0 * n).view(n, 3) / (3 * n)
    coloured, intensity = torch.arange(n) % 2 == 0, torch.linspace(0, 1, n)
    return Points(torch.tensor(xyz, dtype=torch.float64).view(n, 3), torch.full((n,), 2), colour, coloured, intensity)


def test_images_of_points_are_added_where_nothing_was_measured() -> None:
    own = points([[1.0, 0.8, 0.2], [-2.0, 0.9, -0.5], [0.5, 0.05, 0.7], [-1.0, -0.7, 0.0], [-1.1, 0.75, 0.0]])
    found = with_mirrored(own, frozenset({2}))
    assert len(found) == 5 + 2  # the third is on the plane; the last two are each other's images but for 11 cm
    assert torch.equal(found.xyz[:5], own.xyz)
    assert found.xyz[5:].tolist() == [[1.0, -0.8, 0.2], [-2.0, -0.9, -0.5]]
    for name in ("node", "colour", "coloured", "intensity"):
        values: Tensor = getattr(found, name)
        assert torch.equal(values[5:], getattr(own, name)[:2])


def test_none_stay_none() -> None:
    assert len(with_mirrored(points([]), frozenset({2}))) == 0
    own = points([[1.0, 0.8, 0.2]])
    assert with_mirrored(own, frozenset()) is own and with_mirrored(own, frozenset({3})) is own


def test_each_actor_is_searched_alone() -> None:
    xyz = [[1.0, 0.8, 0.2], [1.0, -0.8, 0.2], [1.0, 0.8, 0.2], [9.0, 3.0, 1.0]]
    own = replace(points(xyz), node=torch.tensor([1, 2, 3, 4]))  # the second has the first one's image
    found = with_mirrored(own, frozenset({1, 2, 4}))
    assert found.node[4:].tolist() == [1, 2, 4]
    assert found.xyz[4:].tolist() == [[1.0, -0.8, 0.2], [1.0, 0.8, 0.2], [9.0, -3.0, 1.0]]


def test_which_classes_are_alike_on_both_sides() -> None:
    tracks = replace(tiny_capture().tracks, classes=("Car", "Pedestrian", "VAN", "Misc")[: len(tiny_capture().tracks)])
    expected = {k + 1 for k, name in enumerate(tracks.classes) if name in ("Car", "VAN")}
    assert symmetric_nodes(tracks) == expected


@pytest.mark.parametrize("mirror", [False, True])
def test_a_scene_begins_with_them_if_asked(mirror: bool) -> None:
    capture = tiny_capture()
    config = replace(tiny_config().model, mirror_actors=mirror, actor_points=10_000)
    scene = make_scene(capture, config, 0, "cpu")
    plain = make_scene(capture, replace(config, mirror_actors=False), 0, "cpu")
    node = scene.gaussians.node
    assert bool((node.diff() >= 0).all())
    more = int((node > 0).sum()) - int((plain.gaussians.node > 0).sum())
    assert (more > 0) == mirror
    assert int((node == 0).sum()) == int((plain.gaussians.node == 0).sum())
    if mirror:
        k = int(node.max())
        y = scene.gaussians.means[node == k, 1]
        assert float(y.min()) < -APART_METRES / 2 and float(y.max()) > APART_METRES / 2
