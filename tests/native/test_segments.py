# SPDX-License-Identifier: Apache-2.0
"""Segmented blending (kernels/raster_warps/blend), which the CUDA drivers alone have: segments against whole lists, and both against the
plain torch reference in double precision on the same lists, within the limits of tests/native/test_parity_render.py."""

import itertools
import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from operators import check_schema
from parity import DEVICES, aimed, cast_view, in_parts, relative
from splat_scenes import (
    CAMERA_MOTION,
    F64,
    LIDAR_MOTION,
    changed,
    make_camera_view,
    make_gaussians,
    make_lidar,
    make_lidar_view,
    rays_view,
    spherical,
    tensor,
    uniform,
    view_float32,
)
from test_parity_render import assert_parity, camera_case, lidar_case
from torch import Tensor
from warp_tile_scenes import PLAN, VIEWS, WHOLE, View, call_parts, driven, given, lists_of, on, rendered, scene, view_of

from nurec_lite.native import stages as native
from nurec_lite.native import warps
from nurec_lite.native.operators.rays import rays
from nurec_lite.native.operators.render_segments import Segments
from nurec_lite.native.operators.shared import Lists, Outputs, gaussian_args, packed_view
from nurec_lite.scene.gaussians import AnyGaussians, WorldGaussians
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return driven(request.param)


# ---- segments


def gradients(
    g: AnyGaussians, view: View, pairs: PairList, length: int, distance: bool = True, rays: bool = False
) -> list[Tensor]:
    """Gradients of a weighted sum of the outputs, by all inputs."""
    gaussians, features, of_rays, *rest = given(g, view, pairs)
    leaves = [t.clone().requires_grad_() for t in (*gaussians, features, *of_rays[:2])]
    of_rays = [*leaves[8:], *of_rays[2:]] if rays else list(of_rays)
    out, depth, transmittance, *_ = torch.ops.nurec_lite.render_segments(leaves[:7], leaves[7], of_rays, *rest, length)
    seed = torch.Generator().manual_seed(3)
    w = [torch.randn(t.shape, generator=seed).to(t.device) for t in (out, transmittance, depth)]
    loss = (w[0] * out).sum() + (w[1] * transmittance).sum() + ((w[2] * depth).sum() / 6 if distance else 0)
    found = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [torch.zeros_like(x) if d is None else d for d, x in zip(found, leaves, strict=True)]


def assert_parts_agree(g: AnyGaussians, view: View, pairs: PairList, length: int) -> None:
    """Products and sums are taken in another order: a few units in the last place of float32, of distances of up to 10 m."""
    whole, cut = (rendered(g, view, pairs, k) for k in (WHOLE, length))
    for name, one, two in zip(("features", "distance", "transmittance", "median"), whole, cut, strict=True):
        limit = 1e-6 * (10 if name == "distance" else 1)
        assert float((one - two).abs().max()) <= limit, name


@pytest.mark.parametrize("sensor", VIEWS)
def test_nothing_is_read_of_what_a_view_does_not_see(sensor: str, device: torch.device) -> None:
    """A third of the Gaussians are transparent: outputs are the same, and gradients of the hidden ones are zeros."""
    view = view_of(sensor, device)
    g = scene(view, device)
    g.opacities[::3] = 0
    pairs = lists_of(g, view, exact=True)
    assert pairs.visible is not None
    hidden = pairs.visible == 0
    assert 60 <= int(hidden.sum()) < 180
    known = replace(pairs, visible=None)
    outputs, expected = rendered(g, view, known, 8), gradients(g, view, known, 8)
    assert all(torch.equal(a, b) for a, b in zip(rendered(g, view, pairs, 8), outputs, strict=True))
    for found, like in zip(gradients(g, view, pairs, 8)[:8], expected, strict=False):
        of_hidden = found[hidden] if len(found) == len(hidden) else found[:0]
        assert not of_hidden.any()
        torch.testing.assert_close(found, like, atol=1e-4 * float(like.abs().max()) if like.numel() else 0, rtol=0)


