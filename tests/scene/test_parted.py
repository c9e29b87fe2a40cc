# SPDX-License-Identifier: Apache-2.0
"""Static and dynamic Gaussians as two arrays: their values, and equal renders of both forms."""

from dataclasses import fields, replace
from types import ModuleType

import pytest
import torch
from parity import in_parts
from peer_standin import drawn
from splat_scenes import (
    CAMERA_MOTION,
    F64,
    LIDAR_MOTION,
    TENSORS,
    around,
    in_frustum,
    make_camera_view,
    make_gaussians,
    make_lidar,
    make_lidar_view,
    tensor,
    to_float32,
    view_float32,
)
from torch import Tensor

from nurec_lite.geometry.se3 import quat_normalize
from nurec_lite.native import ops
from nurec_lite.native import stages as native
from nurec_lite.scene.gaussians import SplitGaussians, WorldGaussians
from nurec_lite.splat import render
from nurec_lite.splat.project import project
from nurec_lite.splat.render import local_directions
from nurec_lite.splat.tiles import PairList, tile
from nurec_lite.splat.views import CameraView, LidarView

SKY = torch.zeros(3, 4, 8, dtype=F64)  # logits: grey
COUNTS = (0, 7, 40)  # of 40 that stand still


def in_one(local: Tensor, still: int) -> WorldGaussians:
    """The first ones in the world's axes and without velocity, as the background is."""
    g, moves = make_gaussians(local, speed=2.0), torch.arange(len(local))[:, None] >= still
    turned = quat_normalize(torch.randn(len(local), 4, dtype=F64))
    return replace(g, velocities=g.velocities * moves, frames=torch.where(moves, turned, tensor(1.0, 0, 0, 0)))


def world(still: int) -> WorldGaussians:
    return in_one(in_frustum(make_camera_view(), 40, 3, 8), still)


def assert_same(a: WorldGaussians, b: WorldGaussians) -> None:
    for name in TENSORS:
        assert torch.equal(getattr(a, name), getattr(b, name)), name


def two_parts() -> SplitGaussians:
    """One that stands at (1, 2, 3), and one that moves, turned by half a turn about z."""
    one, half = tensor([1.0, 0, 0, 0]), tensor([0.0, 0, 0, 1])
    return SplitGaussians(
        still_means=tensor([1.0, 2, 3]),
        still_quats=one,
        means=tensor([4.0, 5, 6]),
        quats=half,
        velocities=tensor([7.0, 8, 9]),
        rotations=half,
        nodes=torch.zeros(1, dtype=torch.int64),
        scales=tensor([0.1, 0.2, 0.3], [0.4, 0.5, 0.6]),
        opacities=tensor(0.25, 0.75),
        sh0=tensor([0.0, 0, 0], [1.0, 1, 1])[:, None],
        sh_rest=torch.zeros(2, 0, 3),
        lidar=tensor([0.0, 1], [1.0, 0]),
    )


# ---- values


def test_both_parts_in_one() -> None:
    parts = two_parts()
    g = parts.whole()
    assert len(parts) == len(g) == 2
    assert g.means.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert g.quats.tolist() == g.frames.tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    assert g.velocities.tolist() == [[0, 0, 0], [7, 8, 9]]
    assert all(getattr(g, name) is getattr(parts, name) for name in ("scales", "opacities", "lidar"))
    assert g.sh.tolist() == [[[0, 0, 0]], [[1, 1, 1]]]
    assert g.whole() is g


@pytest.mark.parametrize("still", COUNTS)
def test_taken_apart_and_put_together(still: int) -> None:
    g = world(still)
    assert_same(in_parts(g, still).whole(), g)


@pytest.mark.parametrize("index", [[], [0, 3, 6], [7, 20, 39], [2, 6, 7, 8, 30], list(range(40))], ids=str)
def test_some_of_them(index: list[int]) -> None:
    g, chosen = world(7), torch.tensor(index, dtype=torch.int64)
    parts = in_parts(g, 7).select(chosen)
    assert len(parts) == len(index) and len(parts.still_means) == sum(i < 7 for i in index)
    assert_same(parts.whole(), g.select(chosen))


@pytest.mark.parametrize("still", COUNTS)
def test_views_of_those_that_stand_still_are_not_turned_back(still: int) -> None:
    g, eye = world(still), tensor(1.0, 2.0, 3.0)
    torch.testing.assert_close(local_directions(in_parts(g, still), eye), local_directions(g, eye), rtol=0, atol=1e-15)


def test_a_view_of_one_that_is_turned() -> None:
    """Along +x from the eye, which its node, half a turn about z, sees along -x."""
    found = local_directions(two_parts(), tensor(1.0, 5.0, 6.0))
    torch.testing.assert_close(found, tensor([0.0, -3 / 18**0.5, -3 / 18**0.5], [-1.0, 0, 0]))


# ---- rendered as the same in one


def seen(sensor: str, still: int) -> tuple[WorldGaussians, CameraView | LidarView]:
    if sensor == "camera":
        view = make_camera_view(17, 13, 15.0, "top_to_bottom", CAMERA_MOTION)
        return in_one(in_frustum(view, 40, 3, 8), still), view
    return in_one(around(40, 3, 8), still), make_lidar_view(make_lidar(8, 32), LIDAR_MOTION)


def output(
    stages: ModuleType, gaussians: WorldGaussians | SplitGaussians, view: CameraView | LidarView, pairs: PairList
) -> dict[str, Tensor]:
    if isinstance(view, CameraView):
        out = stages.render_camera(gaussians, view, pairs, SKY.to(gaussians.means.dtype))
    else:
        out = stages.render_lidar(gaussians, view, pairs)
    return {f.name: getattr(out, f.name) for f in fields(out)}


@pytest.mark.parametrize("still", COUNTS)
@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_by_the_reference(sensor: str, still: int) -> None:
    g, view = seen(sensor, still)
    parts = in_parts(g, still)
    found, expected = project(parts, view), project(g, view)
    assert all(torch.equal(getattr(found, name), getattr(expected, name)) for name in ("index", "low", "high"))
    pairs = tile(found, view)
    images = [output(render, x, view, pairs) for x in (parts, g)]
    for name, value in images[0].items():
        torch.testing.assert_close(value, images[1][name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("still", COUNTS)
@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_by_the_kernels(sensor: str, still: int) -> None:
    ops.load()
    g, view = seen(sensor, still)
    g, view = to_float32(g), view_float32(view)
    pairs = native.tile(native.project(g, view), view)
    images = [output(native, x, view, pairs) for x in (in_parts(g, still), g)]
    for name, value in images[0].items():
        torch.testing.assert_close(value, images[1][name], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("still", COUNTS)
def test_by_the_peer(still: int) -> None:
    g, view = world(still), make_camera_view()
    images = [drawn(x, view, SKY) for x in (in_parts(g, still), g)]
    assert all(torch.equal(getattr(images[0], f.name), getattr(images[1], f.name)) for f in fields(images[0]))
