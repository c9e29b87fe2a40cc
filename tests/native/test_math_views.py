# SPDX-License-Identifier: Apache-2.0
"""kernels/math: sensors that move, and bounds in their planes, against nurec_lite/geometry and nurec_lite/splat."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from kernel_math import F64, call, close
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.geometry import camera as cameras
from nurec_lite.geometry import lidar as lidars
from nurec_lite.geometry.camera import SHUTTERS, Camera
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import pose_matrix, quat_multiply, rotvec_to_quat
from nurec_lite.scene import footprint
from nurec_lite.splat import project, view_row
from nurec_lite.splat.views import CameraView, LidarView, View

N = 129
LENS = (-0.2, 0.06, 0.001, -0.002, -0.007)
STRONG = (0.3, 0.2, 0.07, -0.06, 0.1)  # ten rounds of Newton's method reach rounding only with the right Jacobian
LIDAR = Lidar("lidar", torch.eye(4, dtype=F64), torch.linspace(-0.4, 0.1, 16, dtype=F64))
NEAR = float(torch.tensor(project.NEAR, dtype=torch.float32))  # as the kernels keep it
SEAM = math.pi


def make_camera(shutter: str = "global", distortion: tuple[float, ...] = LENS) -> Camera:
    size = {"width": 61, "height": 47, "fx": 40.0, "fy": 41.0, "cx": 29.0, "cy": 24.5}
    return Camera("camera", **size, T_rig_cam=torch.eye(4, dtype=F64), distortion=distortion, shutter=shutter)


def camera_numbers(camera: Camera) -> Tensor:
    """[1, 12] in the order of `CameraModel`."""
    size = [camera.width, camera.height, camera.fx, camera.fy, camera.cx, camera.cy]
    lens = camera.distortion or (0.0,) * 5
    return torch.tensor([[*size, *lens, SHUTTERS.index(camera.shutter)]], dtype=F64)


def lidar_numbers(lidar: Lidar) -> Tensor:
    return torch.tensor([view_row.lidar_numbers(lidar)], dtype=F64)


def moving_poses() -> tuple[Tensor, Tensor]:
    """Start and end a metre and 6 degrees apart."""
    q = F.normalize(torch.randn(4, dtype=F64), dim=0)
    turned = quat_multiply(q, rotvec_to_quat(0.1 * F.normalize(torch.randn(3, dtype=F64), dim=0)))
    at = 100 * torch.randn(3, dtype=F64)
    return pose_matrix(q, at), pose_matrix(turned, at + F.normalize(torch.randn(3, dtype=F64), dim=0))


def camera_view(shutter: str = "top_to_bottom", distortion: tuple[float, ...] = LENS) -> CameraView:
    return CameraView(*moving_poses(), 5.0, 5.1, make_camera(shutter, distortion))


def lidar_view() -> LidarView:
    directions = lidars.unit_directions(torch.rand(5, 2, dtype=F64))
    return LidarView(*moving_poses(), 5.0, 5.1, LIDAR, directions, torch.rand(5, dtype=F64))


def motion_numbers(view: View) -> Tensor:
    """[1, 25] in the order of `Motion`."""
    ends = view.to_sensor_ends()
    parts = [*(T[:3, :3].flatten() for T in ends), *(T[:3, 3] for T in ends)]
    return torch.cat([*parts, torch.tensor([view.time_end - view.time_start], dtype=F64)])[None]


def points_before(view: View, distance: float = 10) -> Tensor:
    """[N, 3] relative to the view's centre, in front of the sensor (its z axis) and beside it."""
    local = torch.randn(N, 3, dtype=F64) * distance / 3 + torch.tensor([0, 0, distance], dtype=F64)
    return local @ view.T_world_sensor_start[:3, :3].T


def about(view: View) -> Tensor:
    """[N, 3] relative to the view's centre, all around; the first ones at azimuth +-pi, where a sweep begins and ends."""
    angles = (torch.rand(N, 2, dtype=F64) - 0.5) * torch.tensor([2 * math.pi, 1], dtype=F64)
    angles[:20, 0] = SEAM + 0.01 * torch.randn(20, dtype=F64)
    return (10 * lidars.unit_directions(angles)) @ view.T_world_sensor_start[:3, :3].T


def gaussians(means: Tensor) -> list[Tensor]:
    """Mean, quaternion, scales, velocity and how many standard deviations they reach."""
    q = F.normalize(torch.randn(N, 4, dtype=F64), dim=-1)
    return [means, q, torch.rand(N, 3, dtype=F64), 3 * torch.randn(N, 3, dtype=F64), 3 * torch.rand(N, 1, dtype=F64)]


