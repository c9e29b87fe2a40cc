# SPDX-License-Identifier: Apache-2.0
"""Views of a step in one launch a stage (nurec_lite/native/batched_views.py, kernels/raster_warps/views/train.h), which the CUDA drivers
alone have, against the same views one after another, forward and backward, and against the plain torch reference in double precision."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch
from look_scenes import SENSORS, View, lens_views, ordered, rosette_views, scene_around, scene_for, views_of
from parity import DEVICES, Case, aimed, cast_view, rounding, run
from parity import random_weights as weights_of
from splat_scenes import (
    F64,
    LIDAR_MOTION,
    around,
    make_gaussians,
    make_lidar,
    make_pose,
    rays_view,
    spherical,
    uniform,
    view_float32,
)
from test_parity_render import SUMS
from together_scenes import LOOP, Learned, by_other_cameras, learn, one_launch, stages_for
from torch import Tensor
from warp_tile_scenes import PLAN, driven

from nurec_lite.native import batched_views
from nurec_lite.native import stages as native
from nurec_lite.scene.scene import Scene
from nurec_lite.splat import render
from nurec_lite.splat.project import _depth
from nurec_lite.splat.views import CameraView
from nurec_lite.training.stages import Stages


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return driven(request.param)


def assert_learned_alike(found: Learned, expected: Learned) -> None:
    """The same lists and formulas. Values: a few units in the last place, of distances of up to 10 m. Gradients are sums in another
    order: a few units in the last place of their norm remain. The tests of parts of lists hold them to 1e-5 of it beside whole ones. A
    GPU's compiler may fuse other products, so that a response near a threshold falls the other way: of a few rays."""
    for k, (one, two) in enumerate(zip(found.values, expected.values, strict=True)):
        for name in two:
            off = (one[name] - two[name]).abs()
            limit = 1e-5 if name in ("distance", "median") else 2e-6
            assert one[name].shape == two[name].shape and bool(one[name].isfinite().all()), name
            if one[name].is_cuda:
                assert float((off > 100 * limit).sum()) <= 0.01 * off.numel(), f"{name} of view {k}"
            elif off.numel():
                assert float(off.max()) <= limit, f"{name} of view {k}"
    assert found.gradients.keys() == expected.gradients.keys()
    for name, gradient in expected.gradients.items():
        share = 1e-2 if gradient.is_cuda else 1e-5
        off = float((found.gradients[name] - gradient).double().norm())
        assert off <= share * float(gradient.double().norm()) + 1e-7, f"gradient of {name}: {off}"


def compare(scene: Scene, views: list[View], stages: Stages, **how: Any) -> tuple[Learned, Learned]:
    found, expected = (learn(by, stages, scene, views, **how) for by in (one_launch, LOOP))
    assert_learned_alike(found, expected)
    return found, expected


# ---- against one view after another


@pytest.mark.parametrize("part", [8, 1 << 30], ids=["parts", "whole lists"])
@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("sensor", SENSORS)
def test_values_and_gradients(sensor: str, n: int, part: int, device: torch.device) -> None:
    """Views lie at different times: in the third, actors are gone."""
    views = views_of(sensor, n, device)
    found, _ = compare(scene_for(views[0], 200, device), views, stages_for(device, part))
    unseen = {"lidar_logits"} if "camera" in sensor else {"sh0", "sh_rest", "sky"}
    for name, gradient in found.gradients.items():
        assert bool(gradient.any()) == (name not in unseen), name


@pytest.mark.parametrize("sensor", ["still camera", "moving camera"])
def test_without_a_gradient_of_the_distance(sensor: str, device: torch.device) -> None:
    """A training has kernels of its own for it."""
    views = views_of(sensor, 2, device)
    compare(scene_for(views[0], 150, device), views, stages_for(device), distance=False)


