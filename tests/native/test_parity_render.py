# SPDX-License-Identifier: Apache-2.0
"""Rendering by compiled kernels against the plain torch reference in double precision, values and all gradients.

Class `exact`: the same formulas in float32. Their possible error follows from the scene (`parity.rounding`): a few units in the last
place of the distance, in standard deviations of the Gaussian that is passed, hence some 1e-5 for Gaussians of 0.1 m and some 1e-3 for
those of 1 mm at 10 m. Values must stay within it on every ray, gradients within 1e-4 and the root mean square of it; sums over many
Gaussians or rays with either sign (tracks, poses) within five times that. Measured over eight seeds: values within 0.75 of their limits,
gradients within 0.25, those of quaternions and sums within 0.7.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
import torch
from lenses import LENSES, lens_view, seen_through
from parity import (
    POSES,
    Case,
    aim,
    aimed,
    background_first,
    cast,
    compare,
    n_rays,
    random_weights,
    run,
    scene_of,
    targets,
)
from splat_scenes import (
    CAMERA_MOTION,
    F64,
    LIDAR_MOTION,
    POSE,
    STILL,
    Motion,
    around,
    changed,
    in_frustum,
    make_camera_view,
    make_gaussians,
    make_lidar,
    make_lidar_view,
    make_pose,
    make_rosette_view,
    make_sky,
    no_gaussians,
    rays_view,
    spherical,
    tensor,
    uniform,
)
from tiny_capture import tiny_capture, tiny_state
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.backends import base_stages
from nurec_lite.geometry.camera import SHUTTERS
from nurec_lite.native import ops
from nurec_lite.native import stages as native
from nurec_lite.native.operators.shared import has_per_ray_origins
from nurec_lite.native.plan import RenderPlan
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView, camera_view, lidar_view
from nurec_lite.training.step import step

WIDE_LENS = (-0.1, 0.01, 0.001, -0.0005, 0.0)
SUMS = ("track_translations", "track_quaternions", *POSES)
CPU = torch.device("cpu")


@pytest.fixture(params=targets())
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    ops.load()
    return aim(request.param, monkeypatch)


def assert_parity(case: Case, device: torch.device, slope: float = 2e-4, learn_poses: bool = True) -> None:
    """`slope` limits the effect of rounding on gradients in this scene, so that no limit is loose without saying so."""
    errors = compare(case, device, learn_poses)
    clear = errors.rounding.clear
    assert not len(clear) or clear.double().mean() > 0.97, "too many rays decide within rounding"
    assert errors.rounding.slope < slope
    for name, share in errors.values.items():
        assert share <= 1, f"{name}: {share} of the limit, {errors.largest[name]} in all"
    for name, off in errors.gradients.items():
        limit = (5 if name in SUMS else 1) * (1e-4 + errors.rounding.slope)
        assert off <= limit, f"gradient of {name}: {off}, but at most {limit}"


def camera_case(view: CameraView, n: int = 300, actors: float = 0.4, **options: Any) -> Case:
    g = make_gaussians(in_frustum(view, n, 3, 9, 0.2), **({"scales": (0.1, 0.5)} | options))
    return Case.of(scene_of(g, actors), view)


def lidar_case(view: LidarView, n: int = 300, actors: float = 0.4, **options: Any) -> Case:
    return Case.of(scene_of(make_gaussians(around(n, 4, 9), **({"scales": (0.1, 0.6)} | options)), actors), view)


def wide_view(sensor: str) -> CameraView | LidarView:
    if sensor == "camera":
        return make_camera_view(33, 31, 60.0, "top_to_bottom", CAMERA_MOTION)
    return make_lidar_view(make_lidar(8, 64), LIDAR_MOTION)


def gradients_of(case: Case, device: torch.device) -> dict[str, Tensor]:
    return run(native, case, case.pairs(device)[1], random_weights(case.view, 6.0), torch.float32, device).gradients


# ---- cameras


@pytest.mark.parametrize("motion", [STILL, CAMERA_MOTION], ids=["still", "moving"])
@pytest.mark.parametrize("shutter", SHUTTERS)
def test_cameras(shutter: str, motion: Motion, device: torch.device) -> None:
    assert_parity(camera_case(make_camera_view(33, 31, 30.0, shutter, motion)), device)


@pytest.mark.parametrize("shutter", ["global", "left_to_right"])
def test_cameras_whose_poses_are_not_learned(shutter: str, device: torch.device) -> None:
    case = camera_case(make_camera_view(33, 31, 30.0, shutter, CAMERA_MOTION))
    assert has_per_ray_origins(case.view) == (shutter != "global")
    assert_parity(case, device, learn_poses=False)


@pytest.mark.parametrize("coefficients", [1, 4, 9, 16])
def test_colours_of_every_degree(coefficients: int, device: torch.device) -> None:
    assert_parity(camera_case(make_camera_view(17, 13, 15.0), 100, coefficients=coefficients), device)


def test_a_lens_with_distortion(device: torch.device) -> None:
    view = make_camera_view(33, 31, 20.0, "bottom_to_top", CAMERA_MOTION, distortion=WIDE_LENS)
    assert_parity(camera_case(view), device)


@pytest.mark.parametrize("kind", LENSES)
def test_other_lenses(kind: str, device: torch.device) -> None:
    view, sky = lens_view(kind, shutter="right_to_left", motion=CAMERA_MOTION), make_sky()
    sky[:, [0, -1]] = sky[:, [0, -1]].mean(
        -1, keepdim=True
    )  # at its poles, which 200 degrees see, texels are no wider than rounding
    g = make_gaussians(seen_through(view, 300, 3, 9), scales=(0.1, 0.5))
    assert_parity(Case.of(scene_of(g, 0.4, sky=sky), view), device)


@pytest.mark.parametrize("n", [0, 1, 40])
@pytest.mark.parametrize("size", [(1, 1), (33, 31), (4, 4), (17, 3), (16, 16)], ids=str)
def test_images_of_odd_sizes(size: tuple[int, int], n: int, device: torch.device) -> None:
    view = make_camera_view(*size, 0.9 * max(size), "top_to_bottom", CAMERA_MOTION)
    assert_parity(camera_case(view, n, scales=(0.3, 1.0)), device)


def test_gaussians_across_the_edges_of_the_image(device: torch.device) -> None:
    view = make_camera_view(19, 13, 15.0)
    u = torch.cat([uniform(-2, 2, 60), uniform(17, 21, 60), uniform(0, 19, 120)])
    v = torch.cat([uniform(0, 13, 120), uniform(-2, 2, 60), uniform(11, 15, 60)])
    c, z = view.camera, uniform(4, 8, 240)
    local = torch.stack([(u - c.cx) / c.fx * z, (v - c.cy) / c.fy * z, z], dim=-1)
    assert_parity(Case.of(scene_of(make_gaussians(local, scales=(0.1, 0.6)), 0.3), view), device)


def test_gaussians_all_around_the_camera(device: torch.device) -> None:
    """In front, behind, around it; some reach from behind to the front, and some contain the sensor."""
    view = make_camera_view(19, 13, 10.0, "top_to_bottom", CAMERA_MOTION)
    local = uniform(0.2, 8, 300, 1) * F.normalize(torch.randn(300, 3, dtype=F64), dim=-1)
    assert_parity(Case.of(scene_of(make_gaussians(local, scales=(0.1, 2.0)), 0.3), view), device)


def test_gaussians_behind_the_camera_leave_the_sky(device: torch.device) -> None:
    view = make_camera_view(9, 7)
    g = make_gaussians(in_frustum(view, 30, 3, 8) * tensor(1, 1, -1), scales=(0.2, 0.8))
    case, alone = Case.of(scene_of(g), view), Case.of(scene_of(no_gaussians()), view)
    alone = replace(alone, scene=replace(alone.scene, sky=case.scene.sky))
    images = [run(native, c, c.pairs(device)[1], {}, torch.float32, device).values["colour"] for c in (case, alone)]
    assert torch.equal(*images)
    assert_parity(case, device)


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_every_parameter_gets_a_gradient(sensor: str, device: torch.device) -> None:
    """None of the comparisons here is one of zeros."""
    case = camera_case(wide_view("camera")) if sensor == "camera" else lidar_case(wide_view("lidar"))
    gradients = gradients_of(case, device)
    none = {"lidar_logits"} if sensor == "camera" else {"sh0", "sh_rest", "sky"}
    assert {k for k, v in gradients.items() if not v.any()} == none


# ---- lidars


@pytest.mark.parametrize("motion", [STILL, LIDAR_MOTION], ids=["still", "moving"])
def test_lidars(motion: Motion, device: torch.device) -> None:
    assert_parity(lidar_case(make_lidar_view(make_lidar(8, 64), motion)), device)


def test_lidars_without_rows(device: torch.device) -> None:
    local = uniform(4, 9, 300, 1) * spherical(uniform(-0.7, 0.7, 300), uniform(-0.7, 0.7, 300))
    scene = scene_of(make_gaussians(local, scales=(0.1, 0.6)), 0.4)
    assert_parity(Case.of(scene, make_rosette_view(700, Motion((2.0, 0.2, 0.0), (0.0, 0.02, 0.1)))), device)


@pytest.mark.parametrize("n", [0, 1, 60])
@pytest.mark.parametrize("rays", [0, 1, 31, 33])
def test_few_rays(rays: int, n: int, device: torch.device) -> None:
    directions = spherical(uniform(-0.6, 0.6, rays), uniform(-0.3, 0.1, rays))
    view = rays_view(make_lidar(8, 64), directions, torch.rand(rays, dtype=F64), LIDAR_MOTION)
    assert_parity(Case.of(scene_of(make_gaussians(around(n, 4, 9, (-0.7, 0.7)), scales=(0.3, 0.9)), 0.3), view), device)


@pytest.mark.parametrize("motion", [STILL, Motion((1.5, 0.2, 0.0), (0.0, 0.0, 0.05))], ids=["still", "moving"])
def test_gaussians_across_the_seam_of_the_azimuth(motion: Motion, device: torch.device) -> None:
    view = make_lidar_view(make_lidar(8, 64), motion)
    local = uniform(4, 9, 150, 1) * spherical(math.pi + uniform(-0.3, 0.3, 150), uniform(-0.3, 0.1, 150))
    assert_parity(Case.of(scene_of(make_gaussians(local, scales=(0.1, 0.6)), 0.3), view), device)


def test_crowded_cells(device: torch.device) -> None:
    """All rays within a milliradian: one cell that is split into many tiles."""
    directions = F.normalize(tensor(1.0, 0.2, -0.1) + 1e-3 * torch.randn(700, 3, dtype=F64), dim=-1)
    view = rays_view(make_lidar(8, 64), directions, torch.rand(700, dtype=F64), LIDAR_MOTION)
    local = uniform(4, 9, 60, 1) * directions[:60] + 0.1 * torch.randn(60, 3, dtype=F64)
    case = Case.of(scene_of(make_gaussians(local, scales=(0.1, 0.5)), 0.3), view)
    assert len(case.pairs(device)[1].rays) >= 3
    assert_parity(case, device)


# ---- in two parts


@pytest.mark.parametrize("actors", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_gaussians_that_stand_still_may_come_apart(
    sensor: str, share: float, actors: float, device: torch.device
) -> None:
    """None, half or all of the background: with 0 actors and all of it none moves, with actors alone all do."""
    view = wide_view(sensor)
    case = background_first(
        camera_case(view, 200, actors) if isinstance(view, CameraView) else lidar_case(view, 200, actors)
    )
    still = int(share * int((case.scene.gaussians.node == 0).sum()))
    assert_parity(replace(case, still=still), device)


def test_gaussians_that_stand_still_before_a_camera_that_does(device: torch.device) -> None:
    case = background_first(camera_case(make_camera_view(33, 31, 30.0)))
    assert_parity(replace(case, still=100), device, learn_poses=False)


# ---- targets


@pytest.mark.parametrize("learned", [False, True], ids=["", "poses"])
def test_what_rays_miss_their_targets_by(learned: bool, device: torch.device) -> None:
    case = lidar_case(wide_view("lidar"), 150)
    known = replace(case, view=aimed(case.view))
    assert_parity(known, device, learn_poses=learned)
    lists = case.pairs(device)[1]
    found, plain = (run(native, c, lists, {}, torch.float32, device).values for c in (known, case))
    assert all(found[name].equal(plain[name]) for name in ("median", "intensity", "drop", "opacity"))
    assert (found["distance"] < plain["distance"]).float().mean() > 0.3 and not found["distance"][::5].any()


# ---- sizes, depths and layers


def of_scales(view: CameraView | LidarView, scales: Tensor, low: float, high: float) -> Case:
    """Gaussians about points on rays, each off by about its middle scale."""
    n, rays = len(scales), view.rays()
    chosen = torch.randint(len(rays.delays), (n,))
    off = scales.median(-1, keepdim=True).values * torch.randn(n, 3, dtype=F64)
    distance = torch.exp(uniform(math.log(low), math.log(high), n, 1))
    means = view.centre() + rays.origins[chosen] + distance * rays.directions[chosen] + off
    return Case.of(scene_of(changed(make_gaussians(means, torch.eye(4, dtype=F64)), scales=scales), 0.2), view)


@pytest.mark.parametrize(
    ("scale", "slope"), [(100.0, 1e-5), (1.0, 4e-4), (0.1, 4e-3), (0.01, 2e-2), (0.001, 2e-1)], ids=str
)
@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_huge_and_tiny_scales(sensor: str, scale: float, slope: float, device: torch.device) -> None:
    """1 to 80 m away: of 1 mm there, float32 leaves the second digit."""
    assert_parity(of_scales(wide_view(sensor), scale * uniform(0.8, 1.25, 250, 3), 1, 80), device, slope)


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_all_sizes_together(sensor: str, device: torch.device) -> None:
    assert_parity(of_scales(wide_view(sensor), torch.exp(uniform(-6.9, 4.6, 300, 3)), 1, 80), device, 5e-2)


@pytest.mark.parametrize(
    ("scales", "slope"),
    [((1e-3, 1, 1), 5e-3), ((1e-3, 1e-3, 1), 5e-2), ((1e-3, 0.03, 1), 2e-2)],
    ids=["disk", "needle", "blade"],
)
@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_strongly_anisotropic(sensor: str, scales: tuple[float, ...], slope: float, device: torch.device) -> None:
    each = tensor(*scales)[torch.rand(250, 3).argsort(1)] * uniform(0.8, 1.25, 250, 3)
    assert_parity(of_scales(wide_view(sensor), each, 3, 30), device, slope)


@pytest.mark.parametrize("opacities", [(0.01, 0.03), (0.05, 0.1), (0.1, 0.95)], ids=str)
@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_hundreds_of_layers(sensor: str, opacities: tuple[float, float], device: torch.device) -> None:
    """600 wide ones in every ray, which their transmittance ends."""
    if sensor == "camera":
        view: CameraView | LidarView = make_camera_view(9, 7, 8.0, "top_to_bottom", CAMERA_MOTION)
        local = in_frustum(view, 600, 3, 9)
    else:
        view = make_lidar_view(make_lidar(4, 40, 0.2, -0.2), LIDAR_MOTION, sector=(-0.35, 0.35))
        local = around(600, 3, 9, (-0.4, 0.4))
    case = Case.of(scene_of(make_gaussians(local, scales=(1.5, 4.0), opacities=opacities), 0.3), view)
    opacity = run(native, case, case.pairs(device)[1], {}, torch.float32, device).values["opacity"]
    assert (opacity > 0.98).all()
    assert_parity(case, device)


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_equal_depths_are_blended_in_the_order_of_the_index(sensor: str, device: torch.device) -> None:
    """Four at each place, so that no other order gives these values."""
    view = wide_view(sensor)
    local = in_frustum(view, 40, 3, 9) if isinstance(view, CameraView) else around(40, 3, 9)
    g = make_gaussians(local.repeat(4, 1), scales=(0.3, 0.8), opacities=(0.3, 0.9))
    case = Case.of(scene_of(g), view)
    place = {i: k for k, i in enumerate(case.pairs(device)[0].index.tolist())}
    assert len(place) > 100
    for i in place:
        if i + 40 in place:
            assert place[i + 40] == place[i] + 1
    assert_parity(case, device)


# ---- a trained scene


@lru_cache(maxsize=1)
def trained_scene() -> Scene:
    state = tiny_state()
    stages = base_stages("native", CPU)
    for state.step in range(25):
        state.progress = state.step / 25
        step(stages, state)
    return cast(state.scene, torch.float32)


@pytest.mark.slow
def test_a_trained_scene_seen_by_its_cameras(device: torch.device) -> None:
    capture = tiny_capture()
    for frame in capture.images[2:20:6]:
        assert_parity(Case(trained_scene(), camera_view(capture, frame, "cpu")), device)


@pytest.mark.slow
def test_a_trained_scene_seen_by_its_lidar(device: torch.device) -> None:
    capture = tiny_capture()
    for frame in capture.sweeps[1:10:4]:
        case = Case(trained_scene(), lidar_view(capture, frame, frame.load(), "cpu"))
        assert gradients_of(case, device)["track_translations"].any()  # it sees the cars
        assert_parity(case, device, slope=1e-2)  # there are disks a few millimetres thick


# ---- far from the origin


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_far_from_the_origin_of_the_world(sensor: str, device: torch.device) -> None:
    """50 km away float32 counts in steps of 1/256 m. Sensor and means stand on such steps; the rendering must not know of them."""
    far = make_pose((0.0, 0.0, 0.0), (50000.0, -40000.0, 100.0))
    near = torch.eye(4, dtype=F64)
    if sensor == "camera":
        views: list[CameraView | LidarView] = [make_camera_view(17, 13, 15.0, T_world_cam=T) for T in (near, far)]
        local = in_frustum(views[0], 100, 3, 9)
    else:
        views, local = [make_lidar_view(make_lidar(8, 64), T_world_lidar=T) for T in (near, far)], around(200, 3, 9)
    g = make_gaussians((256 * local).round() / 256, near, scales=(0.05, 0.4))
    sky, found = make_sky(), []
    for view, scene in zip(views, (g, changed(g, means=g.means + far[:3, 3])), strict=True):
        torch.manual_seed(1)
        case = Case.of(scene_of(scene, sky=sky), view)
        found.append(run(native, case, case.pairs(device)[1], random_weights(view, 6.0), torch.float32, device))
    for name, value in found[0].values.items():
        torch.testing.assert_close(found[1].values[name], value, atol=1e-6, rtol=1e-6)  # metres
    for name in ("means", "quats", "log_scales", "opacity_logits"):
        torch.testing.assert_close(found[1].gradients[name], found[0].gradients[name], atol=1e-5, rtol=1e-5)


# ---- the rules of blending, where they can be stated exactly


def on_axis(depths: Tensor, opacities: Tensor | float, scale: float = 0.3) -> Case:
    """Balls on the axis of a camera of one pixel."""
    view = make_camera_view(1, 1, 10.0)
    view = replace(view, camera=replace(view.camera, cx=0.5, cy=0.5))
    local = torch.stack([torch.zeros_like(depths), torch.zeros_like(depths), depths], dim=-1)
    g = changed(make_gaussians(local, coefficients=1), opacities=opacities, scales=scale)
    return Case.of(scene_of(g), view)


def result(case: Case, device: torch.device, *outputs: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Values, and the gradients of the sum of some outputs."""
    weights = {name: torch.ones(n_rays(case.view), *([3] if name == "colour" else []), dtype=F64) for name in outputs}
    found = run(native, case, case.pairs(device)[1], weights, torch.float32, device)
    return found.values, found.gradients


