# SPDX-License-Identifier: Apache-2.0
"""Warp tiles of 32 rays and their lists (kernels/raster_warps/bin), which the CUDA drivers alone have: compared with the responses on
rays of tests/support/splat_scenes.py. Blending them: tests/native/test_segments.py."""

import math
from dataclasses import replace

import pytest
import torch
from parity import DEVICES, cast_view
from splat_scenes import (
    CAMERA_MOTION,
    F64,
    LIDAR_MOTION,
    around,
    changed,
    contributing,
    in_frustum,
    make_camera_view,
    make_gaussians,
    make_lidar,
    make_lidar_view,
    no_gaussians,
    oracle_rays,
    rays_view,
    spherical,
    tensor,
    uniform,
    view_float32,
)
from torch import Tensor
from torch.nn import functional as F
from warp_tile_scenes import PLAN, VIEWS, View, driven, in_warp_tiles, listed, lists_of, on, rendered, scene, view_of

from nurec_lite.native import stages as native
from nurec_lite.native import warps
from nurec_lite.native.operators import project as project_op
from nurec_lite.native.operators.rays import rays
from nurec_lite.native.operators.shared import gaussian_args, grid_args, packed_view
from nurec_lite.native.operators.warp_tiles import band_args, group_rays, sweep_warp_tiles
from nurec_lite.native.plan import RenderPlan
from nurec_lite.scene.gaussians import WorldGaussians
from nurec_lite.splat.views import LidarView


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return driven(request.param)


# ---- rays of a lidar


def spread(pattern: str, n: int) -> Tensor:  # [n, 3]
    elevation = uniform(-0.35, 0.15, n)
    azimuth = {
        "all around": uniform(-math.pi, math.pi, n),
        "over the seam": math.pi + uniform(-0.01, 0.01, n),
        "one direction": torch.full((n,), 0.3, dtype=F64),
    }[pattern]
    return spherical(azimuth, elevation).float()


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 1000])
@pytest.mark.parametrize("pattern", ["all around", "over the seam", "one direction"])
def test_warp_tiles_of_a_lidar(pattern: str, n: int, device: torch.device) -> None:
    directions = spread(pattern, n)
    view = view_float32(rays_view(make_lidar(16, 64), directions.double(), torch.zeros(n, dtype=F64)))
    made, grid = sweep_warp_tiles(cast_view(view, torch.float32, device))  # type: ignore[arg-type]
    rays, first, bins, heights, edges = (t.cpu() for t in (*made, grid.edges))
    there = rays >= 0
    assert rays[there].sort().values.equal(torch.arange(n))  # each once
    assert first[0] == 0 and not there[first[-1] :].any()
    azimuth = torch.atan2(directions[:, 1], directions[:, 0])
    elevation = torch.atan2(directions[:, 2], directions[:, :2].norm(dim=1))
    bounds = torch.cat([tensor(-2.0), edges.double(), tensor(2.0)])
    for band, (begin, end) in enumerate(zip(first.tolist(), first.tolist()[1:], strict=False)):
        counts = there[begin:end].sum(1)
        assert (counts[:-1] == 32).all() and (counts > 0).all()
        mine = elevation[rays[begin:end][there[begin:end]]]
        assert ((mine > bounds[band] - 1e-5) & (mine < bounds[band + 1] + 1e-5)).all()
        if begin < end:
            assert torch.allclose(heights[band].double(), torch.stack(mine.double().aminmax()), atol=1e-6)
        ends = [azimuth[rays[k][there[k]]].aminmax() for k in range(begin, end)]
        low, high = (tensor(*map(float, side)) for side in zip(*ends, strict=True)) if ends else (tensor(), tensor())
        assert (low[1:] >= high[:-1] - 1e-5).all()
        found, edge, spare = bins[band] - begin, torch.linspace(-math.pi, math.pi, bins.shape[1] + 1, dtype=F64), 3e-5
        least, most = (torch.searchsorted(high, edge[:-1] - more) for more in (spare, 0))
        assert ((found[:, 0] >= least) & (found[:, 0] <= most)).all()
        least, most = (torch.searchsorted(low, edge[1:] + more, right=True) for more in (0, spare))
        assert ((found[:, 1] >= least) & (found[:, 1] <= most)).all()