@pytest.mark.parametrize("sensor", ["still camera", "moving camera"])
def test_several_cameras(sensor: str, device: torch.device) -> None:
    """The cameras have intrinsics of their own."""
    views = by_other_cameras(views_of(sensor, 3, device))
    compare(scene_for(views[0], 200, device), views, stages_for(device))


LENSES_AT_ONCE = [("fisheye", "thin_prism_fisheye"), ("ftheta", "plain", "rational"), ("plain", "prism", "plain")]


@pytest.mark.parametrize("shutter", ["global", "top_to_bottom", "right_to_left"])
@pytest.mark.parametrize("kinds", LENSES_AT_ONCE, ids="-".join)
def test_lenses_of_all_kinds_in_one_launch(kinds: tuple[str, ...], shutter: str, device: torch.device) -> None:
    """Pinholes among them keep their own bounds and outlines, so that lists are those of each view alone."""
    views = lens_views(kinds, device, shutter)
    found, expected = compare(scene_around(250, device), views, stages_for(device), distance=shutter != "global")
    assert [listed.capacity for listed in found.lists] == [listed.capacity for listed in expected.lists]
    assert all(float((one["opacity"] > 0.3).float().mean()) > 0.1 for one in found.values)


def test_lenses_with_short_keys_and_capacities(device: torch.device) -> None:
    views = lens_views(("fisheye", "plain", "ftheta"), device)
    stages = stages_for(device, depth_bits=16).replaced(capacity=lambda view: 5000)
    compare(scene_around(150, device), views, stages)


def test_sweeps_of_a_lidar_without_rows(device: torch.device) -> None:
    views = rosette_views(3, device)
    found, _ = compare(scene_for(views[0], 150, device), views, stages_for(device))
    assert found.gradients["lidar_logits"].any()


@pytest.mark.parametrize("sensor", SENSORS)
def test_sensors_whose_poses_are_corrected(sensor: str, device: torch.device) -> None:
    views = views_of(sensor, 3, device)
    found, _ = compare(scene_for(views[0], 200, device), views, stages_for(device), with_pose_delta=True)
    assert all(bool(found.gradients[f"pose delta {k}"].any()) for k in range(3))


@pytest.mark.parametrize("size", [(1, 1), (8, 4), (33, 5)], ids=str)
def test_images_of_odd_sizes(size: tuple[int, int], device: torch.device) -> None:
    views = by_other_cameras(views_of("moving camera", 2, device, width=size[0], height=size[1]))
    compare(scene_for(views[0], 60, device, scales=(0.5, 2.0)), views, stages_for(device))


@pytest.mark.parametrize("targets", [False, True])
@pytest.mark.parametrize("rays", [0, 1, 31, 33])
def test_few_rays(rays: int, targets: bool, device: torch.device) -> None:
    """Rays of a sweep between two others, and of all three. Some rays know where they end."""
    lidar, views = make_lidar(8, 64), []
    for n in (40, rays, 0 if rays == 0 else 32):
        d = spherical(uniform(-0.6, 0.6, n), uniform(-0.3, 0.1, n))
        made: Any = view_float32(rays_view(lidar, d, torch.rand(n, dtype=F64), LIDAR_MOTION))
        views.append(cast_view(aimed(made) if targets else made, torch.float32, device))
    scene = ordered(make_gaussians(around(60, 4, 9, (-0.7, 0.7)), scales=(0.3, 0.9)), device)
    compare(scene, views, stages_for(device))


@pytest.mark.parametrize("sensor", SENSORS)
def test_no_gaussians(sensor: str, device: torch.device) -> None:
    views = views_of(sensor, 2, device)
    compare(scene_for(views[0], 0, device, actors=0.0), views, stages_for(device))


