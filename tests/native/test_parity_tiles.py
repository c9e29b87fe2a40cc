# SPDX-License-Identifier: Apache-2.0
"""Tile lists by compiled kernels against the plain torch ones: given the same bounds, the same lists, entry by entry.

CUDA's tiles hold rays in other places (padded to the plan's size, in the order of its sort), so there the rays of a tile are a set. Last:
the losses of the kernels' lists against all pairs.
"""

import math

import pytest
import torch
from parity import DEVICES, Case, cast_view, drivers_of, plan_of, run, scene_of
from splat_scenes import (
    CAMERA_MOTION,
    F64,
    LIDAR_MOTION,
    STILL,
    Motion,
    OracleRays,
    around,
    contributing,
    depth_order_tensor,
    in_frustum,
    listed,
    make_camera_view,
    make_gaussians,
    make_lidar,
    make_lidar_view,
    rays_view,
    spherical,
    tensor,
    to_float32,
    uniform,
)
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.geometry.lidar import Lidar
from nurec_lite.native import ops
from nurec_lite.native import stages as native
from nurec_lite.native.plan import CPU_PLAN, CUDA_PLAN, RenderPlan
from nurec_lite.splat import tiles as reference
from nurec_lite.splat.project import Projection
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView

PLANS = {"cpu": CPU_PLAN, "cuda": CUDA_PLAN, "odd": RenderPlan(5, 3, 7, 9), "ones": RenderPlan(1, 1, 1, 1)}
View = CameraView | LidarView


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    ops.load()
    return torch.device(request.param)