@pytest.mark.parametrize("opacity", [0.9901, 0.999, 1 - 1e-6])
def test_a_clamped_response_has_no_gradient(opacity: float, device: torch.device) -> None:
    """Exact zeros, for opacity and for shape; its colour goes on learning."""
    values, gradients = result(on_axis(tensor(5.0), opacity), device, "opacity", "colour")
    assert values["opacity"].item() == pytest.approx(0.99, abs=1e-6)
    for name in ("means", "quats", "log_scales", "opacity_logits"):
        assert not gradients[name].any(), name
    assert (gradients["sh0"] > 0.2).all()


def test_the_clamp_holds_just_above_its_edge_and_not_just_below(device: torch.device) -> None:
    for opacity, held in ((0.99001, True), (0.98999, False)):
        _, gradients = result(on_axis(tensor(5.0), opacity), device, "opacity")
        assert bool(gradients["opacity_logits"].any()) != held


@pytest.mark.parametrize("reason", ["faint", "aside", "behind", "nearer than near"])
def test_a_skipped_gaussian_leaves_no_trace(reason: str, device: torch.device) -> None:
    case = on_axis(tensor(5.0, 6.0), tensor(0.999 / 255 if reason == "faint" else 0.6, 0.6))
    local = {"aside": [1.2, 0, 5.0], "behind": [0, 0, -5.0], "nearer than near": [0, 0, 0.15]}.get(reason)
    if local:
        case.scene.gaussians.means[0] = (POSE[:3, :3] @ tensor(*local) + POSE[:3, 3]).float()
    pairs = PairList(torch.zeros(1, 1, dtype=torch.int64), torch.tensor([0, 2]), torch.tensor([0, 1]))  # it is listed
    weights = random_weights(case.view, 6.0)
    found = run(native, case, pairs, weights, torch.float32, device)
    alone = replace(pairs, offsets=torch.tensor([0, 1]), gaussians=torch.tensor([1]))
    expected = run(native, case, alone, weights, torch.float32, device)
    for name in ("means", "quats", "log_scales", "opacity_logits", "sh0", "velocities"):
        assert not found.gradients[name][0].any() and torch.equal(found.gradients[name], expected.gradients[name])
    assert found.gradients["means"][1].any()
    assert all(torch.equal(found.values[k], expected.values[k]) for k in found.values)


