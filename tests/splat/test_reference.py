# SPDX-License-Identifier: Apache-2.0
"""The reference renderer against an oracle written straight from the formulas, its gradients, its rules and its corner cases."""

import math
from collections.abc import Callable
from dataclasses import fields, replace

import pytest
import torch
from lenses import LENSES, lens_view, seen_through
from splat_scenes import (
    CAMERA_MOTION,
    F64,
    LIDAR_MOTION,
    POSE,
    STILL,
    T_MIN,
    TENSORS,
    Motion,
    around,
    changed,
    contributing,
    depth_order,
    depth_order_tensor,
    in_frustum,
    leaves,
    listed,
    make_camera_view,
    make_gaussians,
    make_lidar,
    make_lidar_view,
    make_sky,
    no_gaussians,
    oracle_blend,
    oracle_camera,
    oracle_colour,
    oracle_lidar,
    oracle_rays,
    rotation_vector,
    tensor,
    to_float32,
    uniform,
    view_float32,
)
from torch import Tensor
from torch.autograd import gradcheck

from nurec_lite.geometry.camera import SHUTTERS
from nurec_lite.geometry.se3 import matrix_to_quat
from nurec_lite.scene.gaussians import WorldGaussians
from nurec_lite.scene.sky import sample_sky
from nurec_lite.splat import reference
from nurec_lite.splat.project import project
from nurec_lite.splat.reference import blend
from nurec_lite.splat.render import CameraImage, LidarReturns, render_camera, render_lidar
from nurec_lite.splat.tiles import PairList, all_pairs, tile
from nurec_lite.splat.views import CameraView, LidarView

WIDE_LENS = (-0.1, 0.01, 0.001, -0.0005, 0.0)
EXACT = {"atol": 1e-11, "rtol": 1e-11}  # double precision, after a few dozen operations on metres
SEEN = ("distance", "median", "intensity", "drop", "opacity")  # of a lidar ray


def all_of(g: WorldGaussians, view: CameraView | LidarView) -> PairList:
    return all_pairs(len(g), view, depth_order_tensor(g, view))


def own(g: WorldGaussians, view: CameraView | LidarView) -> PairList:
    return tile(project(g, view), view)


def lost(g: WorldGaussians, view: CameraView | LidarView) -> int:
    rays = oracle_rays(view)
    return int((contributing(g, rays) & ~listed(own(g, view), len(rays.delays), len(g))).sum())


def assert_same(result: object, expected: object, **tolerance: float) -> None:
    """Every tensor of `result` is the one of that name in `expected`."""
    for each in SEEN if isinstance(result, LidarReturns) else tuple(f.name for f in fields(result)):  # type: ignore[arg-type]
        a, b = getattr(result, each), getattr(expected, each)
        torch.testing.assert_close(a, b, **(tolerance or EXACT), msg=lambda text, name=each: f"{name}: {text}")


def assert_finite(*tensors: Tensor | None) -> None:
    assert all(x is None or bool(x.isfinite().all()) for x in tensors)


def outputs(rendered: CameraImage | LidarReturns) -> tuple[Tensor, ...]:
    names = ("colour", "distance", "opacity") if isinstance(rendered, CameraImage) else SEEN
    return tuple(getattr(rendered, name) for name in names)