def points_of(means: Tensor, q: Tensor, s: Tensor, *rest: Any) -> Tensor:
    return project._sigma_points(means, q, s)


# ---- angles


def test_remainder_and_clamp() -> None:
    a = torch.cat([5 * torch.randn(51, 1, dtype=F64), torch.tensor([[0], [3], [-3], [1.5]], dtype=F64)])
    close(call("positive_remainder", a, 1.5), torch.remainder(a, 1.5))
    close(call("clamp01", a), a.clamp(0, 1), 0)


def test_wrapped_angles() -> None:
    a = torch.cat([9 * torch.randn(51, dtype=F64), torch.arange(-4, 5, dtype=F64) * math.pi])[:, None]
    found, expected = call("wrap_angle", a), lidars.wrap_angle(a)
    close(torch.sin(found), torch.sin(expected))
    close(torch.cos(found), torch.cos(expected))
    assert (found >= -math.pi).all() and (found < math.pi).all()


def test_azimuth_and_elevation() -> None:
    """Poles, both sides of azimuth pi, and the origin."""
    special = [
        [0, 0, 2],
        [0, 0, -2],
        [-1, 0.0, 0],
        [-1, -0.0, 0],
        [-1, 1e-12, 1],
        [-1, -1e-12, 1],
        [1e-9, 0, 1],
        [0] * 3,
    ]
    p = torch.cat([torch.randn(51, 3, dtype=F64), torch.tensor(special, dtype=F64)])
    found = call("spherical", p)
    close(found[:, :2], lidars.azimuth_elevation(p))
    close(call("elevation_of", p), found[:, 1:2])
    turn, expected = call("turn_between", p, p.roll(1, 0))[:, 0], found[:, 0].roll(1) - found[:, 0]
    flat = (p[:, :2].norm(dim=1) > 0) & (
        p.roll(1, 0)[:, :2].norm(dim=1) > 0
    )  # elsewhere nothing is turned about the axis
    close(torch.stack([turn.sin(), turn.cos()], 1)[flat], torch.stack([expected.sin(), expected.cos()], 1)[flat])
    close(found[:, 2:], p.norm(dim=1, keepdim=True))


# ---- cameras


@pytest.mark.parametrize("distortion", [(), LENS])
def test_projection_of_points(distortion: tuple[float, ...]) -> None:
    """Behind the camera and in its plane, too."""
    camera = make_camera(distortion=distortion)
    p = torch.randn(N, 3, dtype=F64)
    p[:5, 2], p[5:10, 2], p[10:15, 2] = 0, 1e-7, -1e-7
    pixels, z = cameras.project_points(camera, p)
    close(call("camera_project", camera_numbers(camera), p), torch.cat([pixels, z[:, None]], dim=1))


@pytest.mark.parametrize("distortion", [(), LENS, STRONG])
def test_distortion_and_its_inverse(distortion: tuple[float, ...]) -> None:
    camera = make_camera(distortion=distortion)
    xy = 1.6 * (torch.rand(N, 2, dtype=F64) - 0.5)
    seen = cameras.distort(camera, xy)
    close(call("distort", camera_numbers(camera), xy), seen)
    close(call("undistort", camera_numbers(camera), seen), cameras.undistort(camera, seen))
    close(call("undistort", camera_numbers(camera), seen), xy)


@pytest.mark.parametrize("shutter", SHUTTERS)
def test_when_a_pixel_is_read(shutter: str) -> None:
    camera = make_camera(shutter)
    pixels = 100 * torch.rand(N, 2, dtype=F64) - 20
    close(call("camera_fraction", camera_numbers(camera), pixels), cameras.shutter_fraction(camera, pixels)[:, None])


@pytest.mark.parametrize("shutter", SHUTTERS)
def test_where_points_appear_in_a_camera(shutter: str) -> None:
    view = camera_view(shutter)
    p, v = points_before(view), 3 * torch.randn(N, 3, dtype=F64)
    pixels, z = view.project(p, v)
    found = call("camera_appear", camera_numbers(view.camera), motion_numbers(view), p, v)
    close(found, torch.cat([pixels, z[:, None]], dim=1), 1e-11)