def test_warp_tiles_that_are_known_make_the_same_lists(device: torch.device) -> None:
    view = view_of("lidar", device)
    g = scene(view, device)
    known = group_rays(view)  # type: ignore[arg-type]
    made, given = lists_of(g, view, True), lists_of(g, known, True)
    assert len(made.gaussians) and all(
        getattr(made, name).equal(getattr(given, name)) for name in ("rays", "offsets", "gaussians")
    )


def test_cells_that_are_known_must_be_the_lidar_s(device: torch.device) -> None:
    known = group_rays(view_of("lidar", device))  # type: ignore[arg-type]
    assert known.ray_groups is not None
    few = replace(known, ray_groups=replace(known.ray_groups, occupied=known.ray_groups.occupied[1:].contiguous()))
    with pytest.raises((ValueError, RuntimeError), match="occupied"):
        lists_of(scene(few, device), few, True)


@pytest.mark.parametrize("sensor", VIEWS)
def test_rays_come_with_the_lists(sensor: str, device: torch.device) -> None:
    """Those of the view, which rendering would ask for again; not where poses ask for gradients, which these have not."""
    view = view_of(sensor, device)
    seen, made = lists_of(scene(view, device), view, True).seen, rays(view)
    assert seen is not None and seen.directions.equal(made.directions) and seen.delays.equal(made.delays)
    moved = replace(view, T_world_sensor_start=view.T_world_sensor_start.clone().requires_grad_())
    assert lists_of(scene(view, device), moved, True).seen is None