def projections(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """One number of each tensor: its product with fixed random weights."""
    generator = torch.Generator().manual_seed(7)
    return tuple((x * torch.randn(x.shape, generator=generator, dtype=F64).to(x.dtype)).sum() for x in tensors)


# ---- values


@pytest.mark.parametrize("pairs", [all_of, own])
@pytest.mark.parametrize("motion", [STILL, CAMERA_MOTION], ids=["still", "moving"])
@pytest.mark.parametrize("shutter", SHUTTERS)
def test_camera_equals_the_oracle(shutter: str, motion: Motion, pairs: Callable[..., PairList]) -> None:
    view = make_camera_view(shutter=shutter, motion=motion)
    speed = 0.0 if motion is STILL else 3.0
    g, sky = make_gaussians(in_frustum(view, 25, 4, 9, 0.2), scales=(0.2, 0.5), speed=speed), make_sky()
    if pairs is own:
        assert lost(g, view) == 0  # of these Gaussians; test_project bounds the share in general
    assert_same(render_camera(g, view, pairs(g, view), sky), oracle_camera(g, view, sky))


@pytest.mark.parametrize("pairs", [all_of, own])
@pytest.mark.parametrize("motion", [STILL, LIDAR_MOTION], ids=["still", "moving"])
def test_lidar_equals_the_oracle(motion: Motion, pairs: Callable[..., PairList]) -> None:
    view = make_lidar_view(make_lidar(4, 32), motion)
    g = make_gaussians(around(60, 4, 9), scales=(0.2, 0.6), speed=0.0 if motion is STILL else 3.0)
    if pairs is own:
        assert lost(g, view) == 0
    expected = oracle_lidar(g, view)
    assert (expected.median > 0).any() and (expected.median == 0).any()
    assert_same(render_lidar(g, view, pairs(g, view)), expected)


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_blending_carries_any_features(sensor: str) -> None:
    view = moving_view(sensor)
    g, features = facing(view, 40), torch.randn(40, 5, dtype=F64)
    out = blend(g, features, view.rays(), all_of(g, view), view.centre())
    assert_same(out, oracle_blend(g, features, oracle_rays(view), depth_order(g, view)))


@pytest.mark.parametrize("coefficients", [1, 4, 9, 16])
def test_colours_of_every_degree(coefficients: int) -> None:
    view, sky = make_camera_view(5, 4), make_sky()
    g = make_gaussians(in_frustum(view, 10, 3, 6), coefficients=coefficients)
    assert_same(render_camera(g, view, all_of(g, view), sky), oracle_camera(g, view, sky))


def test_a_lens_bends_the_rays() -> None:
    view, sky = make_camera_view(shutter="top_to_bottom", motion=CAMERA_MOTION, distortion=WIDE_LENS), make_sky()
    g = make_gaussians(in_frustum(view, 25, 3, 8))
    assert_same(render_camera(g, view, all_of(g, view), sky), oracle_camera(g, view, sky))


@pytest.mark.parametrize("kind", LENSES)
def test_other_lenses_and_their_gradients(kind: str) -> None:
    """Images as the oracle has them; gradients of means as central differences have them, both in double precision."""
    view, sky = lens_view(kind, 5, 4, shutter="left_to_right", motion=CAMERA_MOTION), make_sky()
    g = make_gaussians(seen_through(view, 8, 3, 6), scales=(0.5, 1.0))
    pairs = all_of(g, view)
    assert_same(render_camera(g, view, pairs, sky), oracle_camera(g, view, sky))

    def image(means: Tensor) -> Tensor:
        return render_camera(changed(g, means=means), view, pairs, sky).colour

    assert gradcheck(image, g.means.clone().requires_grad_(), atol=1e-7, rtol=1e-4, fast_mode=True)


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_single_precision_agrees_with_double(sensor: str) -> None:
    view = moving_view(sensor)
    g, sky = facing(view, 40), make_sky()
    pairs, g32, view32 = all_of(g, view), to_float32(g), view_float32(view)
    if sensor == "camera":
        result, expected = render_camera(g32, view32, pairs, sky.float()), render_camera(g, view, pairs, sky)
    else:
        result, expected = render_lidar(g32, view32, pairs), render_lidar(g, view, pairs)
    for a, b in zip(outputs(result), outputs(expected), strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a.double(), b, atol=2e-4, rtol=2e-4)  # positions of 10 m are good to 1e-6 m


def test_overlapping_gaussians_are_ordered_in_the_middle_of_the_view() -> None:
    """One moves away and one comes near: at the first row the order is another than in the middle, which counts."""
    view = make_camera_view(1, 9, shutter="top_to_bottom", motion=Motion(seconds=0.1))
    g = make_gaussians(tensor([0, 0, 5.0], [0, 0, 5.1]), scales=(1.0, 1.0), coefficients=1)
    g = changed(g, velocities=tensor([0, 0, -4.0], [0, 0, 4.0]) @ POSE[:3, :3].T)
    sky, swapped = make_sky(), torch.tensor([1, 0])
    for gaussians in (g, g.select(swapped)):
        assert_same(render_camera(gaussians, view, own(gaussians, view), sky), oracle_camera(gaussians, view, sky))


def test_equal_depths_are_ordered_by_index() -> None:
    view, sky = make_camera_view(3, 3), make_sky()
    g = make_gaussians(tensor([0, 0, 5.0]).expand(4, 3), scales=(0.5, 0.5))
    assert project(g, view).index.tolist() == [0, 1, 2, 3]
    assert_same(render_camera(g, view, own(g, view), sky), oracle_camera(g, view, sky))


# ---- gradients


def moving_view(sensor: str) -> CameraView | LidarView:
    """Few rays, rolling shutter."""
    if sensor == "camera":
        return make_camera_view(5, 4, 4.0, "top_to_bottom", CAMERA_MOTION)
    return make_lidar_view(make_lidar(4, 40, 0.2, -0.2), LIDAR_MOTION, sector=(-0.35, 0.35))


def facing(view: CameraView | LidarView, n: int, scales: tuple[float, float] = (0.2, 0.8)) -> WorldGaussians:
    local = in_frustum(view, n, 3, 8) if isinstance(view, CameraView) else around(n, 3, 8, (-0.4, 0.4))
    return make_gaussians(local, scales=scales, speed=2.0)


def smooth_scene(sensor: str) -> tuple[WorldGaussians, CameraView | LidarView]:
    """Seven wide Gaussians that every ray meets far from all thresholds, and one that none meets."""
    view = moving_view(sensor)
    local = in_frustum(view, 7, 4, 8) if isinstance(view, CameraView) else around(7, 4, 8, (-0.3, 0.3))
    aside = tensor([60, 0, 5.0]) if isinstance(view, CameraView) else tensor([5.0, 60, 0])
    g = make_gaussians(torch.cat([local, aside]), scales=(1.5, 3.0), opacities=(0.25, 0.5), speed=2.0, coefficients=4)
    return changed(g, sh=0.2 * g.sh), view


def oracle_of(g: WorldGaussians, view: CameraView | LidarView, sky: Tensor) -> tuple[tuple[Tensor, ...], float]:
    if isinstance(view, CameraView):
        image = oracle_camera(g, view, sky)
        return (image.colour, image.distance, image.opacity), image.margin
    r = oracle_lidar(g, view)
    return (r.distance, r.median, r.intensity, r.drop, r.opacity), r.margin


def render(g: WorldGaussians, view: CameraView | LidarView, pairs: PairList, sky: Tensor) -> tuple[Tensor, ...]:
    if isinstance(view, CameraView):
        return outputs(render_camera(g, view, pairs, sky))
    return outputs(render_lidar(g, view, pairs))


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_gradients_against_finite_differences(sensor: str) -> None:
    """Every entry of every input, poses included; the pair list stands still."""
    g, view = smooth_scene(sensor)
    sky = make_sky(3, 4)
    expected, margin = oracle_of(g, view, sky)
    assert margin > 1e-3  # steps of 1e-6 cross no threshold
    if sensor == "lidar":
        assert (expected[1] > 0).all()
    names = [n for n in TENSORS if n not in (("lidar",) if sensor == "camera" else ("sh", "frames"))]
    pairs = all_of(g, view)

    def scalars(start: Tensor, end: Tensor, sky: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        moved = replace(view, T_world_sensor_start=start, T_world_sensor_end=end)
        return projections(render(replace(g, **dict(zip(names, tensors, strict=True))), moved, pairs, sky))

    poses = [x.clone().requires_grad_() for x in (view.T_world_sensor_start, view.T_world_sensor_end)]
    inputs = (*poses, sky.requires_grad_(sensor == "camera"), *leaves(g, *names).values())
    assert gradcheck(scalars, inputs, atol=1e-6, rtol=1e-5)


def twist(T: Tensor, v: Tensor) -> Tensor:
    """T moved in its own frame by a rotation vector and a translation, v [6]."""
    step = torch.cat([torch.cat([rotation_vector(v[:3]), v[3:, None]], dim=1), torch.eye(4, dtype=F64)[3:]])
    return T @ step


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_gradients_equal_those_of_the_oracle(sensor: str) -> None:
    """In a scene with everything: faint, clamped, hidden and skipped Gaussians, moving ones and a moving sensor."""
    view, sky = moving_view(sensor), make_sky()
    g = facing(view, 40)
    g = changed(g, opacities=torch.cat([g.opacities[:-3], torch.ones(3, dtype=F64)]))

    def gradients(use_oracle: bool) -> tuple[Tensor | None, ...]:
        tensors, map_ = leaves(g, *TENSORS), sky.clone().requires_grad_()
        twists = [
            x.requires_grad_() for x in (tensor(0.01, 0.02, -0.01, 0.1, 0, 0), tensor(0.0, 0.03, 0.01, 0, 0.1, 0))
        ]
        ends = (view.T_world_sensor_start, view.T_world_sensor_end)
        start, end = (twist(T, v) for T, v in zip(ends, twists, strict=True))
        moved = replace(view, T_world_sensor_start=start, T_world_sensor_end=end)
        quats = {k: tensors[k] / tensors[k].norm(dim=-1, keepdim=True) for k in ("quats", "frames")}
        scene = replace(g, **(tensors | quats))
        result = oracle_of(scene, moved, map_)[0] if use_oracle else render(scene, moved, all_of(g, moved), map_)
        loss = torch.stack(projections(result)).sum()
        return torch.autograd.grad(loss, (*tensors.values(), map_, *twists), allow_unused=True)

    names = (*TENSORS, "sky", "pose at the start", "pose at the end")
    for name, result, expected in zip(names, gradients(False), gradients(True), strict=True):
        assert (result is None) == (expected is None), name
        if result is not None:
            assert result.abs().max() > 0, name
            torch.testing.assert_close(result, expected, atol=1e-8, rtol=1e-8, msg=lambda t, name=name: f"{name}: {t}")


# ---- the rules of blending


def on_axis(depths: Tensor, opacities: Tensor | float, scale: float = 0.3) -> tuple[WorldGaussians, CameraView]:
    """Balls on the axis of a camera of one pixel."""
    view = make_camera_view(1, 1, 10.0)
    view = replace(view, camera=replace(view.camera, cx=0.5, cy=0.5))
    local = torch.stack([torch.zeros_like(depths), torch.zeros_like(depths), depths], dim=-1)
    g = make_gaussians(local, coefficients=1)
    return changed(g, opacities=opacities, scales=scale), view


def test_a_saturated_response_has_no_gradient() -> None:
    g, view = on_axis(tensor(5.0), 0.999)
    tensors, sky = leaves(g, *TENSORS), make_sky()
    image = render_camera(replace(g, **tensors), view, all_of(g, view), sky)
    torch.testing.assert_close(image.opacity, tensor([0.99]), **EXACT)
    through = torch.autograd.grad(image.opacity.sum(), list(tensors.values()), allow_unused=True, retain_graph=True)
    assert all(x is None or not x.any() for x in through)
    (colour,) = torch.autograd.grad(image.colour.sum(), tensors["sh"])
    assert (colour > 0.2).all()  # 0.99 times the constant of the first band


def test_the_clamp_holds_just_above_its_edge_and_not_just_below() -> None:
    for opacity, holds in ((0.990001, True), (0.989999, False)):
        g, view = on_axis(tensor(5.0), opacity)
        opacities = g.opacities.clone().requires_grad_()
        image = render_camera(replace(g, opacities=opacities), view, all_of(g, view), make_sky())
        (gradient,) = torch.autograd.grad(image.opacity.sum(), opacities)
        torch.testing.assert_close(gradient, tensor(0.0 if holds else 1.0), **EXACT)


@pytest.mark.parametrize("reason", ["faint", "aside", "behind", "nearer than near"])
def test_a_skipped_gaussian_leaves_no_trace(reason: str) -> None:
    """Exact zeros in values and gradients, while the other Gaussian goes on as if alone."""
    g, view = on_axis(tensor(5.0, 6.0), 0.6)
    if reason == "faint":
        g = changed(g, opacities=tensor(0.999 / 255, 0.6))
    else:
        local = {"aside": [1.2, 0, 5.0], "behind": [0, 0, -5.0], "nearer than near": [0, 0, 0.15]}[reason]
        g = changed(g, means=torch.stack([POSE[:3, :3] @ tensor(*local) + POSE[:3, 3], g.means[1]]))
    tensors, sky = leaves(g, *TENSORS), make_sky()
    image = render_camera(replace(g, **tensors), view, all_of(g, view), sky)
    gradients = torch.autograd.grad(
        torch.stack(projections(outputs(image))).sum(), list(tensors.values()), allow_unused=True
    )
    assert all(x is None or not x[0].any() for x in gradients)
    assert any(x is not None and bool(x[1].any()) for x in gradients)
    alone = g.select(torch.tensor([1]))
    assert_same(image, render_camera(alone, view, all_of(alone, view), sky), atol=0.0, rtol=0.0)


def test_a_gaussian_just_above_the_threshold_is_blended() -> None:
    g, view = on_axis(tensor(5.0), 1.001 / 255)
    torch.testing.assert_close(render_camera(g, view, own(g, view), make_sky()).opacity, tensor([1.001 / 255]), **EXACT)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("pairs", [all_of, own])
def test_hundreds_of_layers(pairs: Callable[..., PairList], dtype: torch.dtype) -> None:
    """0.9^87 is above 1e-4 and 0.9^88 is below: 87 of 300 layers are blended, stored in any order."""
    depths = 3 + 0.01 * torch.randperm(300).to(F64)
    g, view = on_axis(depths, 0.1)
    features, lists = depths[:, None], pairs(g, view)
    if dtype is torch.float32:
        g, view, features = to_float32(g), view_float32(view), features.float()
    out = blend(g, features, view.rays(), lists, view.centre())
    tolerance = {"atol": 1e-6, "rtol": 1e-4} if dtype is torch.float32 else EXACT
    torch.testing.assert_close(out.transmittance.double(), tensor(0.9**87), **tolerance)
    assert out.transmittance >= T_MIN
    weights = 0.1 * 0.9 ** torch.arange(87, dtype=F64)
    expected = (weights * (3 + 0.01 * torch.arange(87, dtype=F64))).sum()[None]
    torch.testing.assert_close(out.features[:, 0].double(), expected, **tolerance)
    torch.testing.assert_close(out.distance.double(), expected, **tolerance)
    torch.testing.assert_close(out.median.double(), tensor(3.06), **tolerance)  # 0.9^6 > 0.5 > 0.9^7


@pytest.mark.parametrize("layers", [5, 31, 32, 33, 63, 64, 200])
def test_the_gaussian_that_would_cross_ends_the_ray(layers: int) -> None:
    """T is 2e-4 behind the first layers; the next one would take it to 2e-5, those behind it only to 1.9e-4 or so."""
    step = 1 - 2e-4 ** (1 / layers)
    opacities = torch.cat([torch.full((layers,), step, dtype=F64), tensor(0.9), tensor(0.05).expand(70)])
    g, view = on_axis(3 + 0.01 * torch.arange(len(opacities)).to(F64), opacities)
    features, opacities = torch.eye(len(opacities), dtype=F64).requires_grad_(), opacities.clone().requires_grad_()
    out = blend(replace(g, opacities=opacities), features, view.rays(), all_of(g, view), view.centre())
    torch.testing.assert_close(out.transmittance, tensor(2e-4), **EXACT)
    torch.testing.assert_close(out.features.sum(1), 1 - out.transmittance, **EXACT)
    assert (out.features[0, :layers] > 0).all() and not out.features[0, layers:].any()
    (gradient,) = torch.autograd.grad((out.features.sum() + out.distance + out.transmittance).sum(), opacities)
    assert not gradient[layers:].any()


def test_the_median_is_where_the_transmittance_crosses_one_half() -> None:
    for opacities, expected in (
        ((0.4, 0.4, 0.4), 4.0),
        ((0.6, 0.6, 0.6), 3.0),
        ((0.2, 0.2, 0.2), 0.0),
        ((0.5, 0.1, 0.1), 3.0),
    ):
        g, view = on_axis(tensor(3.0, 4.0, 5.0), tensor(*opacities))
        out = blend(g, g.lidar, view.rays(), all_of(g, view), view.centre())
        torch.testing.assert_close(out.median, tensor(expected), **EXACT)


def test_what_passes_through_never_returns() -> None:
    view = make_lidar_view(make_lidar(4, 32))
    g = changed(make_gaussians(around(60, 3, 9), scales=(0.2, 0.7)), lidar=tensor([0.3, 1.0]).expand(60, 2))
    returns = render_lidar(g, view, own(g, view))
    torch.testing.assert_close(returns.drop, torch.ones_like(returns.drop), **EXACT)
    torch.testing.assert_close(returns.intensity, 0.3 * returns.opacity, **EXACT)


# ---- corner cases


@pytest.mark.parametrize("size", [(1, 1), (33, 31), (4, 4), (3, 9)])
def test_an_empty_scene_shows_the_sky(size: tuple[int, int]) -> None:
    view, g, sky = make_camera_view(*size), no_gaussians(), make_sky().requires_grad_()
    image = render_camera(g, view, own(g, view), sky)
    width, height = size
    assert torch.equal(image.colour, sample_sky(sky, view.rays().directions).view(height, width, 3))
    assert not image.opacity.any() and not image.distance.any()
    (gradient,) = torch.autograd.grad(image.colour.sum(), sky)
    assert gradient.any() and gradient.isfinite().all()


def test_a_lidar_in_an_empty_scene_sees_nothing() -> None:
    view, g = make_lidar_view(make_lidar(4, 32), LIDAR_MOTION), no_gaussians()
    returns = render_lidar(g, view, own(g, view))
    assert (returns.drop == 1).all()
    assert not any(x.any() for x in (returns.distance, returns.median, returns.intensity, returns.opacity))


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_gaussians_that_no_ray_meets_get_zero_gradients(sensor: str) -> None:
    view, sky = moving_view(sensor), make_sky()
    g = changed(facing(view, 5), means=1000.0)
    tensors = leaves(g, "means", "opacities")
    loss = torch.stack(projections(render(replace(g, **tensors), view, own(g, view), sky.requires_grad_()))).sum()
    if loss.requires_grad:
        gradients = torch.autograd.grad(loss, list(tensors.values()), allow_unused=True)
        assert all(x is None or not x.any() for x in gradients)


@pytest.mark.parametrize("size", [(1, 1), (33, 31)])
@pytest.mark.parametrize("n", [1, 12])
def test_images_of_odd_sizes(size: tuple[int, int], n: int) -> None:
    view, sky = make_camera_view(*size, 0.9 * max(size), "top_to_bottom", CAMERA_MOTION), make_sky()
    g = make_gaussians(in_frustum(view, n, 6, 9), scales=(0.1, 0.3), speed=1.0)
    assert lost(g, view) == 0
    assert_same(render_camera(g, view, own(g, view), sky), oracle_camera(g, view, sky))


def test_gaussians_across_the_edge_of_the_image() -> None:
    view, sky = make_camera_view(11, 9, 12.0), make_sky()
    corners = tensor([0.0, 0], [11, 0], [0, 9], [11, 9], [5, 0], [5, 9], [0, 4], [11, 4]).repeat(2, 1)
    corners = corners + uniform(-0.7, 0.7, 16, 2)  # pixels, on either side of the edge
    c = view.camera
    xy = (corners - tensor(c.cx, c.cy)) / tensor(c.fx, c.fy)
    local = uniform(5, 7, 16, 1) * torch.cat([xy, torch.ones(16, 1, dtype=F64)], dim=1)
    g = make_gaussians(local, scales=(0.2, 0.5))
    assert lost(g, view) == 0
    image = render_camera(g, view, own(g, view), sky)
    assert (image.opacity > 0).sum() > 20
    assert_same(image, oracle_camera(g, view, sky))


def test_gaussians_behind_the_camera() -> None:
    view, sky = make_camera_view(), make_sky()
    local = in_frustum(view, 20, 3, 8) * tensor(1, 1, -1)
    g, nothing = make_gaussians(local, scales=(0.2, 2.0), coefficients=4), no_gaussians()
    empty = render_camera(nothing, view, own(nothing, view), sky)
    assert_same(render_camera(g, view, own(g, view), sky), empty)
    assert_same(render_camera(g, view, all_of(g, view), sky), empty)


@pytest.mark.parametrize("motion", [STILL, Motion((1.5, 0.2, 0.0), (0.0, 0.0, 0.05))], ids=["still", "moving"])
def test_gaussians_across_the_seam_of_the_azimuth(motion: Motion) -> None:
    """A sweep begins and ends behind the lidar. It may see a moving Gaussian there twice, from different poses."""
    view = make_lidar_view(make_lidar(4, 48), motion)
    behind = math.pi + uniform(-0.2, 0.2, 40)
    local = uniform(4, 9, 40, 1) * torch.stack([behind.cos(), behind.sin(), uniform(-0.2, 0.1, 40)], dim=-1)
    g = make_gaussians(local, scales=(0.2, 0.5), speed=0.0 if motion is STILL else 5.0)
    assert lost(g, view) == 0
    returns = render_lidar(g, view, own(g, view))
    sides = [(returns.opacity > 0) & (side * view.directions[:, 1] > 0) for side in (-1, 1)]
    assert all(side.sum() > 5 for side in sides)
    assert_same(returns, oracle_lidar(g, view))


@pytest.mark.parametrize("pairs", ["all", "own"])
@pytest.mark.parametrize("sensor", ["camera", "lidar"])
@pytest.mark.parametrize(
    "scales",
    [(1e-12,) * 3, (1e-6,) * 3, (1e-3,) * 3, (1e4,) * 3, (1e8,) * 3, (1, 1, 1e-6), (1e-5, 1e-5, 10), (1e-4, 0.1, 1e3)],
    ids=str,
)
def test_extreme_scales_stay_finite_in_single_precision(sensor: str, scales: tuple[float, ...], pairs: str) -> None:
    view = moving_view(sensor)
    g = changed(facing(view, 12), scales=tensor(*scales).expand(12, 3))
    order = all_of(g, view)
    g, view = to_float32(g), view_float32(view)
    tensors, sky = leaves(g, *TENSORS), make_sky().float().requires_grad_()
    lists = own(g, view) if pairs == "own" else order
    result = render(replace(g, **tensors), view, lists, sky)
    assert_finite(*result)
    loss = torch.stack(projections(result)).sum()
    assert_finite(*torch.autograd.grad(loss, [*tensors.values(), sky], allow_unused=True))


# ---- surfaces


def wall(depth: float, velocity: Tensor, forward: Tensor, thickness: float = 1e-4) -> WorldGaussians:
    """A plane of flat disks, `depth` metres from the sensor at POSE along a local axis, that faces it."""
    across = torch.linalg.svd(forward[None]).Vh[1:]
    u, v = torch.meshgrid(*[torch.arange(-8, 8.1, 0.5, dtype=F64)] * 2, indexing="ij")
    local = depth * forward + torch.stack([u.flatten(), v.flatten()], dim=-1) @ across
    axes = POSE[:3, :3] @ torch.stack([*across, torch.linalg.cross(across[0], across[1])], dim=1)
    n = len(local)
    g = make_gaussians(local, opacities=(0.5, 0.9), coefficients=1)
    return changed(
        g,
        quats=matrix_to_quat(axes).expand(n, 4),
        scales=tensor(0.5, 0.5, thickness).expand(n, 3),
        velocities=velocity.expand(n, 3),
    )


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
@pytest.mark.parametrize("moves", ["nothing", "sensor", "surface", "both"])
def test_a_wall_of_flat_disks_gives_its_exact_range(sensor: str, moves: str) -> None:
    """The place where a ray meets the plane is a matter of geometry: neither the blending nor the motion may shift it."""
    forward = tensor(0.0, 0, 1) if sensor == "camera" else tensor(1.0, 0, 0)
    travel = (0.1, -0.05, 0.4) if sensor == "camera" else (1.5, 0.3, -0.1)
    motion = Motion(travel, (0.02, 0.03, -0.04)) if moves in ("sensor", "both") else Motion()
    velocity = POSE[:3, :3] @ tensor(8.0, -3, 12) if moves in ("surface", "both") else torch.zeros(3, dtype=F64)
    view = (
        make_camera_view(9, 7, 9.0, "top_to_bottom", motion)
        if sensor == "camera"
        else make_lidar_view(make_lidar(6, 60, 0.2, -0.2), motion, sector=(-0.4, 0.4))
    )
    g, rays = wall(10.0, velocity, forward), oracle_rays(view)
    out = blend(g, g.lidar, view.rays(), own(g, view), view.centre())
    normal = POSE[:3, :3] @ forward
    offset = POSE[:3, 3] + 10 * normal + rays.delays[:, None] * velocity - rays.origins
    expected = (offset @ normal) / (rays.directions @ normal)
    opacity = 1 - out.transmittance
    assert (opacity > 0.5).all()
    if moves != "nothing":
        assert expected.max() - expected.min() > 0.5
    torch.testing.assert_close(out.median, expected, atol=1e-6, rtol=0)  # the disks are 1e-4 m thick
    torch.testing.assert_close(out.distance / opacity, expected, atol=1e-6, rtol=0)


def test_one_flat_disk_gives_its_exact_range() -> None:
    g, view = on_axis(tensor(7.0), 0.95)
    g = changed(g, scales=tensor([0.5, 0.5, 1e-5]), quats=matrix_to_quat(POSE[:3, :3])[None])
    out = blend(g, g.lidar, view.rays(), own(g, view), view.centre())
    torch.testing.assert_close(out.median, tensor(7.0), **EXACT)
    torch.testing.assert_close(out.distance / (1 - out.transmittance), tensor(7.0), **EXACT)


# ---- chunks


def value_and_gradients(sensor: str) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    torch.manual_seed(3)
    if sensor == "camera":
        view: CameraView | LidarView = make_camera_view(14, 11, 11.0, "top_to_bottom", CAMERA_MOTION)
    else:
        view = make_lidar_view(make_lidar(8, 40), LIDAR_MOTION)
    local = in_frustum(view, 80, 3, 9) if isinstance(view, CameraView) else around(150, 3, 9)
    g, view, sky = to_float32(make_gaussians(local, speed=1.0)), view_float32(view), make_sky().float()
    names = [n for n in TENSORS if n not in (("lidar",) if sensor == "camera" else ("sh", "frames"))]
    tensors = leaves(g, *names)
    result = render(replace(g, **tensors), view, own(g, view), sky)
    return result, torch.autograd.grad(torch.stack(projections(result)).sum(), list(tensors.values()))


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
@pytest.mark.parametrize("n_tiles", [1, 7])
def test_the_size_of_chunks_does_not_matter(sensor: str, n_tiles: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are equal up to rounding: matrix products of another batch size may round another way."""
    expected, expected_gradients = value_and_gradients(sensor)
    monkeypatch.setattr(reference, "CHUNK_TILES", n_tiles)
    result, gradients = value_and_gradients(sensor)
    for a, b in zip(result, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    for a, b in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4 * float(b.abs().max()), rtol=1e-4)


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_chunks_may_be_recomputed_in_the_backward_pass(sensor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bitwise: the same operations run, only later."""
    monkeypatch.setattr(reference, "CHUNK_TILES", 5)
    expected, expected_gradients = value_and_gradients(sensor)
    monkeypatch.setattr(reference, "SAVED_PAIRS", 0)
    calls: list[int] = []
    original = reference.checkpoint
    monkeypatch.setattr(reference, "checkpoint", lambda *a, **kw: calls.append(1) or original(*a, **kw))
    result, gradients = value_and_gradients(sensor)
    assert len(calls) > 2
    assert all(torch.equal(a, b) for a, b in zip(result, expected, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(gradients, expected_gradients, strict=True))


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_two_runs_are_bitwise_equal(sensor: str) -> None:
    first, second = value_and_gradients(sensor), value_and_gradients(sensor)
    assert all(torch.equal(a, b) for a, b in zip(first[0] + first[1], second[0] + second[1], strict=True))


def test_rays_outside_all_tiles_see_through() -> None:
    g, view = on_axis(tensor(5.0), 0.6)
    none = PairList(
        torch.zeros(0, 4, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    )
    out = blend(g, oracle_colour(g, view), view.rays(), none, view.centre())
    assert out.transmittance.tolist() == [1.0] and out.features.tolist() == [[0.0] * 3]
