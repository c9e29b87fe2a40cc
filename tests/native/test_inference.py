# SPDX-License-Identifier: Apache-2.0
"""Several views in one launch (nurec_lite/native/inference.py, kernels/raster_warps/views), which the CUDA drivers alone have, beside the
forward pass of a training: the same lists and the same formulas, so nearly the same bits."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from look_scenes import SENSORS, View, lens_views, ordered, rosette_views, scene_around, scene_for, views_of
from parity import DEVICES, MIDDLE, cast_view
from splat_scenes import (
    F64,
    LIDAR_MOTION,
    around,
    make_gaussians,
    make_lidar,
    rays_view,
    spherical,
    uniform,
    view_float32,
)
from tiny_capture import tiny_capture, tiny_config, tiny_state
from warp_tile_scenes import PLAN, driven

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import UserError
from nurec_lite.evaluation.measure import evaluate, frames_of
from nurec_lite.native import inference, warps
from nurec_lite.native.bind import native_stages
from nurec_lite.native.inference import BatchedRenderer
from nurec_lite.native.operators.render_views import SceneArrays
from nurec_lite.opt.post import fused_interp
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.views import CameraView, LidarView, camera_view, lidar_view
from nurec_lite.training.batches import render_views
from nurec_lite.training.checkpoint import scene_to
from nurec_lite.training.stages import Stages

FIELDS = {CameraView: ("colour", "distance", "opacity"), LidarView: ("distance", "intensity", "drop", "opacity")}


@pytest.fixture(autouse=True)
def all_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the background is moved with the actors, as it is here; there it is rounded once more."""
    monkeypatch.setattr(fused_interp, "SPARE_SHARE", 1 << 40)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return driven(request.param)


@pytest.fixture(params=["parts", "whole lists"])
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of blending, for small views, too."""
    monkeypatch.setattr(inference, "SEGMENT_ENTRIES", 8)
    monkeypatch.setattr(inference, "MAX_SPLIT_TILES", 1 << 30 if request.param == "parts" else -1)
    name: str = request.param
    return name


def one_by_one(device: torch.device) -> Stages:
    """Stages of a training's rendering, with the same activated numbers."""
    stages = replace(base_stages("native", device).compiled(PLAN, native_stages), device="cuda")
    options: dict[str, dict[str, Any]] = {"fused_interp": {}, "collect_once": {}, "fused_activate": {}}
    return build_stages(options, stages).replaced(render_views=render_views)


def assert_same(found: Any, expected: Any, view: View) -> None:
    """Colours by harmonics that stand in another loop, products and sums of parts in another order: a few units in the last place. The
    median is that of one Gaussian. A GPU's compiler may fuse the same products in other ways, so that a response near a threshold falls
    the other way: of a few rays."""
    names = (*FIELDS[type(view)], *(("median",) if isinstance(view, LidarView) else ()))
    for name in names:
        one, two = getattr(found, name), getattr(expected, name)
        assert one.shape == two.shape, name
        off = (one - two).abs()
        limit = 1e-5 if name in ("distance", "median") else 2e-6
        if one.is_cuda:
            assert float((off > 100 * limit).sum()) <= 0.01 * off.numel(), name
        elif one.numel():
            assert float(off.max()) <= limit, name


def compare(scene: Scene, views: list[View], device: torch.device, seen: bool = True) -> None:
    stages, own = one_by_one(device), BatchedRenderer()
    with torch.no_grad():
        expected = stages.render.render_views(stages, scene, views)
    for _ in range(2):  # the second launch has a capacity
        for one, two, view in zip(own(stages, scene, views), expected, views, strict=True):
            assert_same(one, two, view)
            assert bool((two.opacity > 0.3).any()) == seen


# ---- renders


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("sensor", SENSORS)
def test_views_see_what_a_training_renders(sensor: str, n: int, cut: str, device: torch.device) -> None:
    views = views_of(sensor, n, device)
    compare(scene_for(views[0], 200, device), views, device)


@pytest.mark.parametrize("shutter", ["global", "left_to_right"])
@pytest.mark.parametrize("kind", ["fisheye", "ftheta", "prism"])
def test_views_through_a_lens(kind: str, shutter: str, cut: str, device: torch.device) -> None:
    compare(scene_around(200, device), lens_views((kind,) * 3, device, shutter, same=True), device)


def test_sweeps_of_a_lidar_without_rows(cut: str, device: torch.device) -> None:
    views = rosette_views(2, device)
    compare(scene_for(views[0], 150, device), views, device)


@pytest.mark.parametrize("size", [(1, 1), (8, 4), (33, 5)], ids=str)
def test_images_of_odd_sizes(size: tuple[int, int], cut: str, device: torch.device) -> None:
    views = views_of("moving camera", 2, device, width=size[0], height=size[1])
    compare(scene_for(views[0], 60, device, scales=(0.5, 2.0)), views, device)


