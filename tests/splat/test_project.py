# SPDX-License-Identifier: Apache-2.0
"""Bounds of Gaussians in the sensor's plane: their values, and the losses of their lists against all pairs."""

import math
from dataclasses import replace

import pytest
import torch
from lenses import LENSES, lens_view, seen_through
from splat_scenes import (
    CAMERA_MOTION,
    F64,
    LIDAR_MOTION,
    NEAR,
    POSE,
    STILL,
    Motion,
    around,
    changed,
    contributing,
    depth_order,
    in_frustum,
    listed,
    make_camera_view,
    make_gaussians,
    make_lidar,
    make_lidar_view,
    make_pose,
    make_rosette_view,
    no_gaussians,
    oracle_lidar,
    oracle_rays,
    pose_between,
    rays_view,
    spherical,
    tensor,
    to_float32,
    turn,
    uniform,
    view_float32,
)
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.scene.gaussians import WorldGaussians
from nurec_lite.splat import project as project_module
from nurec_lite.splat.project import project
from nurec_lite.splat.render import render_lidar
from nurec_lite.splat.tiles import tile
from nurec_lite.splat.views import CameraView, LidarView

KITTI_LENS = (-0.3728755, 0.2037299, 0.0022191, 0.0007238, -0.0723)
FAST_TURN = Motion((1.0, 0.0, 0.0), (0.02, 0.02, 0.15), 0.1)  # 86 degrees a second


def pairs_of(g: WorldGaussians, view: CameraView | LidarView) -> tuple[Tensor, Tensor]:
    """[R, N] which pairs contribute and which are listed."""
    rays = oracle_rays(view)
    return contributing(g, rays), listed(tile(project(g, view), view), len(rays.delays), len(g))


def share_lost(g: WorldGaussians, view: CameraView | LidarView) -> float:
    contributes, listed_ = pairs_of(g, view)
    assert contributes.sum() > 2000  # enough for a statement in per mille
    return float((contributes & ~listed_).sum() / contributes.sum())


# ---- values of the bounds


def linear_bounds(
    covariance: Tensor,  # [N, 3, 3] in the sensor's frame
    jacobian: Tensor,  # [N, 2, 3]
    opacity: Tensor,  # [N]
) -> Tensor:  # [N, 2] half extents by a first-order projection
    plane = jacobian @ covariance @ jacobian.transpose(1, 2)
    return (2 * torch.log(255 * opacity))[:, None].sqrt() * plane.diagonal(dim1=1, dim2=2).sqrt()


def local_of(g: WorldGaussians) -> tuple[Tensor, Tensor]:
    """Means [N, 3] and covariances [N, 3, 3] in the frame of a sensor at POSE."""
    R = POSE[:3, :3]
    axes = R.T @ turn(g.quats) * g.scales[:, None]
    return (g.means - POSE[:3, 3]) @ R, axes @ axes.transpose(1, 2)


def test_camera_bounds_of_small_gaussians_are_those_of_a_linear_projection() -> None:
    view = make_camera_view(64, 48, 60.0)
    g = make_gaussians(in_frustum(view, 50, 18, 22), scales=(0.05, 0.1))
    p, c = project(g, view), view.camera
    assert len(p.index) == 50
    (x, y, z), covariance = local_of(g)[0].unbind(-1), local_of(g)[1]
    zero = torch.zeros_like(x)
    J = torch.stack([c.fx / z, zero, -c.fx * x / z**2, zero, c.fy / z, -c.fy * y / z**2], dim=-1).view(-1, 2, 3)
    half = linear_bounds(covariance, J, g.opacities)[p.index]
    torch.testing.assert_close(p.high - p.low, 2 * half, rtol=0.01, atol=0)  # second order in scale / distance = 0.005
    middle = torch.stack([c.fx * x / z + c.cx, c.fy * y / z + c.cy], dim=-1)[p.index]
    torch.testing.assert_close(0.5 * (p.low + p.high), middle, rtol=0, atol=0.01)