@pytest.fixture(params=PLANS)
def plan(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> RenderPlan:
    """The reference cuts its tiles the same way."""
    plan, cells = PLANS[request.param], Lidar.cells
    monkeypatch.setattr(reference, "TILE", plan.tile)
    monkeypatch.setattr(reference, "MAX_CELL_RAYS", plan.cell_rays)
    own = {"beams": plan.cell_beams, "steps": plan.cell_steps}
    monkeypatch.setattr(
        Lidar, "cells", lambda lidar, *size, **options: cells(lidar, *size, **(options if size else options | own))
    )
    return plan


def projection_of(low: Tensor, high: Tensor) -> Projection:
    """Bounds [V, 2] of Gaussians with any numbers."""
    return Projection(torch.randperm(3 * len(low))[: len(low)], low.float().contiguous(), high.float().contiguous())


def check(projection: Projection, view: View, device: torch.device, plan: RenderPlan) -> PairList:
    """The kernels' lists, when they are the reference's."""
    view = cast_view(view, torch.float32)
    expected = reference.tile(projection, view)
    on_device = Projection(*(x.to(device) for x in (projection.index, projection.low, projection.high)))
    found = native.tile(on_device, cast_view(view, torch.float32, device), plan=plan)
    found = PairList(found.rays.cpu(), found.offsets.cpu(), found.gaussians.cpu())
    assert torch.equal(found.offsets, expected.offsets) and torch.equal(found.gaussians, expected.gaussians)
    if drivers_of(device) == "cpu":
        assert torch.equal(found.rays, expected.rays)
    sets = [[sorted(r for r in row if r >= 0) for row in x.rays.tolist()] for x in (found, expected)]
    assert sets[0] == sets[1]
    return found


# ---- cameras


@pytest.mark.parametrize("size", [(1, 1), (4, 4), (33, 31), (64, 3)], ids=str)
@pytest.mark.parametrize("n", [0, 1, 500])
def test_bounds_anywhere(n: int, size: tuple[int, int], plan: RenderPlan, device: torch.device) -> None:
    """Small and large ones, inside and outside; every tenth is the whole image, every eleventh has no area."""
    low = torch.stack([uniform(-30, 80, n), uniform(-30, 60, n)], dim=1)
    high = low + torch.exp(uniform(-6, 5, n, 2))
    low[::10], high[::10] = tensor(0.0, 0.0), tensor(*map(float, size))
    high[::11] = low[::11]
    check(projection_of(low, high), make_camera_view(*size), device, plan)


def test_bounds_exactly_on_edges(plan: RenderPlan, device: torch.device) -> None:
    """All pairs of half pixels: edges and centres of tiles and pixels, as low and as high; and their neighbours in float32."""
    halves = torch.arange(-4, 2 * 21 + 6).float() / 2
    below, above = torch.nextafter(halves, tensor(-1e9).float()), torch.nextafter(halves, tensor(1e9).float())
    edges = torch.cat([halves, below, above])
    pairs = torch.cartesian_prod(edges, edges)
    pairs = pairs[pairs[:, 0] <= pairs[:, 1]]
    anywhere = pairs[torch.randperm(len(pairs))]
    bounds = torch.stack([torch.cat([pairs, anywhere]), torch.cat([anywhere, pairs])], dim=-1)[
        torch.randperm(2 * len(pairs))[:3000]
    ]
    found = check(projection_of(bounds[:, 0], bounds[:, 1]), make_camera_view(21, 18), device, plan)
    assert len(found.gaussians) > 3000


def test_bounds_of_any_magnitude(plan: RenderPlan, device: torch.device) -> None:
    """Bounds reach 1e18 pixels; plain torch, which turns them to integers before it clamps, cannot go beyond."""
    size = 10 ** uniform(-3, 18, 400, 2)
    low = torch.where(torch.rand(400, 2) < 0.3, size, -size)
    high = torch.where(torch.rand(400, 2) < 0.3, -size, size).maximum(low)
    check(projection_of(low, high), make_camera_view(33, 31), device, plan)


def test_bounds_beyond_all_integers(device: torch.device) -> None:
    view = make_camera_view(9, 7)
    low = tensor([-3e38, -3e38], [3e37, 0], [-3e38, 0], [0, 3e38], [3, -3e38])
    high = tensor([3e38, 3e38], [3e38, 7], [-3e37, 7], [9, 3e38], [5, 3e38])
    projection = Projection(torch.arange(5).to(device), low.float().to(device), high.float().to(device))
    pairs = native.tile(projection, cast_view(view, torch.float32, device), plan=CPU_PLAN)
    lists = [pairs.gaussians[a:b].tolist() for a, b in zip(pairs.offsets[:-1], pairs.offsets[1:], strict=True)]
    assert lists == [[0, 4], [0, 4], [0]] * 2


# ---- lidars


def ray_pattern(name: str) -> Tensor:
    """[R, 3] directions, none within rounding of an edge of the plans' cells."""
    wide = F.normalize(torch.randn(400, 3, dtype=F64), dim=-1)
    return {
        "sweep": make_lidar_view(make_lidar(12, 96)).directions,
        "random": wide,
        "single": wide[:1],
        "none": wide[:0],
        "crowded": F.normalize(tensor(1.0, 0.2, -0.1) + 1e-3 * wide, dim=-1),
        "equal": wide[:1].expand(400, 3),
        "seam": spherical(math.pi + uniform(-1e-3, 1e-3, 400), uniform(-0.3, 0.1, 400)),
        "poles": tensor([1e-3, 2e-3, 1], [-1e-3, 3e-3, -1], [0.1, -0.2, 1.0]),
    }[name]


PATTERNS = ("sweep", "random", "single", "none", "crowded", "equal", "seam", "poles")


def pattern_view(name: str) -> LidarView:
    directions = ray_pattern(name)
    return rays_view(make_lidar(12, 96), directions, torch.rand(len(directions), dtype=F64))


@pytest.mark.parametrize("n", [0, 1, 400])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_of_rays(pattern: str, n: int, plan: RenderPlan, device: torch.device) -> None:
    """Bounds of any size about any azimuth, wrapped or not, with some of the whole sphere, of the pole, and beyond it."""
    low = torch.stack([uniform(-2 * math.pi, math.pi, n), uniform(-1.8, 1.5, n)], dim=1)
    high = low + torch.exp(uniform(-6, 2, n, 2))
    low[::10], high[::10] = tensor(-math.pi, -math.pi / 2), tensor(math.pi, math.pi / 2)
    low[3::10, 0], high[3::10, 0] = uniform(-9, -7, len(low[3::10])), uniform(7, 9, len(low[3::10]))
    view = pattern_view(pattern)
    found = check(projection_of(low, high), view, device, plan)
    assert (found.rays >= 0).sum() == len(view.directions)


@pytest.mark.parametrize("pattern", ["sweep", "random", "seam"])
def test_bounds_exactly_on_edges_of_cells(pattern: str, plan: RenderPlan, device: torch.device) -> None:
    """Edges of columns and bands as float32 has them, and their neighbours."""
    view = pattern_view(pattern)
    cells = view.lidar.cells()
    azimuths = (torch.arange(-cells.columns, 2 * cells.columns) * (2 * math.pi / cells.columns) - math.pi).float()
    elevations = torch.cat([cells.edges, tensor(-1.0, 0.0, 1.0).float()])

    def about(edges: Tensor, n: int) -> Tensor:
        chosen = edges[torch.randint(len(edges), (n,))]
        steps = torch.randint(-1, 2, (n,))
        return torch.where(steps == 0, chosen, torch.nextafter(chosen, 1e9 * steps.float()))

    low, high = (torch.stack([about(azimuths, 800), about(elevations, 800)], dim=1) for _ in range(2))
    check(projection_of(torch.minimum(low, high), torch.maximum(low, high)), view, device, plan)


def test_crowded_cells_are_split_and_look_at_the_same(plan: RenderPlan, device: torch.device) -> None:
    view = rays_view(
        make_lidar(12, 96), tensor([1.0, 0.3, -0.05]).expand(400, 3) / 1.05, torch.full((400,), 0.5, dtype=F64)
    )
    low = uniform(-1.0, 0.2, 30, 1) * torch.ones(1, 2, dtype=F64)
    found = check(projection_of(low, low + 0.6), view, device, plan)
    lists = [found.gaussians[a:b].tolist() for a, b in zip(found.offsets[:-1], found.offsets[1:], strict=True)]
    assert len(lists) == math.ceil(400 / plan.cell_rays) and 0 < len(lists[0]) < 30
    assert all(one == lists[0] for one in lists)


def test_absurd_azimuths_are_the_whole_circle(device: torch.device) -> None:
    view = cast_view(make_lidar_view(make_lidar(4, 32)), torch.float32, device)
    low, high = (
        tensor([-1e30, -3e38], [-1e9, -1.0]).float().to(device),
        tensor([1e30, 3e38], [1e9, 1.0]).float().to(device),
    )
    pairs = native.tile(Projection(torch.arange(2).to(device), low, high), view, plan=CPU_PLAN)
    assert pairs.gaussians.view(-1, 2).tolist() == [[0, 1]] * len(pairs.rays)


# ---- whole chain


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_lists_of_projected_gaussians(sensor: str, plan: RenderPlan, device: torch.device) -> None:
    view: View = make_camera_view(33, 31, 30.0, "top_to_bottom", CAMERA_MOTION)
    local = in_frustum(view, 600, 0.5, 20, 0.5)
    if sensor == "lidar":
        view = make_lidar_view(make_lidar(12, 96), LIDAR_MOTION)
        local = around(600, 0.5, 20)
    case = Case.of(scene_of(make_gaussians(local, scales=(0.02, 1.0), speed=3.0)), view)
    projection, _ = case.pairs(device)
    projection = Projection(projection.index.cpu(), projection.low.cpu(), projection.high.cpu())
    found = check(projection, view, device, plan)
    assert len(found.gaussians) > 400


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_the_number_of_threads_does_not_matter(sensor: str) -> None:
    ops.load()
    view: View = make_camera_view(64, 48, 40.0) if sensor == "camera" else make_lidar_view(make_lidar(12, 96))
    local = in_frustum(view, 3000, 3, 20) if isinstance(view, CameraView) else around(3000, 3, 20)
    case = Case.of(scene_of(make_gaussians(local)), view)
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 7, 20):
            torch.set_num_threads(threads)
            found.append(case.pairs(torch.device("cpu"))[1])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(getattr(other, k), getattr(found[0], k)) for k in ("rays", "offsets", "gaussians"))