def test_a_gaussian_just_above_the_threshold_is_blended(device: torch.device) -> None:
    values, _ = result(on_axis(tensor(5.0), 1.001 / 255), device)
    assert values["opacity"].item() == pytest.approx(1.001 / 255, abs=1e-7)


def test_the_transmittance_ends_a_ray(device: torch.device) -> None:
    """0.9^87 is above 1e-4 and 0.9^88 is below: 87 of 300 layers are blended, stored in any order."""
    depths = 3 + 0.01 * torch.randperm(300).to(F64)
    values, gradients = result(on_axis(depths, 0.1), device, "opacity")
    assert 1 - values["opacity"].item() == pytest.approx(0.9**87, abs=1e-6)
    blended = gradients["opacity_logits"] != 0
    assert torch.equal(blended, depths < 3.865)


@pytest.mark.parametrize("layers", [5, 15, 16, 17, 33, 200, 255, 256, 257])
def test_the_gaussian_that_would_cross_ends_the_ray(layers: int, device: torch.device) -> None:
    """T is 2e-4 behind the first layers; the next one would take it to 2e-5, those behind it only to 1.9e-4 or so."""
    step = 1 - 2e-4 ** (1 / layers)
    opacities = torch.cat([torch.full((layers,), step, dtype=F64), tensor(0.9), tensor(0.05).expand(70)])
    values, gradients = result(
        on_axis(3 + 0.01 * torch.arange(len(opacities)).to(F64), opacities), device, "opacity", "distance"
    )
    assert 1 - values["opacity"].item() == pytest.approx(2e-4, abs=1e-6)
    assert gradients["opacity_logits"][:layers].all() and not gradients["opacity_logits"][layers:].any()