@pytest.mark.parametrize("sensor", ["still camera", "moving camera"])
def test_views_that_see_nothing(sensor: str, device: torch.device) -> None:
    """The second of three; and both of two."""
    views = views_of(sensor, 3, device)
    scene = scene_for(views[0], 100, device)
    away = [_turned_away(view) for view in views]
    found, _ = compare(scene, [views[0], away[1], views[2]], stages_for(device))
    assert not found.values[1]["opacity"].any() and found.values[0]["opacity"].any()
    found, _ = compare(scene, away[:2], stages_for(device))
    assert not found.gradients["means"].any() and found.gradients["sky"].any()


def _turned_away(view: View) -> View:
    T = make_pose((0.0, 3.14159265, 0.0), (0.0, 0.0, -50.0)).to(view.T_world_sensor_start)
    moved = replace(
        view, T_world_sensor_start=view.T_world_sensor_start @ T, T_world_sensor_end=view.T_world_sensor_end @ T
    )
    return replace(moved, row=None)


@pytest.mark.parametrize("actors", [0.0, 1.0])
@pytest.mark.parametrize("sensor", SENSORS)
def test_nothing_moves_or_everything(sensor: str, actors: float, device: torch.device) -> None:
    views = views_of(sensor, 2, device)
    compare(scene_for(views[0], 100, device, actors=actors), views, stages_for(device))


@pytest.mark.parametrize("coefficients", [1, 4, 16])
def test_harmonics_of_every_degree(coefficients: int, device: torch.device) -> None:
    """There are more Gaussians than a block has."""
    views = views_of("still camera", 2, device)
    compare(scene_for(views[0], 300, device, coefficients=coefficients), views, stages_for(device))


@pytest.mark.parametrize("sensor", SENSORS)
def test_saturated_alpha(sensor: str, device: torch.device) -> None:
    """Opaque walls end rays early."""
    views = views_of(sensor, 3, device)
    compare(scene_for(views[0], 200, device, opacities=0.9999), views, stages_for(device))


def test_with_the_other_kernels_of_images(device: torch.device) -> None:
    """The loop's colours and sky by theirs, which the launch has in any case, or takes, too."""
    views = views_of("moving camera", 2, device)
    compare(scene_for(views[0], 100, device), views, stages_for(device, fused_colour=True, fused_sky=True))


@pytest.mark.parametrize("sensor", ["moving camera", "lidar"])
def test_with_short_keys(sensor: str, device: torch.device) -> None:
    """Many share a distance: one view after another sorts by the same keys; all bits would make another order."""
    views = views_of(sensor, 2, device)
    scene = scene_for(views[0], 200, device)
    g, eye = scene.gaussians, views[0].centre()
    depth = _depth(g.means - eye, views[0])[:, None]
    stand = eye + (g.means - eye) * depth.round() / depth
    scene.gaussians = replace(g, means=torch.where(g.node[:, None] == 0, stand, g.means).float())
    found, _ = compare(scene, views, stages_for(device, depth_bits=16))
    others = learn(one_launch, stages_for(device), scene, views).values
    assert not all(torch.equal(a[k], b[k]) for a, b in zip(found.values, others, strict=True) for k in a)


# ---- lists and their capacity


@pytest.mark.parametrize("sensor", SENSORS)
def test_lists_are_as_long_as_one_after_another(sensor: str, device: torch.device) -> None:
    """The lists are as long with a capacity beyond their number."""
    views = views_of(sensor, 3, device)
    scene, stages = scene_for(views[0], 200, device), stages_for(device)
    found, expected = compare(scene, views, stages)
    assert [listed.needed for listed in found.lists] == [None] * 3
    lengths = [listed.capacity for listed in expected.lists]
    assert [listed.capacity for listed in found.lists] == lengths and min(lengths) > 0
    roomy = stages.replaced(capacity=lambda view: max(lengths) + 100)
    again = learn(one_launch, roomy, scene, views)
    assert_learned_alike(again, expected)
    assert [int(listed.needed) for listed in again.lists] == lengths
    assert [listed.capacity for listed in again.lists] == [max(lengths) + 100] * 3