def test_points_at_a_fraction_of_the_view() -> None:
    view = camera_view()
    p, v, fraction = torch.randn(N, 3, dtype=F64), torch.randn(N, 3, dtype=F64), torch.rand(N, 1, dtype=F64)
    expected = view._at(p, v, fraction[:, 0])
    close(call("motion_at", motion_numbers(view), p, v, fraction), expected)
    close(call("moving_at", motion_numbers(view), p, v, fraction), expected)
    still = view._at(p, torch.zeros_like(p), fraction[:, 0])
    close(call("point_at", motion_numbers(view), p, fraction), still)
    beside = view._at(p + v, torch.zeros_like(p), fraction[:, 0])
    close(call("direction_at", motion_numbers(view), v, fraction), beside - still)


# ---- lidars


def test_when_a_lidar_looks_there() -> None:
    azimuth = torch.cat([7 * torch.randn(51, dtype=F64), torch.arange(-3, 4, dtype=F64) * math.pi])
    found, expected = call("lidar_fraction", lidar_numbers(LIDAR), azimuth[:, None])[:, 0], LIDAR.spin_fraction(azimuth)
    apart = (found - expected).abs()
    assert torch.minimum(apart, 1 - apart).max() < 1e-12  # 0 and 1 are the same place


def test_a_lidar_that_does_not_spin_looks_everywhere_in_the_middle_of_its_sweep() -> None:
    given = [replace(LIDAR, spins=False), LIDAR, replace(LIDAR, clockwise=False, azimuth_start=-100.0)]
    rates = torch.cat([lidar_numbers(lidar) for lidar in given])
    assert call("lidar_spins", rates)[:, 0].tolist() == [0, 1, 1]
    assert rates[:1].float().double().equal(rates[:1])  # as the view's row holds them
    still = call("lidar_fraction", rates[:1].expand(7, 2), torch.linspace(-4, 4, 7, dtype=F64)[:, None])
    assert still.eq(0.5).all()


def test_where_points_appear_in_a_lidar() -> None:
    view = lidar_view()
    means, v = about(view), 3 * torch.randn(N, 3, dtype=F64)
    numbers = [lidar_numbers(LIDAR), motion_numbers(view)]
    lead = view._lead_fractions(means[:, None], v[:, None])
    close(call("lidar_lead", *numbers, means, v), lead, 1e-11)
    points = points_of(*gaussians(means))
    angles, ranges = view.project(points, v[:, None])
    found = call("lidar_appear", *numbers, means, points[:, 1:4] - means[:, None], v)
    close(found, torch.cat([angles, ranges[..., None]], dim=-1), 1e-11)


# ---- bounds


def test_reach() -> None:
    opacity = torch.cat([torch.rand(51, 1, dtype=F64), torch.tensor([[0], [1 / 255], [1]], dtype=F64)])
    expected = (2 * torch.log(opacity / project.ALPHA_MIN).clamp(min=0)).sqrt()
    close(call("reach_of", opacity), expected, 1e-7)  # the square root of the rounding of ln 1
    close(call("reach_of", opacity).square(), expected.square())


def test_sigma_points() -> None:
    mean, q, s, *_ = gaussians(torch.randn(N, 3, dtype=F64))
    expected = project._sigma_points(mean, q, 100 * s)
    axes = call("sigma_axes", q, 100 * s)
    close(axes, expected[:, 1:4] - mean[:, None])
    close(axes, mean[:, None] - expected[:, 4:])


def test_angles_for_bounds() -> None:
    """Angles hold to 2e-7 in any quadrant; that of no vector is 0."""
    angle = torch.cat([math.pi * torch.arange(-4, 5, dtype=F64) / 4, 7 * torch.randn(1000, dtype=F64)])
    length = 10 ** (6 * torch.randn(len(angle), dtype=F64).clamp(-3, 3))
    y, x = ((length * f(angle)).float().double() for f in (torch.sin, torch.cos))
    close(call("quick_angle", y[:, None], x[:, None]), torch.atan2(y, x)[:, None], 4e-7)
    assert call("quick_angle", torch.zeros(1, 1, dtype=F64), torch.zeros(1, 1, dtype=F64)).item() == 0


def test_unscented_bounds() -> None:
    places, reach = torch.randn(N, 7, 3, dtype=F64), 3 * torch.rand(N, 1, dtype=F64)
    found = call("unscented_bounds", places, reach)
    close(found, torch.cat(project._bounds(places[..., :2], reach[:, 0]), dim=1))
    close(call("any_nearer", places, -1.0), (places[..., 2] < -1).any(1, keepdim=True).double(), 0)
    found[:2, 0], found[2:4, 3] = math.nan, math.inf
    close(call("finite", found), torch.isfinite(found).all(1, keepdim=True).double(), 0)


