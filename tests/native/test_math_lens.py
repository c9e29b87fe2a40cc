# SPDX-License-Identifier: Apache-2.0
"""kernels/math/lens.cuh in double precision against nurec_lite/geometry/lens.py and nurec_lite/splat/project.py."""

import math

import pytest
import torch
from kernel_math import F64, call, close
from lenses import ANGULAR, LENSES, lens_view
from splat_scenes import CAMERA_MOTION
from test_math_views import N, camera_numbers, gaussians, motion_numbers, points_of
from torch import Tensor

from nurec_lite.geometry.camera import SHUTTERS, Camera, lens_numbers, project_points, view_limits
from nurec_lite.geometry.lens import moved, places
from nurec_lite.geometry.se3 import quat_to_matrix
from nurec_lite.scene import footprint
from nurec_lite.splat import project
from nurec_lite.splat.view_row import LENS_FIELDS, view_row
from nurec_lite.splat.views import CameraView

NEAR = float(torch.tensor(project.NEAR, dtype=torch.float32))  # as the kernels keep it


def numbers_of(camera: Camera) -> Tensor:
    """[1, 22] in the order of `Lens`, not rounded."""
    lens, (limit, edge) = lens_numbers(camera), view_limits(camera)
    skew = (camera.fy * k for k in lens.skew)
    rest = (*lens.denominator, *lens.tangential, *lens.prism, *skew, limit, edge)
    return torch.tensor([[float(lens.angular), *lens.radial, *rest]], dtype=F64)


def plain_numbers(camera: Camera) -> Tensor:
    """[1, 12] of `CameraModel`: the lens reads all but the distortion."""
    size = [camera.width, camera.height, camera.fx, camera.fy, camera.cx, camera.cy]
    return torch.tensor([[*size, 1.0, 0, 0, 0, 0, SHUTTERS.index(camera.shutter)]], dtype=F64)


def all_around() -> Tensor:
    """[N, 3] on the axis, ahead, aside and behind."""
    p = 4 * torch.randn(N, 3, dtype=F64)
    p[0], p[1, :2], p[2, 2], p[3] = torch.tensor([0, 0, 2.0]), 1e-9, 0, torch.tensor([1e-14, 0, 3])
    return p


@pytest.mark.parametrize("kind", LENSES)
def test_where_a_lens_puts_points(kind: str) -> None:
    camera = lens_view(kind).camera
    lens, (limit, _) = lens_numbers(camera), view_limits(camera)
    p = all_around()
    q = places(lens, p)
    close(call("lens_place", numbers_of(camera), p), q)
    near = q[q.norm(dim=1) < 3]
    seen, r = moved(lens, near, limit), torch.rand(50, 1, dtype=F64) * limit
    assert bool((near.norm(dim=1) > limit).any()) == (kind in ANGULAR or limit < 3)
    close(call("lens_move", numbers_of(camera), near), seen, 1e-11)
    straight = torch.cat([r, torch.zeros_like(r)], dim=1)
    plain = numbers_of(camera).clone()
    plain[:, 12:18] = 0  # without tangential distortion and prism
    close(call("lens_magnified", plain, r) * r, call("lens_move", plain, straight)[:, :1])
    pixels, depth = project_points(camera, p)
    found = call("lens_project", plain_numbers(camera), numbers_of(camera), p)
    close(found[:, :2], pixels, 1e-11)
    close(found[:, 2:], depth.abs()[:, None] if kind in ANGULAR else depth[:, None])


@pytest.mark.parametrize("shutter", SHUTTERS)
@pytest.mark.parametrize("kind", LENSES)
def test_bounds_through_a_lens(kind: str, shutter: str) -> None:
    view = lens_view(kind, shutter=shutter, motion=CAMERA_MOTION)
    args = gaussians(all_around() @ view.T_world_sensor_start[:3, :3].T)
    numbers = plain_numbers(view.camera), numbers_of(view.camera), motion_numbers(view)
    means, *_, motion, reach = args
    points = points_of(*args)
    at, depths = view.project(points, motion[:, None])
    close(call("lens_appear", *numbers, means, motion)[:, :2], at[:, 0], 1e-9)
    near = (project._ahead(points, depths, view) < NEAR).any(1)
    expected = torch.cat(project._widen(*project._bounds(at, reach[:, 0]), near, view), dim=1)
    assert near.any() and not near.all()
    close(call("lens_bounds", *numbers, *args), expected, 1e-9)


