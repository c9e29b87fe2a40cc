# SPDX-License-Identifier: Apache-2.0
"""Tiles: every ray stands in exactly one, and each looks at the Gaussians whose bounds touch it, nearest first."""

import math
from dataclasses import replace

import pytest
import torch
from splat_scenes import (
    CAMERA_MOTION,
    F64,
    LIDAR_MOTION,
    around,
    depth_order,
    in_frustum,
    make_camera_view,
    make_gaussians,
    make_lidar,
    make_lidar_view,
    no_gaussians,
    oracle_lidar,
    rays_view,
    spherical,
    tensor,
    uniform,
)
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.scene.gaussians import WorldGaussians
from nurec_lite.splat.project import Projection, project
from nurec_lite.splat.render import render_lidar
from nurec_lite.splat.tiles import MAX_CELL_RAYS, TILE, PairList, all_pairs, tile
from nurec_lite.splat.views import CameraView, LidarView

N_RAYS = 250


def ray_pattern(name: str) -> Tensor:
    """[R, 3] directions."""
    wide = F.normalize(torch.randn(N_RAYS, 3, dtype=F64), dim=-1)
    return {
        "sweep": make_lidar_view(make_lidar(6, 48)).directions,
        "random": wide,
        "single": wide[:1],
        "none": wide[:0],
        "crowded": F.normalize(tensor(1.0, 0.2, -0.1) + 1e-3 * wide, dim=-1),  # all in one cell or in few
        "equal": wide[:1].expand(N_RAYS, 3),
        "seam": spherical(math.pi + uniform(-1e-3, 1e-3, N_RAYS), uniform(-0.3, 0.1, N_RAYS)),
        "exactly behind": tensor([-1.0, 0.0, 0.0], [-1.0, -0.0, 0.0], [-1.0, 0.0, 1.0], [-1.0, -0.0, -1.0]),
        "poles": tensor([0.0, 0, 1], [0.0, 0, -1], [1e-9, 0, 1], [0, -1e-9, -1]),
    }[name]


PATTERNS = ("sweep", "random", "single", "none", "crowded", "equal", "seam", "exactly behind", "poles")


def pattern_view(name: str) -> LidarView:
    directions = ray_pattern(name)
    return rays_view(make_lidar(6, 48), directions, torch.rand(len(directions), dtype=F64))


def count_of_rays(pairs: PairList, n: int) -> Tensor:
    return torch.bincount(pairs.rays[pairs.rays >= 0], minlength=n)


def check_form(pairs: PairList) -> None:
    assert pairs.offsets[0] == 0 and pairs.offsets[-1] == len(pairs.gaussians)
    assert len(pairs.offsets) == len(pairs.rays) + 1 and (pairs.offsets.diff() >= 0).all()
    assert pairs.rays.dtype == pairs.offsets.dtype == pairs.gaussians.dtype == torch.int64


def lists(pairs: PairList) -> list[list[int]]:
    return [pairs.gaussians[a:b].tolist() for a, b in zip(pairs.offsets[:-1], pairs.offsets[1:], strict=True)]


# ---- rays


@pytest.mark.parametrize("size", [(1, 1), (4, 4), (5, 3), (33, 31), (8, 1), (1, 9)])
@pytest.mark.parametrize("n", [0, 1, 30])
def test_every_pixel_stands_in_exactly_one_tile(size: tuple[int, int], n: int) -> None:
    view = make_camera_view(*size)
    g = make_gaussians(in_frustum(view, n, 3, 8))
    pairs = tile(project(g, view), view)
    check_form(pairs)
    assert (count_of_rays(pairs, size[0] * size[1]) == 1).all() and pairs.rays.max() < size[0] * size[1]