@pytest.mark.parametrize("rays", [0, 1, 31, 33])
def test_few_rays(rays: int, cut: str, device: torch.device) -> None:
    """Rays of a sweep between two others, and of all three."""
    lidar, views = make_lidar(8, 64), []
    for n in (40, rays, 0 if rays == 0 else 32):
        d = spherical(uniform(-0.6, 0.6, n), uniform(-0.3, 0.1, n))
        made = view_float32(rays_view(lidar, d, torch.rand(n, dtype=F64), LIDAR_MOTION))
        views.append(cast_view(made, torch.float32, device))
    scene = ordered(make_gaussians(around(60, 4, 9, (-0.7, 0.7)), scales=(0.3, 0.9)), device)
    stages = one_by_one(device)
    with torch.no_grad():
        expected = stages.render.render_views(stages, scene, views)
    for one, two, view in zip(BatchedRenderer()(stages, scene, views), expected, views, strict=True):
        assert len(one.median) == len(view.directions)  # type: ignore[union-attr]
        assert_same(one, two, view)
    assert bool(expected[0].opacity.any())


@pytest.mark.parametrize("sensor", SENSORS)
def test_no_gaussians(sensor: str, cut: str, device: torch.device) -> None:
    views = views_of(sensor, 2, device)
    compare(scene_for(views[0], 0, device, actors=0.0), views, device, seen=False)


@pytest.mark.parametrize("actors", [0.0, 1.0])
@pytest.mark.parametrize("sensor", SENSORS)
def test_nothing_moves_or_everything(sensor: str, actors: float, device: torch.device) -> None:
    views = views_of(sensor, 2, device)
    compare(scene_for(views[0], 100, device, actors=actors), views, device)


@pytest.mark.parametrize("coefficients", [1, 4, 16])
def test_harmonics_of_every_degree(coefficients: int, device: torch.device) -> None:
    views = views_of("still camera", 2, device)
    compare(scene_for(views[0], 100, device, coefficients=coefficients), views, device)


@pytest.mark.parametrize("sensor", SENSORS)
def test_saturated_alpha(sensor: str, cut: str, device: torch.device) -> None:
    """Opaque walls end rays early."""
    views = views_of(sensor, 3, device)
    compare(scene_for(views[0], 200, device, opacities=0.9999), views, device)


def test_gaussians_across_the_seam(cut: str, device: torch.device) -> None:
    views = views_of("lidar", 2, device)
    n = 80
    where = spherical(torch.pi + uniform(-0.4, 0.4, n), uniform(-0.3, 0.1, n))
    scene = ordered(make_gaussians(uniform(3, 8, n, 1) * where, scales=(0.1, 0.6)), device)
    compare(scene, views, device)


def test_near_gaussians_that_fill_the_view(cut: str, device: torch.device) -> None:
    for sensor in ("moving camera", "lidar"):
        views = views_of(sensor, 2, device)
        g = make_gaussians(0.3 * torch.randn(20, 3, dtype=F64), scales=(0.05, 0.4))
        compare(ordered(g, device), views, device)


@pytest.mark.parametrize("calibrate", [False, True])
def test_a_capture_with_all_its_sensors(calibrate: bool, device: torch.device) -> None:
    """Cameras and sweeps in turns, moving actors, opacities of the lidar's own, sensors that were corrected."""
    config = tiny_config()
    config.model.calibrate = calibrate
    scene, capture = tiny_state(config).scene, tiny_capture()
    if calibrate:
        assert scene.calibration is not None
        for t in scene.calibration.parameters().values():
            t.data.copy_(0.01 * torch.randn(t.shape, generator=torch.Generator().manual_seed(1)))
    scene = scene_to(scene, device)
    images = [camera_view(capture, f, device) for f in capture.images[:6]]
    sweeps = [lidar_view(capture, f, f.load(), device) for f in capture.sweeps[:3]]
    compare(scene, [*images[:3], *sweeps, *images[3:]], device)


def test_an_evaluation_is_the_same(device: torch.device) -> None:
    """Frames of two cameras in turns, several in a launch, and their sweeps."""
    capture, scene, stages = tiny_capture(), scene_to(tiny_state().scene, device), one_by_one(device)
    frames = frames_of(capture, "all")
    together = replace(stages.replaced(render_views=BatchedRenderer()), plan=replace(PLAN, max_views=5))
    found, expected = (evaluate(s, scene, capture, frames) for s in (together, stages))
    assert [(f.sensor, f.index) for f in found.frames] == [(f.sensor, f.index) for f in expected.frames]
    for one, two in zip(found.frames, expected.frames, strict=True):
        assert one.psnr == pytest.approx(two.psnr, abs=1e-2) if two.psnr is not None else one.psnr is None
        assert one.lidar_median_abs_m == pytest.approx(two.lidar_median_abs_m, abs=1e-3, nan_ok=True)