@pytest.mark.parametrize("kind", LENSES)
def test_the_depth_of_a_place_beyond_the_limit_is_negative(kind: str) -> None:
    camera, p = lens_view(kind).camera, all_around()
    pixels, depth = project_points(camera, p)
    found = call("place_through", plain_numbers(camera), numbers_of(camera), p)
    close(found, torch.cat([pixels, depth[:, None]], dim=1), 1e-11)
    assert (depth < 0).any()
    scale = call("pixels_a_metre_at", plain_numbers(camera), found, footprint.NEAREST, footprint.MARGIN)
    close(scale, footprint._pixels_a_metre(camera, p)[:, None])
    assert 0 < (scale > 0).sum() < len(p)


@pytest.mark.parametrize("kind", LENSES)
def test_which_spheres_a_lens_may_see(kind: str) -> None:
    view = lens_view(kind)
    p, radius = 3 * torch.randn(1001, 3, dtype=F64), torch.rand(1001, 1, dtype=F64)
    expected = project._in_cone(p, radius[:, 0], view.camera)
    assert 50 < expected.sum() < 950
    close(call("in_lens_cone", numbers_of(view.camera), p, radius), expected[:, None].double(), 0)
    forward = quat_to_matrix(view.pose(p.new_tensor(0.5))[0])[:, 2].expand_as(p)
    close(call("lens_depth", numbers_of(view.camera), p, forward), project._depth(p, view)[:, None])


def test_a_gaussian_at_the_camera_gets_the_whole_image() -> None:
    view = lens_view("fisheye")
    args = [torch.zeros(1, 3, dtype=F64), torch.eye(4, dtype=F64)[:1], torch.full((1, 3), 0.05, dtype=F64)]
    args += [torch.zeros(1, 3, dtype=F64), torch.ones(1, 1, dtype=F64)]
    found = call("lens_bounds", plain_numbers(view.camera), numbers_of(view.camera), motion_numbers(view), *args)
    close(found, torch.tensor([[0, 0, 33, 31]], dtype=F64))


def test_a_row_holds_the_lens_as_kernels_read_it() -> None:
    for kind in LENSES:
        view = lens_view(kind)
        found = view_row(view)[-sum(LENS_FIELDS.values()) :].double()
        close(found[None], numbers_of(view.camera), 1e-7)
        close(call("lens_exists", torch.stack([found, 0 * found])), torch.tensor([[1.0], [0.0]], dtype=F64), 0)
    plain: CameraView = lens_view("rational")
    assert math.isfinite(float(view_row(plain).sum()))


def test_a_plain_camera_is_the_special_case_of_a_lens() -> None:
    """Coefficients that both have: the same bounds by either path."""
    numbers = (-0.2, 0.06, 0.001, -0.002, -0.007)
    lens, view = lens_view("rational", focal=30.0), lens_view("rational", focal=30.0)
    camera = lens.camera
    plain = Camera(
        camera.name, camera.width, camera.height, camera.fx, camera.fy, camera.cx, camera.cy, camera.T_rig_cam, numbers
    )
    wide = Camera(
        camera.name, camera.width, camera.height, camera.fx, camera.fy, camera.cx, camera.cy, camera.T_rig_cam,
        (*numbers, 0.0, 0.0, 0.0),
    )  # fmt: skip
    rays = torch.rand(N, 2, dtype=F64) * torch.tensor([33.0, 31.0], dtype=F64)
    p = torch.cat(
        [(rays - rays.new_tensor([plain.cx, plain.cy])) / rays.new_tensor([plain.fx, plain.fy]), torch.ones(N, 1)], 1
    )
    args = gaussians(9 * p @ view.T_world_sensor_start[:3, :3].T)
    args[2] *= 0.2
    found = call("lens_bounds", plain_numbers(wide), numbers_of(wide), motion_numbers(view), *args)
    close(found, call("camera_bounds", camera_numbers(plain), motion_numbers(view), *args), 1e-9)