def test_what_a_projection_tells_is_what_rays_read(device: torch.device) -> None:
    """A lidar's rays read rows that are made on the way to its lists, unless they are to blend other features."""
    view = view_of("lidar", device)
    g = scene(view, device)
    g.opacities[::3] = 0
    pairs = lists_of(g, view, exact=True)
    assert pairs.read is not None
    alone = replace(pairs, read=None)
    blended = [warps.blend(g, g.lidar, rays(view), p, view, PLAN.segment_entries) for p in (pairs, alone)]
    assert all(torch.equal(getattr(blended[0], n), getattr(blended[1], n)) for n in ("features", "distance", "median"))
    others = [warps.blend(g, 1 - g.lidar, rays(view), p, view, PLAN.segment_entries) for p in (pairs, alone)]
    assert torch.equal(others[0].features, others[1].features)
    assert not torch.equal(others[0].features, blended[0].features)
    found = []
    for p in (pairs, alone):
        leaf = replace(g, means=g.means.clone().requires_grad_(), lidar=g.lidar.clone().requires_grad_())
        result = None if p.read is None else replace(p.read, features=leaf.lidar)
        out = warps.blend(leaf, leaf.lidar, rays(view), replace(p, read=result), view, PLAN.segment_entries)
        found.append(torch.autograd.grad((out.features.sum() + out.distance.sum()), (leaf.means, leaf.lidar)))
    for one, two in zip(*found, strict=True):
        assert bool(one.any())
        torch.testing.assert_close(one, two, atol=1e-4 * float(two.abs().max()), rtol=0)