@pytest.mark.parametrize(
    ("opacities", "expected"),
    [((0.4, 0.4, 0.4), 4.0), ((0.6, 0.6, 0.6), 3.0), ((0.2, 0.2, 0.2), 0.0), ((0.501, 0.1, 0.1), 3.0)],
)
def test_the_median_is_where_the_transmittance_crosses_one_half(
    opacities: tuple[float, ...], expected: float, device: torch.device
) -> None:
    view = rays_view(make_lidar(4, 32), tensor([1.0, 0, 0]), tensor(0.5))
    g = make_gaussians(tensor([3.0, 0, 0], [4.0, 0, 0], [5.0, 0, 0]))
    case = Case.of(scene_of(changed(g, opacities=tensor(*opacities), scales=0.3)), view)
    assert result(case, device)[0]["median"].item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    "scales",
    [(1e-12,) * 3, (1e-6,) * 3, (1e4,) * 3, (1e8,) * 3, (1, 1, 1e-6), (1e-5, 1e-5, 10), (1e-4, 0.1, 1e3)],
    ids=str,
)
@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_extreme_scales_stay_finite(sensor: str, scales: tuple[float, ...], device: torch.device) -> None:
    view = wide_view(sensor)
    local = in_frustum(view, 50, 3, 9) if isinstance(view, CameraView) else around(50, 3, 9)
    local[0] = tensor(0, 0, 5) if sensor == "camera" else view.directions[7] * 5
    case = Case.of(scene_of(changed(make_gaussians(local), scales=tensor(*scales).expand(50, 3)), 0.3), view)
    found = run(native, case, case.pairs(device)[1], random_weights(view, 6.0), torch.float32, device)
    assert all(x.isfinite().all() for x in (*found.values.values(), *found.gradients.values()))