@pytest.mark.parametrize("distortion", [(), LENS])
def test_spheres_in_a_camera_cone(distortion: tuple[float, ...]) -> None:
    camera = make_camera(distortion=distortion)
    p, radius = 3 * torch.randn(1001, 3, dtype=F64), torch.rand(1001, 1, dtype=F64)
    expected = project._in_cone(p, radius[:, 0], camera)
    assert 50 < expected.sum() < 950
    close(call("in_cone", camera_numbers(camera), p, radius), expected[:, None].double(), 0)


def expected_bounds(view: CameraView | LidarView, args: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """[N, 4], which of them crossed the seam, and which were widened."""
    means, *_, motion, reach = args
    places, depths = view.project(points_of(*args), motion[:, None])
    narrow = low, high = project._bounds(places, reach[:, 0])
    if isinstance(view, LidarView):
        low, high = project._over_the_seam(low, high, view.shifts(places[:, 0], means, motion), view)
    crossed = ((low != narrow[0]) | (high != narrow[1])).any(1)
    near = (depths < NEAR).any(1)
    return torch.cat(project._widen(low, high, near, view), dim=1), crossed, near


@pytest.mark.parametrize("shutter", ["global", "bottom_to_top", "left_to_right"])
def test_bounds_in_a_camera(shutter: str) -> None:
    view = camera_view(shutter)
    args = gaussians(points_before(view, 1.5))
    expected, _, near = expected_bounds(view, args)
    assert near.any() and not near.all()
    found = call("camera_bounds", camera_numbers(view.camera), motion_numbers(view), *args)
    close(found, expected, 1e-9)  # far outside the image distortion is a polynomial of high degree


def test_bounds_in_a_lidar() -> None:
    view = lidar_view()
    args = gaussians(about(view))
    args[0][-30:] *= 0.02  # as near as a Gaussian is large
    expected, crossed, near = expected_bounds(view, args)
    assert crossed.any() and near.any()
    numbers = [lidar_numbers(LIDAR), motion_numbers(view)]
    close(call("lidar_bounds", *numbers, *args), expected, 1e-11)
    places, _ = view.project(points_of(*args), args[3][:, None])
    narrow = torch.cat(project._bounds(places, args[4][:, 0]), dim=1)
    wide = project._over_the_seam(narrow[:, :2], narrow[:, 2:], view.shifts(places[:, 0], args[0], args[3]), view)
    at = torch.cat([places[:, 0], torch.ones(N, 1, dtype=F64)], dim=1)
    close(call("over_the_seam", *numbers, args[0], args[3], at, narrow), torch.cat(wide, dim=1), 1e-11)


def test_a_gaussian_at_the_sensor_gets_the_whole_plane() -> None:
    views = [replace(v, T_world_sensor_end=v.T_world_sensor_start) for v in (camera_view("global"), lidar_view())]
    args = [torch.zeros(1, 3, dtype=F64), torch.eye(4, dtype=F64)[:1], torch.full((1, 3), 0.05, dtype=F64)]
    args += [torch.zeros(1, 3, dtype=F64), torch.ones(1, 1, dtype=F64)]
    found = call("camera_bounds", camera_numbers(make_camera()), motion_numbers(views[0]), *args)
    close(found, torch.tensor([[0, 0, 61, 47]], dtype=F64))
    found = call("lidar_bounds", lidar_numbers(LIDAR), motion_numbers(views[1]), *args)
    close(found, torch.tensor([[-math.pi, -math.pi / 2, math.pi, math.pi / 2]], dtype=F64))


@pytest.mark.parametrize("lens", [(), LENS, STRONG], ids=["none", "lens", "strong"])
def test_pixels_a_metre(lens: tuple[float, ...]) -> None:
    """Within the image, around its border with the margin, behind, and at the nearest depth."""
    camera = make_camera(distortion=lens)
    u, v = torch.meshgrid(
        torch.linspace(-40, 100, 57, dtype=F64), torch.linspace(-40, 90, 53, dtype=F64), indexing="ij"
    )
    rays = torch.stack([(u - camera.cx) / camera.fx, (v - camera.cy) / camera.fy, torch.ones_like(u)], dim=-1).view(
        -1, 3
    )
    points = torch.cat([rays * z for z in (-3.0, 0.0, 0.3, footprint.NEAREST, 0.51, 7.0, 900.0)])
    found = call("pixels_a_metre", camera_numbers(camera), points, footprint.NEAREST, footprint.MARGIN)
    expected = footprint._pixels_a_metre(camera, points)
    assert 0 < int((expected > 0).sum()) < len(points)
    close(found, expected[:, None])