@pytest.mark.parametrize("capacity", [0, 3, 100])
@pytest.mark.parametrize("sensor", SENSORS)
def test_lists_without_capacity_say_so(sensor: str, capacity: int, device: torch.device) -> None:
    """One of the views has too little; as much as they need is enough."""
    views = views_of(sensor, 3, device)
    scene, stages = scene_for(views[0], 200, device), stages_for(device)
    expected = learn(LOOP, stages, scene, views)
    capacities = dict.fromkeys(range(3), capacity)
    for _ in range(8):
        by_view = iter(capacities.values())
        tight = stages.replaced(capacity=lambda view, each=by_view: next(each))
        found = learn(one_launch, tight, scene, views)
        needed = [int(listed.needed) for listed in found.lists]
        if all(n <= r for n, r in zip(needed, capacities.values(), strict=True)):
            break
        capacities = {k: max(capacities[k], n) for k, n in enumerate(needed)}
    assert_learned_alike(found, expected)
    assert sum(capacities.values()) < 5 * sum(listed.capacity for listed in expected.lists)


# ---- against the reference


@pytest.mark.parametrize("sensor", [*SENSORS, "lidar with targets", "lenses", "rosette"])
def test_the_reference_in_double_precision(sensor: str, device: torch.device) -> None:
    """Within the limits of tests/native/test_parity_render.py, view by view; the gradient is the sum over views. Rays that decide within
    rounding weigh nothing."""
    views, scene = _seen_by(sensor, torch.device("cpu"))
    weights, expected, slope = [], [], 0.0
    for k, view in enumerate(views):
        case = Case(scene, view)
        projection, pairs = listed_by_warp_tiles(case, device)
        limits = rounding(case, projection, pairs)
        assert limits.clear.double().mean() > 0.95 and limits.slope < 3e-4
        shares = {name: w * limits.clear.view(-1, *[1] * (w.dim() - 1)) for name, w in weights_of(view, 9.0, k).items()}
        weights.append(shares)
        expected.append(run(render, case, pairs, shares, F64, torch.device("cpu"), learn_poses=False))
        slope = max(slope, limits.slope)
    there = [cast_view(view, torch.float32, device) for view in views]
    found = learn(one_launch, stages_for(device), moved(scene, device), there, weights)
    for name, gradient in found.gradients.items():
        total = torch.stack([one.gradients[name] for one in expected]).sum(0)
        off = float((gradient.cpu().double() - total).norm())
        share = (5 if name in SUMS else 1) * (1e-4 + slope)
        assert off <= share * float(total.norm()), f"gradient of {name}: {off}"
    for k, view in enumerate(views):
        clear = (next(iter(weights[k].values())) != 0).flatten()
        for name, value in found.values[k].items():
            flat = value.cpu().double().flatten() if name != "colour" else value[..., 0].cpu().double().flatten()
            other = expected[k].values[name]
            other = other[..., 0] if name == "colour" else other
            scale = 10 if name in ("distance", "median") else 1
            assert float((flat - other).abs()[clear[:: len(clear) // len(flat)]].max()) < 1e-4 * scale, (
                f"{name} of {view.kind}"
            )


def _seen_by(sensor: str, cpu: torch.device) -> tuple[list[Any], Scene]:
    if sensor == "lenses":
        return lens_views(("fisheye", "plain", "rational"), cpu), scene_around(150, cpu)
    if sensor == "rosette":
        views = rosette_views(2, cpu)
    else:
        views = views_of(sensor.removesuffix(" with targets"), 2, cpu)
    views = [aimed(view) for view in views] if "targets" in sensor else views
    return views, scene_for(views[0], 150, cpu)


def listed_by_warp_tiles(case: Case, device: torch.device) -> tuple[Any, Any]:
    """The projection and the lists of warp tiles, made on the device and copied to the CPU."""
    with torch.no_grad():
        g = case.world(torch.float32)
        view = cast_view(case.view, torch.float32, device)
        projection = native.project(on(g, device), view, plan=PLAN)
        pairs = native.tile(projection, view, plan=PLAN)
        return on(projection, torch.device("cpu")), on(pairs, torch.device("cpu"))


def on(known: Any, device: torch.device) -> Any:
    """A dataclass with all tensors in it on a device."""
    if isinstance(known, Tensor):
        return known.to(device)
    if not is_dataclass(known):
        return known
    return replace(known, **{f.name: on(getattr(known, f.name), device) for f in fields(known)})  # type: ignore[type-var]


def moved(scene: Scene, device: torch.device) -> Scene:
    from nurec_lite.training.checkpoint import scene_to

    return scene_to(scene, device)


# ---- refusals


def test_what_hinders(device: torch.device) -> None:
    views = views_of("moving camera", 2, device)
    stages, scene = stages_for(device), scene_for(views[0], 20, device)
    gaussians = stages.render.gather(stages, scene, views).gaussians
    assert batched_views.unsupported_reason(views, gaussians) is None
    alone = [stages.render.gather(stages, scene, [view]).gaussians[0] for view in views]
    assert "fused_interp and collect_once" in str(batched_views.unsupported_reason(views, alone))
    assert "fused_interp and collect_once" in str(
        batched_views.unsupported_reason(views, [g.whole() for g in gaussians])
    )
    start = views[0].T_world_sensor_start.clone().requires_grad_()
    assert "gradients of rays" in str(
        batched_views.unsupported_reason([replace(views[0], T_world_sensor_start=start)], gaussians)
    )


def test_sweeps_of_too_many_bands(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    views = views_of("lidar", 2, device)
    stages, scene = stages_for(device), scene_for(views[0], 20, device)
    gaussians = stages.render.gather(stages, scene, views).gaussians
    assert batched_views.unsupported_reason(views, gaussians) is None
    monkeypatch.setattr(batched_views, "MAX_BANDS", 2)
    assert "bands of elevation, more than 2" in str(batched_views.unsupported_reason(views, gaussians))


@pytest.mark.parametrize("sensor", SENSORS)
def test_views_of_too_many_lists(sensor: str, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    views = views_of(sensor, 2, device)
    stages, scene = stages_for(device), scene_for(views[0], 20, device)
    gaussians = stages.render.gather(stages, scene, views).gaussians
    monkeypatch.setattr(batched_views, "MAX_LISTS", 3)
    assert "more than 3 lists" in str(batched_views.unsupported_reason(views, gaussians))


def test_views_of_one_sort() -> None:
    cpu = torch.device("cpu")
    still, moving, sweeps = (views_of(sensor, 2, cpu) for sensor in SENSORS)
    assert len({batched_views.batch_key(view) for view in (*still, *moving, *sweeps)}) == 3
    assert len({batched_views.batch_key(view) for view in by_other_cameras(moving)}) == 1
    assert len({batched_views.batch_key(view) for view in lens_views(("fisheye", "plain", "prism"), cpu)}) == 1
    assert isinstance(still[0], CameraView)
    smaller = replace(still[0], camera=replace(still[0].camera, width=36))
    assert batched_views.batch_key(smaller) != batched_views.batch_key(still[0])
    assert len({batched_views.batch_key(view) for view in (sweeps[0], aimed(sweeps[1]))}) == 2


def test_second_derivatives_are_refused(device: torch.device) -> None:
    views = views_of("still camera", 2, device)
    stages, scene = stages_for(device), scene_for(views[0], 20, device)
    scene.gaussians.means.requires_grad_()
    found: Any = one_launch(stages, scene, views, stages.render.gather(stages, scene, views).gaussians)
    first: Tensor = torch.autograd.grad(found[0][0].colour.sum(), scene.gaussians.means, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="no second derivatives"):
        first.sum().backward()