# ---- tiles of other sizes


@pytest.mark.parametrize("plan", [(1, 1, 1, 1), (3, 3, 5, 7), (4, 4, 4, 32), (5, 2, 9, 16), (16, 8, 32, 256)], ids=str)
@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_the_size_of_tiles_does_not_matter(
    sensor: str, plan: tuple[int, ...], device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = camera_case(wide_view(sensor), 150) if sensor == "camera" else lidar_case(wide_view(sensor), 150)
    monkeypatch.setattr("parity.plan_of", lambda _: RenderPlan(*plan))
    assert_parity(case, device)


@pytest.mark.parametrize("rays", [1, 7, 16, 17, 100, 256])
@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_lists_made_by_hand(sensor: str, rays: int, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of rays a tile, in any order; every tile looks at all Gaussians."""
    case = camera_case(wide_view(sensor), 60) if sensor == "camera" else lidar_case(wide_view(sensor), 60)
    own = case.pairs(device)[0]
    n = n_rays(case.view)
    tiles = -(-n // rays)
    order = torch.cat([torch.randperm(n), torch.full((tiles * rays - n,), -1)]).view(tiles, rays).to(device)
    offsets = len(own.index) * torch.arange(tiles + 1, device=device)
    lists = PairList(order, offsets, own.index.repeat(tiles))
    monkeypatch.setattr(Case, "pairs", lambda *_: (own, lists))
    assert_parity(case, device)


# ---- again and again


def repeated(case: Case, device: torch.device, times: int = 3) -> list[tuple[dict[str, Tensor], dict[str, Tensor]]]:
    found = []
    for _ in range(times):
        r = run(native, case, case.pairs(device)[1], random_weights(case.view, 6.0), torch.float32, device)
        found.append((r.values, r.gradients))
    return found


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(a[k], b[k]) for k in a)


REPEATS: dict[str, Callable[[], Case]] = {
    "one tile": lambda: camera_case(make_camera_view(4, 4, 4.0), 100),
    "camera": lambda: camera_case(make_camera_view(57, 43, 40.0, "top_to_bottom", CAMERA_MOTION), 400),
    "lidar": lambda: lidar_case(make_lidar_view(make_lidar(16, 128), LIDAR_MOTION), 400),
}


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("what", REPEATS)
def test_two_runs_are_bitwise_equal(what: str, threads: int, device: torch.device) -> None:
    """Forward everywhere; backward on the CPU, while CUDA adds gradients up in any order and may differ by rounding."""
    case, before = REPEATS[what](), torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        (values, gradients), *others = repeated(case, device)
    finally:
        torch.set_num_threads(before)
    for other_values, other_gradients in others:
        assert same(values, other_values)
        if device.type == "cpu":
            assert same(gradients, other_gradients)
        for name, gradient in gradients.items():
            spread = float((gradient - other_gradients[name]).norm())
            assert spread <= 1e-5 * (3 if name in SUMS else 1) * float(gradient.norm()), name


@pytest.mark.parametrize("what", REPEATS)
def test_the_number_of_threads_matters_to_gradients_alone_and_by_rounding(what: str) -> None:
    ops.load()
    case, before, found = REPEATS[what](), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found += repeated(case, CPU, 1)
    finally:
        torch.set_num_threads(before)
    for values, gradients in found[1:]:
        assert same(values, found[0][0])
        for name, gradient in gradients.items():
            spread = float((gradient - found[0][1][name]).norm())
            assert spread <= 1e-5 * (3 if name in SUMS else 1) * float(gradient.norm()), name