def test_a_tile_is_a_square_of_pixels() -> None:
    view = make_camera_view(13, 10)
    for rays in tile(project(no_gaussians(), view), view).rays:
        x, y = rays[rays >= 0] % 13, rays[rays >= 0] // 13
        assert len(set((x // TILE).tolist())) == len(set((y // TILE).tolist())) == 1


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_lidar_ray_stands_in_exactly_one_tile(pattern: str, dtype: torch.dtype) -> None:
    view = pattern_view(pattern)
    view = replace(view, directions=view.directions.to(dtype))
    for g in (no_gaussians(), make_gaussians(around(40, 3, 8))):
        pairs = tile(project(g, view), view)
        check_form(pairs)
        assert (count_of_rays(pairs, len(view.directions)) == 1).all()
        assert pairs.rays.shape[1] <= MAX_CELL_RAYS and (pairs.rays >= 0).any(1).all()  # no tile without rays
        assert len(pairs.rays) <= len(view.directions)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_any_pattern_of_lidar_rays_renders_what_the_oracle_does(pattern: str) -> None:
    view = pattern_view(pattern)
    n = 80 if len(view.directions) else 5
    local = uniform(4, 9, n, 1) * F.normalize(torch.randn(n, 3, dtype=F64), dim=-1)
    if pattern in ("crowded", "seam", "exactly behind", "equal", "single"):  # some where the rays look
        local[::3] = (
            uniform(4, 9, len(local[::3]), 1) * view.directions[torch.arange(len(local[::3])) % len(view.directions)]
        )
    g = make_gaussians(local, scales=(0.1, 0.4))
    result = render_lidar(g, view, tile(project(g, view), view))
    if len(view.directions) == 0:
        assert result.distance.shape == (0,)
        return
    expected = oracle_lidar(g, view)
    for name in ("distance", "median", "intensity", "drop", "opacity"):
        torch.testing.assert_close(getattr(result, name), getattr(expected, name), atol=1e-11, rtol=1e-11)


def test_crowded_cells_look_at_the_same_gaussians() -> None:
    """A cell of more than MAX_CELL_RAYS rays stands several times."""
    view = rays_view(make_lidar(6, 48), ray_pattern("equal"), torch.full((N_RAYS,), 0.5, dtype=F64))
    local = uniform(4, 9, 10, 1) * view.directions[:10]
    pairs = tile(project(make_gaussians(local, scales=(0.3, 0.6)), view), view)
    assert len(pairs.rays) == math.ceil(N_RAYS / MAX_CELL_RAYS)
    assert len(lists(pairs)[0]) == 10 and all(one == lists(pairs)[0] for one in lists(pairs))


# ---- lists


def scene(sensor: str) -> tuple[WorldGaussians, CameraView | LidarView]:
    if sensor == "camera":
        view: CameraView | LidarView = make_camera_view(23, 18, 20.0, "top_to_bottom", CAMERA_MOTION)
        return make_gaussians(in_frustum(view, 80, 1, 8, 0.5), scales=(0.05, 0.8), speed=2.0), view
    view = make_lidar_view(make_lidar(10, 64), LIDAR_MOTION)
    return make_gaussians(around(120, 1, 8), scales=(0.05, 0.8), speed=2.0), view


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_lists_are_sorted_by_depth_and_hold_no_gaussian_twice(sensor: str) -> None:
    g, view = scene(sensor)
    rank = {gaussian: k for k, gaussian in enumerate(depth_order(g, view))}
    pairs = tile(project(g, view), view)
    assert len(pairs.gaussians) > 300
    for members in lists(pairs):
        ranks = [rank[i] for i in members]
        assert ranks == sorted(set(ranks))


def touched(p: Projection, places: Tensor, turns: tuple[float, ...] = (0.0,)) -> list[set[int]]:
    """For each place [R, 2] the Gaussians whose bounds hold it, in any of the turns of the first coordinate."""
    inside = torch.zeros(len(places), len(p.index), dtype=torch.bool)
    for shift in turns:
        at = places[:, None] + tensor(shift, 0.0)
        inside |= ((at >= p.low) & (at <= p.high)).all(-1)
    return [set(p.index[row].tolist()) for row in inside]


def test_a_camera_tile_lists_the_gaussians_whose_bounds_span_a_pixel_row_and_column_of_it() -> None:
    g, view = scene("camera")
    p = project(g, view)
    for rays, members in zip(*((pairs := tile(p, view)).rays, lists(pairs)), strict=True):
        x, y = int(rays[0] % 23) + 0.5, int(rays[0] // 23) + 0.5
        corner = tensor(x, y)
        holds = ((p.low <= corner + TILE - 1) & (p.high >= corner)).all(-1)
        assert members == p.index[holds].tolist()


def test_a_lidar_tile_lists_the_gaussians_whose_bounds_hold_one_of_its_rays() -> None:
    g, view = scene("lidar")
    p, d = project(g, view), view.directions
    places = torch.stack([torch.atan2(d[:, 1], d[:, 0]), torch.asin(d[:, 2])], dim=-1)
    holders = touched(p, places, (-4 * math.pi, -2 * math.pi, 0.0, 2 * math.pi, 4 * math.pi))
    pairs = tile(p, view)
    n_touching = 0
    for rays, members in zip(pairs.rays, lists(pairs), strict=True):
        wanted = set().union(*(holders[r] for r in rays[rays >= 0].tolist()))
        n_touching += len(wanted)
        assert wanted <= set(members)
    assert n_touching > 0.3 * len(pairs.gaussians)  # and cells are not much larger than the bounds ask for


def test_bounds_outside_the_image_make_no_pairs() -> None:
    view = make_camera_view(9, 7)
    low = tensor([-8.0, 1], [11.6, 1], [1, -9], [1, 7.6], [2.6, 2], [-50, -50])
    high = tensor([-1.0, 5], [20.0, 5], [5, 0.4], [5, 9.0], [3.4, 5], [50, 50])
    pairs = tile(Projection(torch.arange(6), low, high), view)
    assert lists(pairs) == [[4, 5], [5], [5], [4, 5], [5], [5]]


def test_a_bound_around_the_whole_circle_meets_every_cell_once() -> None:
    view = make_lidar_view(make_lidar(4, 32))
    low, high = tensor([-math.pi, -2.0], [-9.0, -2.0], [3.0, -2.0]), tensor([math.pi, 2.0], [9.0, 2.0], [3.3, 2.0])
    pairs = tile(Projection(torch.arange(3), low, high), view)
    assert all(members[:2] == [0, 1] for members in lists(pairs))
    with_seam = {
        int(r) for rays, members in zip(pairs.rays, lists(pairs), strict=True) if 2 in members for r in rays if r >= 0
    }
    azimuths = torch.atan2(view.directions[:, 1], view.directions[:, 0])[list(with_seam)]
    assert (azimuths > 2.9).any() and (azimuths < -2.9).any() and (azimuths.abs() > 2.3).all()


def test_all_pairs_is_one_tile_of_everything() -> None:
    for view, n in ((make_camera_view(5, 3), 15), (make_lidar_view(make_lidar(4, 32)), 128)):
        pairs = all_pairs(3, view, torch.tensor([2, 0, 1]))
        check_form(pairs)
        assert pairs.rays.tolist() == [list(range(n))] and lists(pairs) == [[2, 0, 1]]