def test_the_reference_sees_the_same(device: torch.device) -> None:
    """Beside the plain torch stages, whose bounds list more at the rims: nearly all rays are the same."""
    views = views_of("lidar", 2, device)
    scene = scene_for(views[0], 100, device)
    reference = base_stages("reference", device)
    with torch.no_grad():
        expected = render_views(reference, scene, views)
    for one, two in zip(BatchedRenderer()(reference, scene, views), expected, strict=True):
        off = (one.distance - two.distance).abs()
        assert float((off > 1e-3).float().mean()) < 0.02 and float(off.median()) < 1e-5


def gathered(own: BatchedRenderer, scene: Scene, views: list[View]) -> SceneArrays:
    own._remember(scene)
    return own._gathered(scene, views)


def test_the_scenes_are_those_of_the_views(device: torch.device) -> None:
    """Actors are there in the first two views and gone in the third."""
    views = views_of("lidar", 3, device)
    scene, own = scene_for(views[0], 50, device), BatchedRenderer()
    there = gathered(own, scene, views).moving_opacities.any(1).tolist()
    assert there == [True, True, False] and abs(views[0].time_mid - MIDDLE) < 0.1


def test_a_store_that_a_relocation_writes_into(device: torch.device) -> None:
    """The same tensor of nodes holds others then."""
    views = views_of("lidar", 1, device)
    scene, own = scene_for(views[0], 50, device), BatchedRenderer()
    before = gathered(own, scene, views)
    still = len(before.still_means)
    scene.gaussians.node[still - 3 : still] = 1
    after = gathered(own, scene, views)
    assert len(after.still_means) == still - 3 and len(after.means[0]) == len(before.means[0]) + 3


# ---- capacity, memory


def test_a_capacity_that_is_too_small_grows(device: torch.device) -> None:
    views = views_of("lidar", 2, device)
    scene, stages, own = scene_for(views[0], 100, device), one_by_one(device), BatchedRenderer()
    expected = own(stages, scene, views)
    ((key, enough),) = own._capacities.items()
    for small in ((0, 0), (1, enough[1]), (enough[0], 1), (7, 9)):
        own._capacities[key] = small
        for one, two in zip(own(stages, scene, views), expected, strict=True):
            assert one.distance.equal(two.distance) and one.median.equal(two.median)
        assert all(a >= b for a, b in zip(own._capacities[key], small, strict=True)) and own._capacities[key] != small


def short_of_memory(own: BatchedRenderer, most: int) -> list[int]:
    """Lets no more than these views fit into memory from now on; returns the numbers that are tried."""
    inner: Callable[..., Any] = own._rendered
    tried: list[int] = []

    def rendered(scene: Scene, views: list[View]) -> Any:
        tried.append(len(views))
        if len(views) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return inner(scene, views)

    own._rendered = rendered  # type: ignore[method-assign]
    return tried


def test_views_that_do_not_fit_are_rendered_by_fewer(device: torch.device) -> None:
    views = views_of("still camera", 5, device)
    scene, stages, own = scene_for(views[0], 50, device), one_by_one(device), BatchedRenderer()
    expected = own(stages, scene, views)
    tried = short_of_memory(own, 2)
    for one, two in zip(own(stages, scene, views), expected, strict=True):
        assert one.colour.equal(two.colour)  # type: ignore[union-attr]
    assert tried == [5, 2, 2, 1]
    own(stages, scene, views[:3])
    assert tried[4:] == [2, 1]


@pytest.mark.parametrize("sensor", ["still camera", "lidar"])
def test_views_of_more_lists_than_a_launch_takes(
    sensor: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = views_of(sensor, 5, device)
    scene, stages, own = scene_for(views[0], 50, device), one_by_one(device), BatchedRenderer()
    expected, tried = own(stages, scene, views), short_of_memory(own, 5)
    monkeypatch.setattr(inference, "MAX_LISTS", 2 * max(map(warps.lists_of, views)) + 1)
    for one, two in zip(own(stages, scene, views), expected, strict=True):
        assert one.distance.equal(two.distance)
    assert tried == [2, 2, 1]


def test_a_view_that_does_not_fit_is_a_sentence(device: torch.device) -> None:
    views = views_of("still camera", 3, device)
    scene, own = scene_for(views[0], 50, device), BatchedRenderer()
    short_of_memory(own, 0)
    with pytest.raises(UserError, match="not enough memory on the GPU to render c from 50 Gaussians; use device=cpu"):
        own(one_by_one(device), scene, views)