def test_lidar_bounds_of_small_gaussians_are_those_of_a_linear_projection() -> None:
    view = make_lidar_view(make_lidar(8, 256))
    g = make_gaussians(around(50, 18, 22), scales=(0.05, 0.1))
    p = project(g, view)
    (x, y, z), covariance = local_of(g)[0].unbind(-1), local_of(g)[1]
    flat2, range2 = x**2 + y**2, x**2 + y**2 + z**2
    flat, zero = flat2.sqrt(), torch.zeros_like(x)
    rows = [-y / flat2, x / flat2, zero, -x * z / (flat * range2), -y * z / (flat * range2), flat / range2]
    half = linear_bounds(covariance, torch.stack(rows, dim=-1).view(-1, 2, 3), g.opacities)[p.index]
    torch.testing.assert_close(p.high - p.low, 2 * half, rtol=0.01, atol=0)
    middle = torch.stack([torch.atan2(y, x), torch.atan2(z, flat)], dim=-1)[p.index]
    torch.testing.assert_close(0.5 * (p.low + p.high), middle, rtol=0, atol=1e-4)


def place(view: CameraView | LidarView, point: Tensor, velocity: Tensor) -> tuple[float, float]:
    """Place of a moving point at the time when the sensor looks there, by iteration until nothing changes."""
    fraction, camera = 0.5, isinstance(view, CameraView)
    for _ in range(40):
        R, position = pose_between(view.T_world_sensor_start, view.T_world_sensor_end, fraction)
        delay = (fraction - 0.5) * (view.time_end - view.time_start)
        x, y, z = (R.T @ (point + delay * velocity - position)).tolist()
        if camera:
            c = view.camera
            at = c.fx * x / z + c.cx, c.fy * y / z + c.cy
            fraction = min(max((at[1] - 0.5) / (c.height - 1), 0.0), 1.0)  # top to bottom
        else:
            at = math.atan2(y, x), math.atan2(z, math.hypot(x, y))
            fraction = (math.pi - at[0]) / (2 * math.pi)
    return at


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_bounds_are_those_of_the_unscented_transform(sensor: str) -> None:
    """Wide Gaussians that move fast: seven points, each at its own time; weights 0 and 1/6, for the covariance 2 and 1/6."""
    if sensor == "camera":
        view: CameraView | LidarView = make_camera_view(20, 15, 15.0, "top_to_bottom")
        g = make_gaussians(in_frustum(view, 20, 5, 8), scales=(0.3, 1.0), speed=4.0)
    else:
        view = make_lidar_view(make_lidar(8, 64))
        g = make_gaussians(around(20, 5, 8, (-2.0, 2.0)), scales=(0.3, 1.0), speed=15.0)
    p = project(g, view)
    assert len(p.index) > 15
    for k, i in enumerate(p.index.tolist()):
        steps = math.sqrt(3) * (turn(g.quats)[i] * g.scales[i]).T
        points = [g.means[i], *(g.means[i] + steps), *(g.means[i] - steps)]
        places = tensor(*(place(view, point, g.velocities[i]) for point in points))
        mean = places[1:].mean(0)
        variance = 2 * (places[0] - mean) ** 2 + ((places[1:] - mean) ** 2).mean(0)
        extent = (2 * torch.log(255 * g.opacities[i]) * variance).sqrt()
        assert (extent > (2.0 if sensor == "camera" else 0.1)).all()
        for side, expected in ((p.low[k], mean - extent), (p.high[k], mean + extent)):
            torch.testing.assert_close(side, expected, rtol=0, atol=0.02 if sensor == "camera" else 0.004)  # few rounds