@pytest.mark.parametrize("size", [(1, 1), (8, 4), (33, 31), (7, 9)], ids=str)
def test_patches_of_an_image(size: tuple[int, int], device: torch.device) -> None:
    rays = warps.patches(*size, device).cpu()
    assert rays.shape[1] == 32 and rays[rays >= 0].sort().values.equal(torch.arange(size[0] * size[1]))
    across = -(-size[0] // 32)
    assert len(rays) == 16 * across * -(-size[1] // 16)
    for k, patch in enumerate(rays):
        x, y = patch[patch >= 0] % size[0], patch[patch >= 0] // size[0]
        column, row = 4 * (k // 16 % across) + k % 4, 4 * (k // 16 // across) + k % 16 // 4
        assert ((x // 8 == column) & (y // 4 == row)).all()


# ---- lists


@pytest.mark.parametrize("sensor", VIEWS)
def test_lists_are_no_more_than_what_is_said_of_a_view(sensor: str, device: torch.device) -> None:
    view = view_of(sensor, device)
    assert len(lists_of(scene(view, device, 5), view, True).rays) <= warps.lists_of(view)


def test_too_many_lists(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    view = view_of("lidar", device)
    made, grid = sweep_warp_tiles(view)  # type: ignore[arg-type]
    many = made._replace(rays=torch.empty(warps.MAX_LISTS // 2 + 1, 32, dtype=torch.int64, device=device))
    monkeypatch.setattr(project_op, "sweep_warp_tiles", lambda _: (many, grid))
    with pytest.raises(ValueError, match="there are 524289 warp tiles, but must be at most 524288: give fewer"):
        lists_of(scene(view, device, 5), view, True)


@pytest.mark.parametrize("sensor", VIEWS)
def test_exact_lists_render_the_same(sensor: str, device: torch.device) -> None:
    """Images are equal to the last bit: Gaussians that are left out have no response on any ray of the warp tile, and all others keep their
    order. Images have no medians."""
    view = view_of(sensor, device)
    g = scene(view, device)
    exact, boxes = lists_of(g, view, True), lists_of(g, view, False)
    assert not (listed(exact, len(g)) & ~listed(boxes, len(g))).any()
    assert 0 < len(exact.gaussians) < 0.95 * len(boxes.gaussians)
    for k, (one, two) in enumerate(zip(rendered(g, view, exact), rendered(g, view, boxes), strict=True)):
        assert one.equal(two) and bool(one.any()) == (k < 3 or sensor == "lidar")


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("sensor", VIEWS)
def test_lists_are_in_the_order_of_the_projection(sensor: str, exact: bool, device: torch.device) -> None:
    view = view_of(sensor, device)
    g = scene(view, device, 100)
    place = torch.full((len(g),), -1)
    index = native.project(g, view).index.cpu()
    place[index] = torch.arange(len(index))
    pairs = lists_of(g, view, exact)
    for begin, end in zip(pairs.offsets.tolist(), pairs.offsets.tolist()[1:], strict=False):
        assert (place[pairs.gaussians[begin:end].cpu()].diff() > 0).all()


@pytest.mark.parametrize("sensor", VIEWS)
def test_exact_lists_go_by_what_projection_tells(sensor: str, device: torch.device) -> None:
    view = view_of(sensor, device)
    g = scene(view, device, 20)
    result = native.project(g, view, plan=PLAN)
    assert result.shapes is not None and result.shapes.shape == (20, 16 if sensor == "lidar" else 8)
    assert result.seen is not None and bool(result.shapes[result.seen != 0].isfinite().all())
    with pytest.raises(ValueError, match="shapes has shape"):
        native.tile(replace(result, shapes=result.shapes[1:].contiguous()), view, plan=PLAN)


def test_a_lidar_s_shapes_hold_features(device: torch.device) -> None:
    view = view_of("lidar", device)
    assert isinstance(view, LidarView)
    g = scene(view, device, 20)
    grid, columns = grid_args(view, device)
    args = list(gaussian_args(g)), packed_view(view), False, list(grid), columns
    bands, asked = list(band_args(*sweep_warp_tiles(view))), {"shapes": True, "in_place": True}
    for given in ([], bands):
        with pytest.raises(ValueError, match="they need features and bands"):
            torch.ops.nurec_lite.project(*args, given, **asked)
    with pytest.raises(ValueError, match="features has shape"):
        torch.ops.nurec_lite.project(*args, bands, features=torch.zeros(20, 3, device=device), **asked)
    with pytest.raises(ValueError, match="bands are given, but not asked for in_place"):
        torch.ops.nurec_lite.project(*args, bands)


def test_bands_are_a_lidar_s(device: torch.device) -> None:
    view, sweep = view_of("still camera", device), view_of("lidar", device)
    assert isinstance(sweep, LidarView)
    grid, columns = grid_args(view, device)  # type: ignore[arg-type]
    args = list(gaussian_args(scene(view, device, 20))), packed_view(view), True, list(grid), columns
    with pytest.raises(ValueError, match="an image has none"):
        torch.ops.nurec_lite.project(*args, list(band_args(*sweep_warp_tiles(sweep))), in_place=True)


def test_a_gaussian_without_a_warp_tile_is_in_no_row(device: torch.device) -> None:
    """A Gaussian that passes between two bands has no candidates, and is not sorted."""
    view = view_of("lidar", device)
    g = scene(view, device, 200)
    result = native.project(g, view, plan=PLAN)
    assert result.candidates is not None and result.count is not None and result.seen is not None
    counts, there = result.candidates[1].cpu(), result.index[: int(result.count)].cpu()
    listed = result.seen.cpu().bool() & (counts > 0)
    assert there.sort().values.equal(listed.nonzero()[:, 0]) and len(there) > 0


def test_warp_tiles_want_a_projection_of_their_own(device: torch.device) -> None:
    view = view_of("still camera", device)
    with pytest.raises(ValueError, match="not for warp tiles"):
        native.tile(native.project(scene(view, device, 20), view), view, plan=PLAN)
    sweep = view_of("lidar", device)
    with pytest.raises(ValueError, match="not for a lidar's warp tiles"):
        native.tile(native.project(scene(sweep, device, 20), sweep), sweep, plan=PLAN)


def wide_view(sensor: str, device: torch.device) -> View:
    """A view of more than 1024 warp tiles."""
    if sensor == "lidar":
        view: View = make_lidar_view(make_lidar(32, 1056), LIDAR_MOTION)
    else:
        view = make_camera_view(264, 140, 200.0, "top_to_bottom", CAMERA_MOTION)
    return cast_view(view_float32(view), torch.float32, device)


def of_all_sizes(sensor: str) -> WorldGaussians:
    """Few candidates each, some, and very many: small ones, large ones, and ones so near that their bounds are the whole view."""
    view = make_camera_view(264, 140, 200.0)
    n = 14
    local = in_frustum(view, n, 3, 9) if sensor == "camera" else around(n, 3, 9)
    local[-4:-1] *= 0.15 / local[-4:-1].norm(dim=1, keepdim=True)  # some contain the sensor, some lie beside it
    g = make_gaussians(local, speed=2.0)
    scales = torch.exp(uniform(-0.3, 0.3, n, 3)) * torch.cat(
        [tensor(0.03).expand(4), tensor(0.4).expand(4), tensor(2.0).expand(2), tensor(0.02, 0.03, 0.04, 5.0)]
    ).view(-1, 1)
    scales[8, 0] = 1e-3  # a wide disk
    return changed(g, scales=scales)


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_gaussians_with_few_some_and_many_candidates(sensor: str, device: torch.device) -> None:
    view, g = wide_view(sensor, device), of_all_sizes(sensor)
    world = on(device, g)
    boxes, exact = (lists_of(world, view, e) for e in (False, True))
    candidates, left = listed(boxes, len(g)), listed(exact, len(g))
    counts = candidates.sum(0)
    assert bool(
        ((counts > 0) & (counts <= 32)).any() & ((counts > 32) & (counts <= 1024)).any() & (counts > 1024).any()
    )
    assert len(exact.gaussians) == int(left.sum()) and not (left & ~candidates).any()  # each once, none from elsewhere
    seen = in_warp_tiles(exact, contributing(to_double(world), oracle_rays(cast_view(view, F64, "cpu"))))
    assert not (seen & candidates & ~left).any()
    assert int(seen.sum()) > 500 and left.sum() < 0.9 * candidates.sum()


def to_double(g: WorldGaussians) -> WorldGaussians:
    return WorldGaussians(**{k: v.double().cpu() for k, v in vars(g).items()})


def on_a_road(n: int) -> WorldGaussians:
    """Gaussians a tenth of a millimetre to five thick, up to a metre wide, from 3 to 30 metres away: float32 squares these least well."""
    azimuth, away = uniform(-math.pi, math.pi, n), torch.exp(uniform(1.2, 3.4, n))
    road = torch.stack([away * azimuth.cos(), away * azimuth.sin(), torch.full((n,), -1.7, dtype=F64)], dim=1)
    scales = torch.exp(torch.cat([uniform(-4, 0, n, 2), uniform(-9, -5.3, n, 1)], dim=1))
    lying = F.normalize(tensor(1.0, 0, 0, 0) + 0.02 * torch.randn(n, 4, dtype=F64), dim=1)
    return changed(make_gaussians(road, speed=2.0), scales=scales, quats=lying)


def test_thin_gaussians_are_not_lost(device: torch.device) -> None:
    n, view = 700, cast_view(view_float32(make_lidar_view(make_lidar(16, 768), LIDAR_MOTION)), torch.float32, device)
    world = on(device, on_a_road(n))
    boxes, exact = (lists_of(world, view, e) for e in (False, True))
    seen = in_warp_tiles(exact, contributing(to_double(world), oracle_rays(cast_view(view, F64, "cpu"))))
    candidates, left = listed(boxes, n), listed(exact, n)
    assert not (seen & candidates & ~left).any()
    assert int(seen.sum()) > 500 and int(left.sum()) < 1.3 * int(seen.sum()) < 0.8 * int(candidates.sum())


@pytest.mark.parametrize("behind", [False, True])
def test_gaussians_across_the_seam(behind: bool, device: torch.device) -> None:
    """At azimuths about pi, whose bounds go over it, one way and the other."""
    view = view_of("lidar", device)
    where = spherical(uniform(-0.4, 0.4, 60) + (-math.pi if behind else math.pi), uniform(-0.3, 0.1, 60))
    world = on(device, make_gaussians(uniform(3, 8, 60, 1) * where, scales=(0.1, 0.6)))
    boxes, exact = (lists_of(world, view, e) for e in (False, True))
    seen = in_warp_tiles(exact, contributing(to_double(world), oracle_rays(cast_view(view, F64, "cpu"))))
    assert int(seen.sum()) > 100 and not (seen & listed(boxes, 60) & ~listed(exact, 60)).any()
    assert int((seen & ~listed(boxes, 60)).sum()) <= 0.01 * int(seen.sum())  # bounds are those of seven points


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("sensor", VIEWS)
def test_no_gaussians(sensor: str, exact: bool, device: torch.device) -> None:
    view, world = view_of(sensor, device), on(device, no_gaussians())
    pairs = lists_of(world, view, exact)
    assert not pairs.offsets.any() and len(pairs.gaussians) == 0
    out, distance, transmittance, median = rendered(world, view, pairs)
    assert not out.any() and not distance.any() and not median.any() and (transmittance == 1).all()


@pytest.mark.parametrize("rays", [0, 1, 31, 33])
def test_few_rays(rays: int, device: torch.device) -> None:
    directions = spherical(uniform(-0.6, 0.6, rays), uniform(-0.3, 0.1, rays))
    view = view_float32(rays_view(make_lidar(8, 64), directions, torch.rand(rays, dtype=F64), LIDAR_MOTION))
    view = cast_view(view, torch.float32, device)  # type: ignore[assignment]
    g = on(device, make_gaussians(around(40, 4, 9, (-0.7, 0.7)), scales=(0.3, 0.9)))
    found = [rendered(g, view, lists_of(g, view, exact)) for exact in (False, True)]
    assert all(one.equal(two) and len(one) == rays for one, two in zip(*found, strict=True))


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("sensor", ["still camera", "lidar"])
def test_a_capacity(sensor: str, exact: bool, device: torch.device) -> None:
    """Entries are left out where it is too small, and `needed` says how many there are."""
    view = view_of(sensor, device)
    g = scene(view, device, 60)
    full = lists_of(g, view, exact)
    n = len(full.gaussians)
    assert full.needed is None and n > 50
    for capacity in (0, n // 2, n, n + 7):
        pairs = lists_of(g, view, exact, capacity)
        assert pairs.needed is not None and int(pairs.needed) == n
        assert len(pairs.gaussians) == capacity and int(pairs.offsets[-1]) == min(capacity, n)
        assert not (listed(pairs, len(g)) & ~listed(full, len(g))).any()
        if capacity >= n:
            assert pairs.offsets.equal(full.offsets) and pairs.gaussians[:n].equal(full.gaussians)


def test_few_entries_are_cut_into_short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a segment for each of the warps that may run at once, here 1 000, or two of a sweep; none has less than 64 entries."""
    monkeypatch.setattr(warps, "warps_of", lambda device: 1000)
    cpu = torch.device("cpu")
    assert [warps.balanced_entries(n, 384, 32, cpu) for n in (0, 10_000, 200_000, 384_000, 10_000_000)] == [
        64,
        64,
        200,
        384,
        384,
    ]
    assert [warps.balanced_entries(n, 384, 16, cpu) for n in (0, 200_000, 384_000, 10_000_000)] == [64, 100, 128, 128]
    assert warps.balanced_entries(10_000, 32, 32, cpu) == 32
    assert (
        warps.balanced_entries(10_000_000, RenderPlan.segment_entries, 32, cpu) == RenderPlan.segment_entries
    )  # without balanced_tiles