@pytest.mark.parametrize("sensor", VIEWS)
def test_the_longest_lists_come_first(sensor: str, device: torch.device) -> None:
    """Lists with more than two segments come first, then those that have two, then the others. Within a kind the order of lengths holds up
    to a sixteenth of an octave; the segments of a list lie side by side."""
    view, length = view_of(sensor, device), 20
    g = scene(view, device, 300)
    pairs = lists_of(g, view, exact=True)
    *_, first, list_index, _, _ = torch.ops.nurec_lite.render_segments(*given(g, view, pairs), length)
    lengths = pairs.offsets.diff().cpu()
    parts = torch.where(lengths > length, -(-lengths // length), 1)
    first, list_index = first.cpu(), list_index.cpu()
    assert int(first[-1]) == int(parts.sum()) and (list_index[int(first[-1]) :] == -1).all()
    assert list_index[: int(first[-1])].bincount(minlength=len(parts)).equal(parts)
    for k in range(int(parts.max())):
        some = parts > k
        assert list_index[first[:-1][some] + k].long().equal(some.nonzero()[:, 0])
    kinds = [first[:-1][parts > 2], first[:-1][parts == 2], first[:-1][parts == 1]]
    for before, after in itertools.pairwise(kinds):
        assert int(before.max()) < int(after.min())
    cut = parts > 1
    in_order = lengths[~cut][first[:-1][~cut].argsort()].double() + 1
    assert bool((in_order[1:] <= in_order[:-1] * 2 ** (1 / 16) * 1.001).all())


def test_rows_must_fit(device: torch.device) -> None:
    view = view_of("lidar", device)
    g = scene(view, device, 20)
    args = given(g, view, lists_of(g, view, exact=True))
    with pytest.raises(ValueError, match="rows has shape"):
        torch.ops.nurec_lite.render_segments(*args, 8, torch.zeros(20, 20, device=device))
    beside = torch.zeros(20 * 16 + 1, device=device)[1:].view(20, 16)
    with pytest.raises(ValueError, match="rows does not start on a multiple of 16 bytes"):
        torch.ops.nurec_lite.render_segments(*args, 8, beside)


def test_each_ray_must_be_in_a_list(device: torch.device) -> None:
    """Outputs of other rays would be the earlier content of the memory."""
    view = view_of("lidar", device)
    g = scene(view, device, 20)
    pairs = lists_of(g, view, exact=True)
    few = replace(pairs, rays=pairs.rays[:1], offsets=pairs.offsets[:2])
    with pytest.raises(ValueError, match=r"lists are of 16 rays at most, but there are [0-9]+: each must be in one"):
        torch.ops.nurec_lite.render_segments(*given(g, view, few), 8)


@pytest.mark.parametrize("length", [1, 8, 33])
@pytest.mark.parametrize("sensor", VIEWS)
def test_parts_give_what_whole_lists_do(sensor: str, length: int, device: torch.device) -> None:
    view = view_of(sensor, device)
    g = scene(view, device, 300)
    pairs = lists_of(g, view, False)
    assert int(pairs.offsets.diff().max()) > 34
    assert_parts_agree(g, view, pairs, length)


@pytest.mark.parametrize("rays", [False, True], ids=["", "rays"])
@pytest.mark.parametrize("distance", [False, True], ids=["colour", "distance"])
@pytest.mark.parametrize("sensor", VIEWS)
def test_gradients_of_parts(sensor: str, distance: bool, rays: bool, device: torch.device) -> None:
    """Every instance of the backward kernel. A third of the Gaussians stands still."""
    view = view_of(sensor, device)
    g = in_parts(scene(view, device, 150), 50)
    pairs = lists_of(g, view, True)
    whole, cut = (gradients(g, view, pairs, k, distance, rays) for k in (WHOLE, 8))
    assert whole[0].any() and whole[7].any() and bool(whole[9].any()) == rays
    for one, two in zip(whole, cut, strict=True):
        assert relative(two.cpu(), one.cpu().double()) < 1e-5


def on_axis(depths: Tensor, opacities: Tensor | float, device: torch.device) -> tuple[WorldGaussians, LidarView]:
    """Wide ones, in the way of all of 33 rays."""
    directions = spherical(uniform(-0.02, 0.02, 33), uniform(-0.02, 0.02, 33))
    view = view_float32(rays_view(make_lidar(8, 64), directions, torch.full((33,), 0.5, dtype=F64)))
    g = make_gaussians(depths[:, None] * tensor(1.0, 0.0, 0.0))
    g = on(device, changed(g, opacities=opacities, scales=2.0))
    return g, cast_view(view, torch.float32, device)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("length", "opacity"),
    [
        (1, 0.2),
        (2, 0.5),
        (2, 0.97),
        (3, 0.85),
        (5, 0.2),
        (5, 0.97),
        (16, 0.2),
        (16, 0.5),
        (20, 0.2),
        (20, 0.97),
        (39, 0.2),
    ],
)
def test_walls_that_end_rays_in_an_early_part(opacity: float, length: int, device: torch.device) -> None:
    """40 walls: behind T = 1e-4 nothing is blended, and no Gaussian behind it has a gradient, in any segment."""
    g, view = on_axis(3 + 0.1 * torch.arange(40, dtype=F64), opacity, device)
    pairs = lists_of(g, view, True)
    assert_parts_agree(g, view, pairs, length)
    whole, cut = (gradients(g, view, pairs, k) for k in (WHOLE, length))
    blended = whole[6] != 0
    assert blended.equal(cut[6] != 0) and int(blended.sum()) == min(
        40, math.ceil(math.log(1e-4) / math.log(1 - opacity)) - 1
    )
    for one, two in zip(whole, cut, strict=True):
        assert relative(two.cpu(), one.cpu().double()) < 1e-5


@pytest.mark.parametrize("length", [1, 2, 3, 4])
@pytest.mark.parametrize("opacity", [0.2, 0.3, 0.55])
def test_the_median_at_the_borders_of_parts(opacity: float, length: int, device: torch.device) -> None:
    """T crosses one half behind 4, 2 and 1 of 12: at the end of a segment, at the begin of one, and within."""
    g, view = on_axis(3.0 + torch.arange(12, dtype=F64), opacity, device)
    pairs = lists_of(g, view, True)
    whole, cut = (rendered(g, view, pairs, k)[3] for k in (WHOLE, length))
    assert cut.equal(whole)
    expected = 3.0 + math.ceil(math.log(0.5) / math.log(1 - opacity)) - 1
    assert float((cut - expected).abs().max()) < 0.05


# ---- against the reference


@pytest.fixture
def in_warp_tiles_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the parity tests below run over warp tiles, with segments of some length."""

    def choose(part: int) -> None:
        plan = replace(PLAN, segment_entries=part)
        render = {f.__name__: partial(f, plan=plan) for f in (native.render_camera, native.render_lidar)}
        stages = SimpleNamespace(project=partial(native.project, plan=PLAN), tile=native.tile, **render)
        monkeypatch.setattr("parity.native", stages)
        monkeypatch.setattr("parity.plan_of", lambda _: plan)

    return choose


@pytest.mark.parametrize("part", [8, WHOLE])
@pytest.mark.parametrize("learned", [False, True], ids=["", "poses"])
@pytest.mark.parametrize("sensor", [*VIEWS, "lidar with targets"])
def test_parity_with_the_reference(
    sensor: str, learned: bool, part: int, device: torch.device, in_warp_tiles_of: Any
) -> None:
    in_warp_tiles_of(part)
    view = view_of(sensor.split(" with ")[0], torch.device("cpu"))
    case = camera_case(view, 150) if isinstance(view, CameraView) else lidar_case(view, 150)
    if "targets" in sensor:
        case = replace(case, view=aimed(case.view))
    assert_parity(case, device, learn_poses=learned)


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_a_sensor_that_moves_in_no_time(sensor: str, device: torch.device, in_warp_tiles_of: Any) -> None:
    """Its rays begin at one moment, but not in one place."""
    in_warp_tiles_of(8)
    if sensor == "camera":
        motion = replace(CAMERA_MOTION, seconds=0.0)
        case = camera_case(make_camera_view(37, 29, 30.0, "top_to_bottom", motion), 150)
    else:
        case = lidar_case(make_lidar_view(make_lidar(12, 64), replace(LIDAR_MOTION, seconds=0.0)), 150)
    assert_parity(case, device)


# ---- the operators


@pytest.mark.parametrize("n", [0, 20])
@pytest.mark.parametrize("sensor", ["moving camera", "lidar"])
def test_torch_s_own_checks(sensor: str, n: int, device: torch.device) -> None:
    view = view_of(sensor, device)
    g = scene(view, device, n)
    projection, seen = native.project(g, view, plan=PLAN), rays(view)
    is_camera = isinstance(view, CameraView)
    made, grid, size = warps.image_warp_tiles(view) if is_camera else (*warps.swept(projection), [])  # type: ignore[arg-type]
    places = warps.places(projection)
    directions_and_delays = [seen.directions, seen.delays]
    if not is_camera:
        check_schema(torch.ops.nurec_lite.group_sweep_rays.default, (list(grid),))
        check_schema(torch.ops.nurec_lite.occupied_cells.default, (list(grid), 3))
    for capacity in (-1, 50):
        args = (
            list(gaussian_args(g)), packed_view(view), list(places), projection.shapes, directions_and_delays, list(made), list(grid), size,
            True, capacity,
        )  # fmt: skip
        check_schema(torch.ops.nurec_lite.list_warp_tiles.default, args)
    pairs = lists_of(g, view, True)
    gaussians, features, of_rays, lists, row, moving = given(g, view, pairs)
    args = list(gaussians), features, list(of_rays), list(lists), row, moving, 8
    # outputs that a segment does not need are not written, so that those of two calls need not be equal
    check_schema(torch.ops.nurec_lite.render_segments.default, args)
    out, distance, transmittance, _, *kept = torch.ops.nurec_lite.render_segments(*args)
    outputs = [out, distance, transmittance]
    for with_rays in (False, True):
        last = list(kept), outputs, *(torch.randn_like(t) for t in outputs), is_camera, with_rays
        check_schema(torch.ops.nurec_lite.render_backward_accumulate.default, (*args, *last))
    assert (
        len(Segments._fields) == len(kept) and len(Outputs._fields) == len(outputs) and len(Lists._fields) == len(lists)
    )


@pytest.mark.parametrize(("length", "rays"), [(0, 16), (8, 8)])
def test_what_does_not_fit_is_refused(length: int, rays: int, device: torch.device) -> None:
    view = view_of("lidar", device)
    g = scene(view, device, 10)
    pairs = lists_of(g, view, True)
    pairs = replace(pairs, rays=pairs.rays[:, :rays].contiguous())
    with pytest.raises(ValueError, match="length" if rays == 16 else "a list has 16"):
        call_parts(g, view, pairs, length)


def test_second_derivatives_are_refused(device: torch.device) -> None:
    view = view_of("lidar", device)
    g = scene(view, device, 10)
    opacities = g.opacities.clone().requires_grad_()
    out = call_parts(replace(g, opacities=opacities), view, lists_of(g, view, True), 8)[0]
    (first,) = torch.autograd.grad(out.sum(), opacities, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        first.sum().backward()