@pytest.mark.parametrize("shutter", ["top_to_bottom", "bottom_to_top", "left_to_right", "right_to_left"])
def test_camera_bounds_follow_the_rolling_shutter(shutter: str) -> None:
    """The middle of a tiny Gaussian's bounds is a pixel whose ray, at its own time, passes through the Gaussian."""
    view = make_camera_view(64, 48, 60.0, shutter, CAMERA_MOTION)
    g = make_gaussians(in_frustum(view, 30, 8, 20, -0.1), scales=(1e-4, 1e-4), speed=5.0)
    p, c = project(g, view), view.camera
    assert len(p.index) == 30
    for i, (u, v) in zip(p.index.tolist(), (0.5 * (p.low + p.high)).tolist(), strict=True):
        along = {"top_to_bottom": (v - 0.5) / 47, "left_to_right": (u - 0.5) / 63}
        along |= {"bottom_to_top": 1 - (v - 0.5) / 47, "right_to_left": 1 - (u - 0.5) / 63}
        R, position = pose_between(view.T_world_sensor_start, view.T_world_sensor_end, along[shutter])
        delay = (along[shutter] - 0.5) * (view.time_end - view.time_start)
        x, y, z = (R.T @ (g.means[i] + delay * g.velocities[i] - position)).tolist()
        assert math.hypot(c.fx * x / z + c.cx - u, c.fy * y / z + c.cy - v) < 0.05  # pixels


def test_lidar_bounds_follow_the_turning_head() -> None:
    view = make_lidar_view(make_lidar(8, 256), LIDAR_MOTION)
    g = make_gaussians(around(30, 8, 20, (-3.0, 3.0)), scales=(1e-4, 1e-4), speed=5.0)
    p = project(g, view)
    assert len(p.index) == 30
    for i, (azimuth, elevation) in zip(p.index.tolist(), (0.5 * (p.low + p.high)).tolist(), strict=True):
        fraction = ((math.pi - azimuth) / (2 * math.pi)) % 1
        R, position = pose_between(view.T_world_sensor_start, view.T_world_sensor_end, fraction)
        delay = (fraction - 0.5) * (view.time_end - view.time_start)
        towards = R.T @ (g.means[i] + delay * g.velocities[i] - position)
        direction = spherical(tensor(azimuth), tensor(elevation))[0]
        # the two end poses are blended linearly, which is off by turn x travel / 4 = 0.015 m of 8 m and more
        assert torch.linalg.cross(towards / towards.norm(), direction).norm() < 3e-3  # radians


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_projection_is_ordered_by_depth_in_the_middle_of_the_view(sensor: str) -> None:
    if sensor == "camera":
        view: CameraView | LidarView = make_camera_view(20, 15, 20.0, "top_to_bottom", CAMERA_MOTION)
        g = make_gaussians(in_frustum(view, 200, 5, 6), speed=10.0)
    else:
        view = make_lidar_view(make_lidar(8, 64), LIDAR_MOTION)
        g = make_gaussians(around(200, 5, 6), speed=10.0)
    index = project(g, view).index.tolist()
    kept = set(index)
    assert len(kept) == len(index) > 150
    assert index == [i for i in depth_order(g, view) if i in kept]


def test_what_can_never_reach_the_threshold_is_left_out() -> None:
    view = make_camera_view()
    g = changed(make_gaussians(in_frustum(view, 3, 4, 6)), opacities=tensor(0.99 / 255, 1 / 255, 1.01 / 255))
    assert project(g, view).index.tolist() == [2]


def test_no_gaussians_no_bounds() -> None:
    for view in (make_camera_view(), make_lidar_view(make_lidar())):
        p = project(no_gaussians(), view)
        assert p.index.shape == (0,) and p.low.shape == p.high.shape == (0, 2)


def test_bounds_carry_no_gradient() -> None:
    view = make_camera_view()
    g = make_gaussians(in_frustum(view, 3, 4, 6))
    p = project(changed(g, means=g.means.requires_grad_()), view)
    assert not p.low.requires_grad and not p.high.requires_grad


# ---- losses of the lists