# ---- losses of the lists


def every_pair(view: View, order: Tensor, rays_per_tile: int) -> PairList:
    """Tiles of some rays that look at all Gaussians."""
    n = view.camera.width * view.camera.height if isinstance(view, CameraView) else len(view.fractions)
    tiles = -(-n // rays_per_tile)
    rays = torch.full((tiles * rays_per_tile,), -1)
    rays[:n] = torch.arange(n)
    return PairList(rays.view(tiles, -1), len(order) * torch.arange(tiles + 1), order.repeat(tiles))


@pytest.mark.parametrize("motion", ["still", "moving"])
@pytest.mark.parametrize("distance", [(3.0, 5.0), (4.0, 20.0), (18.0, 22.0)], ids=str)
@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_lists_lose_little_of_moderate_gaussians(
    sensor: str, distance: tuple[float, float], motion: str, device: torch.device
) -> None:
    """Bounds from seven points are not conservative. Of Gaussians much smaller than their distance they may lose 0.5 % of the pairs
    that reach 1/255, as the reference's may (tests/splat/test_project.py); a lost one is a rim, so it costs an image about 1/255 there.
    Bound: 0.02 in one ray, 1e-4 on average. Measured: 0.25 %, 0.008 and 3e-5. (A lidar that passes things 1 m away at 10 m/s loses
    0.05 in a ray.)"""
    moves: Motion = STILL if motion == "still" else (CAMERA_MOTION if sensor == "camera" else LIDAR_MOTION)
    if sensor == "camera":
        view: View = make_camera_view(64, 48, 40.0, "global" if motion == "still" else "top_to_bottom", moves)
        local = in_frustum(view, 500, *distance, 0.3)
    else:
        view = make_lidar_view(make_lidar(16, 160), moves)
        local = around(700, *distance)
    largest = 0.1 if distance[0] < 4 else 0.5
    g = make_gaussians(local, scales=(largest / 5, largest), speed=3.0 if motion == "moving" else 0.0)
    case = Case.of(scene_of(g), view)
    world, view = case.world(), cast_view(case.view, F64)
    _, pairs = case.pairs(device)
    whole = every_pair(view, depth_order_tensor(world, view), plan_of(device).cell_rays)
    own, full = (run(native, case, lists, {}, torch.float32, device).values for lists in (pairs, whole))
    rays = view.rays()
    contributes = contributing(world, OracleRays(rays.origins + view.centre(), rays.directions, rays.delays))
    lists = PairList(pairs.rays.cpu(), pairs.offsets.cpu(), pairs.gaussians.cpu())
    assert contributes.sum() > 1500
    assert (contributes & ~listed(lists, len(rays.delays), len(world))).sum() < 0.005 * contributes.sum()
    for name in set(own) - {"distance", "median"}:
        off = (own[name] - full[name]).abs()
        assert off.max() < 0.02 and off.mean() < 1e-4, name


# ---- lists within a given capacity


VIEWS = {"camera": make_camera_view(33, 31, 20.0, "top_to_bottom", CAMERA_MOTION)}
VIEWS["lidar"] = make_lidar_view(make_lidar(12, 64), LIDAR_MOTION)


def projections(name: str, device: torch.device, n: int) -> tuple[View, Projection, Projection]:
    """Projections of n Gaussians around, every fifth of them transparent: those that the view sees, and all of them."""
    view = cast_view(VIEWS[name], torch.float32)
    means = in_frustum(VIEWS[name], n, 2, 12) if name == "camera" else around(n, 2, 12)
    g = to_float32(make_gaussians(means, speed=3.0))
    g.opacities[::5] = 0
    g = type(g)(**{k: v.to(device) if isinstance(v, Tensor) else v for k, v in vars(g).items()})
    view = cast_view(view, torch.float32, device)
    return view, native.project(g, view), native.project(g, view, capacity=0)


def within(projection: Projection, view: View, plan: RenderPlan, capacity: int) -> tuple[PairList, int]:
    """The lists, and how many entries they would need."""
    pairs = native.tile(projection, view, capacity, plan)
    assert pairs.needed is not None
    return pairs, int(pairs.needed)


def tiles_of(pairs: PairList) -> dict[tuple[int, ...], list[int]]:
    """The rays of each tile that has some -> its Gaussians in order."""
    begin, end = pairs.offsets[:-1].tolist(), pairs.offsets[1:].tolist()
    rays = [tuple(sorted(r for r in row if r >= 0)) for row in pairs.rays.tolist()]
    return {r: pairs.gaussians[b:e].tolist() for r, b, e in zip(rays, begin, end, strict=True) if r}


@pytest.mark.parametrize("n", [0, 1, 400])
@pytest.mark.parametrize("name", VIEWS)
def test_rows_for_all_gaussians_without_bounds_after_the_visible_ones(name: str, n: int, device: torch.device) -> None:
    _, seen, every = projections(name, device, n)
    v = len(seen.index)
    assert len(every.index) == n and v <= 0.8 * n
    for field in ("index", "low", "high"):
        assert torch.equal(getattr(every, field)[:v], getattr(seen, field))
    assert bool((every.index[v:] == 0).all())
    assert bool((every.low[v:] > every.high[v:]).all())


@pytest.mark.parametrize("n", [0, 1, 400])
@pytest.mark.parametrize("name", VIEWS)
def test_lists_with_capacity_are_the_lists(name: str, n: int, plan: RenderPlan, device: torch.device) -> None:
    """With exactly the capacity that they need, and with more, which zeros fill."""
    view, seen, every = projections(name, device, n)
    exact = native.tile(seen, view, plan=plan)
    for capacity in (len(exact.gaussians), len(exact.gaussians) + 7):
        found, needed = within(every, view, plan, capacity)
        assert needed == len(exact.gaussians) and len(found.gaussians) == capacity
        assert tiles_of(found) == tiles_of(exact)
        assert bool((found.gaussians[needed:] == 0).all()) and int(found.offsets[-1]) == needed


@pytest.mark.parametrize("capacity", [0, 1, 20])
@pytest.mark.parametrize("name", VIEWS)
def test_too_little_capacity_is_reported(name: str, capacity: int, plan: RenderPlan, device: torch.device) -> None:
    """Nothing is written beyond it, and no offset points beyond it."""
    view, seen, every = projections(name, device, 400)
    found, needed = within(every, view, plan, capacity)
    assert needed == len(native.tile(seen, view, plan=plan).gaussians) > capacity
    assert len(found.gaussians) == capacity and int(found.offsets[-1]) == capacity
    assert bool((found.offsets.diff() >= 0).all())
    assert found.gaussians.numel() == 0 or 0 <= int(found.gaussians.min()) <= int(found.gaussians.max()) < 400