@pytest.mark.parametrize("motion", [STILL, CAMERA_MOTION], ids=["still", "moving"])
def test_camera_lists_lose_little(motion: Motion) -> None:
    """Gaussians of 0.1 m at 20 m, through a lens of 720 pixels focal length: nearly every contributing pair is listed."""
    shutter = "global" if motion is STILL else "top_to_bottom"
    view = make_camera_view(64, 48, 720.0, shutter, motion)
    g = make_gaussians(in_frustum(view, 400, 18, 22, 0.3), scales=(0.07, 0.13))
    assert share_lost(g, view) < 0.005


def test_wide_cameras_lose_little() -> None:
    view = make_camera_view(64, 48, 40.0, "top_to_bottom", CAMERA_MOTION)
    g = make_gaussians(in_frustum(view, 500, 18, 22, 0.3), scales=(0.2, 0.6), speed=5.0)
    assert share_lost(g, view) < 0.005


def test_a_lens_with_distortion_loses_little() -> None:
    view = make_camera_view(48, 36, 45.0, distortion=KITTI_LENS)
    g = make_gaussians(in_frustum(view, 800, 18, 22, 0.5), scales=(0.2, 0.5))
    assert share_lost(g, view) < 0.005


@pytest.mark.parametrize("kind", LENSES)
def test_other_lenses_lose_little(kind: str) -> None:
    """With sizes of half a pixel to two, also where an angular lens looks backwards."""
    view = lens_view(kind, 64, 48, shutter="top_to_bottom", motion=CAMERA_MOTION)
    g = make_gaussians(seen_through(view, 600, 18, 22), scales=(0.3, 1.2))
    assert share_lost(g, view) < 0.005


@pytest.mark.parametrize("motion", [STILL, LIDAR_MOTION], ids=["still", "moving"])
def test_lidar_lists_lose_little(motion: Motion) -> None:
    """Gaussians of 0.1 m at 20 m, rays 0.3 degrees apart."""
    view = make_lidar_view(make_lidar(16, 1200, 0.04, -0.04), motion, sector=(-0.3, 0.3))
    local = uniform(18, 22, 300, 1) * spherical(uniform(-0.4, 0.4, 300), uniform(-0.06, 0.06, 300))
    g = make_gaussians(local, scales=(0.07, 0.13), speed=0.0 if motion is STILL else 5.0)
    assert share_lost(g, view) < 0.005


@pytest.mark.parametrize("motion", [LIDAR_MOTION, Motion((3.0, 0.5, 0.0), (0.0, 0.02, 0.1))], ids=["moving", "fast"])
def test_lists_of_a_lidar_without_rows_lose_little(motion: Motion) -> None:
    """A ray of any time may meet a Gaussian, so its bounds hold its places from the start to the end of the sweep."""
    view = make_rosette_view(8000, motion, field=0.5)
    local = uniform(18, 22, 300, 1) * spherical(uniform(-0.3, 0.3, 300), uniform(-0.3, 0.3, 300))
    assert share_lost(make_gaussians(local, scales=(0.07, 0.13), speed=5.0), view) < 0.005


@pytest.mark.parametrize("side", [-1, 1])
def test_lidar_lists_lose_little_where_a_sweep_begins_and_ends(side: int) -> None:
    """There a moving Gaussian is seen twice or not at all; both poses have to be asked."""
    sector = (2.8, math.pi) if side > 0 else (-math.pi, -2.8)
    view = make_lidar_view(make_lidar(16, 1200, 0.04, -0.04), Motion((1.5, 0.2, 0.0), (0.0, 0.01, 0.04)), sector=sector)
    local = uniform(8, 22, 500, 1) * spherical(math.pi + uniform(-0.4, 0.4, 500), uniform(-0.06, 0.06, 500))
    assert share_lost(make_gaussians(local, scales=(0.05, 0.1), speed=9.0), view) < 0.005


@pytest.mark.parametrize("shutter", ["top_to_bottom", "left_to_right"])
def test_a_camera_that_turns_fast_keeps_what_enters_at_its_edges(shutter: str) -> None:
    """0.15 rad within a readout: no Gaussian may fall out of the cone of the middle pose that a ray of another pose meets."""
    view = make_camera_view(64, 48, 40.0, shutter, Motion((0.0, 0.0, 0.3), (0.1, 0.1, 0.05), 0.03))
    g = make_gaussians(in_frustum(view, 500, 18, 22, 0.3), scales=(0.3, 0.6))
    contributes, listed_ = pairs_of(g, view)
    wholly = contributes.any(0) & ~listed_.any(0)
    assert contributes.sum() > 2000 and not wholly.any()


@pytest.mark.parametrize(("scale", "distance", "limit"), [(0.3, 4.0, 0.005), (0.5, 3.0, 0.03), (1.0, 2.0, 0.1)])
@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_large_near_gaussians_lose_more(sensor: str, scale: float, distance: float, limit: float) -> None:
    """Bounds from seven points are not conservative where the sensor is far from linear; these are the losses."""
    ranges = (0.9 * distance, 1.1 * distance)
    if sensor == "camera":
        view: CameraView | LidarView = make_camera_view(24, 18, 20.0)
        local = in_frustum(view, 200, *ranges, 0.3)
    else:
        view = make_lidar_view(make_lidar(4, 100))
        local = around(300, *ranges)
    assert share_lost(make_gaussians(local, scales=(0.5 * scale, scale)), view) < limit


# ---- sparse rays


@pytest.mark.parametrize("motion", [STILL, LIDAR_MOTION, FAST_TURN, Motion(turn=(0.1, 0.1, 0.1))], ids=str)
@pytest.mark.parametrize("subset", ["random", "block", "beam", "one"])
def test_some_rays_get_what_they_get_within_a_sweep(subset: str, motion: Motion) -> None:
    """Gaussians far from all rays are dropped early; that must lose no more than the bounds of a full sweep."""
    full = make_lidar_view(make_lidar(12, 160), motion)
    rays = torch.arange(160 * 12).view(160, 12)
    chosen = {
        "random": torch.randperm(160 * 12)[:40],
        "block": rays[70:80, 6:10].flatten(),
        "beam": rays[:, 3],
        "one": rays[57, 5:6],
    }[subset]
    view = replace(full, directions=full.directions[chosen], fractions=full.fractions[chosen])
    g = make_gaussians(around(600, 5, 25), scales=(0.02, 0.3), speed=3.0)
    whole = listed(tile(project(g, full), full), len(full.fractions), len(g))[chosen]
    contributes, part = pairs_of(g, view)
    assert not (part & ~whole).any()
    assert not (contributes & whole & ~part).any()
    assert len(project(g, view).index) < len(g) or subset in ("random", "beam")
    some = render_lidar(g, view, tile(project(g, view), view))
    everything = render_lidar(g, full, tile(project(g, full), full))
    for name in ("distance", "median", "intensity", "drop", "opacity"):
        torch.testing.assert_close(getattr(some, name), getattr(everything, name)[chosen], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("motion", [STILL, LIDAR_MOTION], ids=["still", "turning"])
def test_a_sweep_drops_what_lies_above_and_below_its_rays(motion: Motion) -> None:
    """A ray far beside the beams is met all the same."""
    view = make_lidar_view(make_lidar(12, 160), motion)
    up_and_down = torch.where(torch.arange(200) % 2 == 0, 1.2, -1.3).double()
    g = make_gaussians(10 * spherical(uniform(-3, 3, 200), up_and_down), scales=(0.02, 0.3), speed=3.0)
    assert len(project(g, view).index) == 0
    k = len(view.directions) // 3
    directions = view.directions.clone()
    directions[k] = (g.means[0] - view.centre()) @ POSE[:3, :3] / 10
    beside = replace(view, directions=directions)
    assert 0 in project(g, beside).index
    opacity = render_lidar(g, beside, tile(project(g, beside), beside)).opacity
    assert opacity.nonzero().flatten().tolist() == [k]


@pytest.mark.parametrize("motion", [STILL, LIDAR_MOTION, Motion((2.0, 2.0, 2.0))], ids=["still", "turning", "fast"])
@pytest.mark.parametrize("sensor", ["camera", "lidar", "narrow lidar", "lidar that looks up"])
def test_what_is_dropped_early_meets_no_ray(sensor: str, motion: Motion, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small and large Gaussians, near and far, all around, fast; cells much smaller than most of them; rays few."""
    bottom, top = {"lidar": (-0.5, 0.3), "narrow lidar": (-0.02, 0.02)}.get(sensor, (1.2, 1.57))
    local = F.normalize(torch.randn(1500, 3, dtype=F64) * tensor(1, 1, 0.4), dim=-1)
    if sensor == "camera":
        view: CameraView | LidarView = make_camera_view(12, 9, 15.0, "top_to_bottom", motion)
    else:
        directions = spherical(uniform(-math.pi, math.pi, 40), uniform(bottom, top, 40))
        fractions = (math.pi - torch.atan2(directions[:, 1], directions[:, 0])) / (2 * math.pi)
        view = rays_view(make_lidar(64, 2000, top, bottom), directions, fractions, motion)
        if sensor == "lidar that looks up":
            local = spherical(uniform(-math.pi, math.pi, 1500), uniform(0.5, 1.57, 1500))
    g = make_gaussians(torch.exp(uniform(0.5, 3.5, 1500, 1)) * local, scales=(0.02, 1.5), speed=20.0)
    contributes, part = pairs_of(g, view)
    kept = len(project(g, view).index)
    monkeypatch.setattr(project_module, "_in_front", lambda means, *_: torch.arange(len(means)))
    _, whole = pairs_of(g, view)
    assert kept < 1480 and contributes.sum() > 300
    assert not (contributes & whole & ~part).any()


@pytest.mark.parametrize("azimuth", [-3.0, -1.0, 2.5])
def test_one_ray_near_the_zenith_gets_its_gaussians(azimuth: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Azimuth means little there: a small Gaussian may reach all around."""
    ray = spherical(tensor(azimuth), tensor(1.55))
    view = rays_view(make_lidar(64, 2000, 1.57, 1.2), ray, tensor(0.5))
    local = uniform(5, 20, 1000, 1) * spherical(uniform(-math.pi, math.pi, 1000), uniform(1.3, 1.57, 1000))
    g = make_gaussians(local, scales=(0.02, 0.3))
    contributes, part = pairs_of(g, view)
    monkeypatch.setattr(project_module, "_in_front", lambda means, *_: torch.arange(len(means)))
    _, whole = pairs_of(g, view)
    assert contributes.sum() > 30 and not (contributes & whole & ~part).any()


# ---- near the sensor


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_a_gaussian_that_reaches_the_sensor_gets_all_rays(sensor: str) -> None:
    """Means ahead, scales that take a sigma point nearer than `near`: the bound is the whole plane and nothing is lost."""
    if sensor == "camera":
        view: CameraView | LidarView = make_camera_view(16, 12, 12.0)
        local, full = in_frustum(view, 40, 0.3, 1.5), tensor([0.0, 0], [16, 12])
    else:
        view = make_lidar_view(make_lidar(4, 32))
        local, full = around(40, 0.3, 1.0), tensor([-math.pi, -math.pi / 2], [math.pi, math.pi / 2])
    g = make_gaussians(local, scales=(0.05, 1.5))
    means, _ = local_of(g)
    axes = math.sqrt(3) * (POSE[:3, :3].T @ turn(g.quats) * g.scales[:, None]).transpose(1, 2)
    points = means[:, None] + torch.cat([torch.zeros_like(axes[:, :1]), axes, -axes], dim=1)
    near = ((points[..., 2] if sensor == "camera" else points.norm(dim=-1)) < NEAR).any(1)
    p = project(g, view)
    assert near.sum() > (10 if sensor == "camera" else 0)
    place = {i: k for k, i in enumerate(p.index.tolist())}
    contributes, listed_ = pairs_of(g, view)
    for i in torch.nonzero(near).flatten().tolist():
        if i in place:
            assert torch.equal(torch.stack([p.low[place[i]], p.high[place[i]]]), full)
            assert listed_[:, i].all()
        assert not (contributes[:, i] & ~listed_[:, i]).any()


def test_a_gaussian_around_the_sensor_is_not_lost() -> None:
    for view in (make_camera_view(), make_lidar_view(make_lidar(4, 32))):
        g = changed(make_gaussians(tensor([0.05, -0.05, 0.02])), scales=2.0, opacities=0.9)
        contributes, listed_ = pairs_of(g, view)
        assert not (contributes & ~listed_).any()


def test_large_gaussians_behind_the_camera_that_reach_ahead_are_not_lost() -> None:
    view = make_camera_view(16, 12, 12.0)
    g = make_gaussians(in_frustum(view, 200, 0.5, 2) * tensor(1, 1, -1), scales=(0.05, 6.0))
    contributes, listed_ = pairs_of(g, view)
    assert contributes.sum() > 100 and not (contributes & ~listed_).any()


# ---- single precision


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_bounds_in_single_precision(sensor: str) -> None:
    """Places of 10 m and angles of 3 rad are good to 1e-6; pixels to 1e-4."""
    if sensor == "camera":
        view: CameraView | LidarView = make_camera_view(32, 24, 30.0, "top_to_bottom", CAMERA_MOTION)
        g = make_gaussians(in_frustum(view, 100, 5, 20), speed=3.0)
    else:
        view = make_lidar_view(make_lidar(), LIDAR_MOTION)
        g = make_gaussians(around(100, 5, 20, (-3.0, 3.0)), speed=3.0)
    a, b = project(to_float32(g), view_float32(view)), project(g, view)
    assert a.low.dtype == torch.float32
    assert torch.equal(a.index.sort().values, b.index.sort().values)
    by_a, by_b = a.index.argsort(), b.index.argsort()
    torch.testing.assert_close(a.low[by_a].to(F64), b.low[by_b], atol=2e-3, rtol=1e-4)
    torch.testing.assert_close(a.high[by_a].to(F64), b.high[by_b], atol=2e-3, rtol=1e-4)


def test_the_same_lidar_values_in_single_precision_around_the_seam() -> None:
    view = make_lidar_view(make_lidar(4, 48), LIDAR_MOTION)
    local = uniform(5, 9, 30, 1) * spherical(math.pi + uniform(-0.3, 0.3, 30), uniform(-0.3, 0.1, 30))
    g = make_gaussians(local, scales=(0.2, 0.4))
    g32, view32 = to_float32(g), view_float32(view)
    result, expected = render_lidar(g32, view32, tile(project(g32, view32), view32)), oracle_lidar(g, view)
    for name in ("distance", "intensity", "drop", "opacity"):
        torch.testing.assert_close(getattr(result, name).to(F64), getattr(expected, name), atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_single_precision_holds_far_from_the_origin_of_the_world(sensor: str) -> None:
    """131 km away float32 counts in steps of 1/64 m: the sensor and the means stand on such steps, the rest must not."""
    near, far = torch.eye(4, dtype=F64), make_pose((0.0, 0.0, 0.0), (131072.0, -131072.0, 0.0))
    if sensor == "camera":
        views: list[CameraView | LidarView] = [make_camera_view(32, 24, 30.0, T_world_cam=T) for T in (near, far)]
        local = in_frustum(make_camera_view(32, 24, 30.0), 60, 5, 20)
    else:
        views, local = [make_lidar_view(make_lidar(), T_world_lidar=T) for T in (near, far)], around(60, 5, 20)
    g = make_gaussians((64 * local).round() / 64, T=near)
    scenes = [g, changed(g, means=g.means + far[:3, 3])]
    a, b = (project(to_float32(g), view_float32(view)) for g, view in zip(scenes, views, strict=True))
    assert torch.equal(a.index, b.index)
    torch.testing.assert_close(a.low, b.low, atol=1e-4, rtol=0)
    torch.testing.assert_close(a.high, b.high, atol=1e-4, rtol=0)
