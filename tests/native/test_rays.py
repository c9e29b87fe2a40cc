# SPDX-License-Identifier: Apache-2.0
"""The operator rays against View.rays() in double precision."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from parity import DEVICES, EPS, cast_view
from splat_scenes import (
    CAMERA_MOTION,
    F64,
    LIDAR_MOTION,
    POSE,
    STILL,
    Motion,
    make_camera_view,
    make_lidar,
    make_lidar_view,
    rays_view,
    uniform,
)
from test_math import quats
from torch import Tensor

from nurec_lite.geometry.camera import SHUTTERS, pixel_fractions, shutter_fraction
from nurec_lite.geometry.se3 import pose_matrix
from nurec_lite.native import ops
from nurec_lite.native.operators.rays import rays
from nurec_lite.splat.view_row import FIELDS, NUMBERS, view_row
from nurec_lite.splat.views import CameraView, LidarView, Rays

TURN = Motion((0.5, -0.2, 1.0), (0.5, 1.0, -2.0), 0.1)
Case = CameraView | LidarView


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def angle_of(view: Case) -> float:
    return float(view_row(view)[FIELDS["path.turn"]].norm())


def check(view: Case, device: str, poses: tuple[Tensor, Tensor] | None = None) -> Rays:
    """Rays of the view, cast to float32, within the rounding of its numbers: of the axes, of the products with them (some ten in a row),
    of an angle and of a fraction; these move the rays as far as the sensor goes or turns."""
    view = cast_view(view, torch.float32)
    exact, on_device = cast_view(view, F64), cast_view(view, torch.float32, device)
    found, expected = rays(on_device), exact.rays()
    shift = view.centre().double() - exact.centre()  # float32 has a centre of its own
    limits = {
        "origins": EPS * (2 * view.travel() + float(shift.abs().max()) + 1e-30),
        "directions": EPS * (16 + 6 * angle_of(view)),
        "delays": 3 * EPS * (view.time_end - view.time_start),
    }
    wanted = {"origins": expected.origins - shift, "directions": expected.directions, "delays": expected.delays}
    for name, limit in limits.items():
        value = getattr(found, name)
        assert value.dtype == torch.float32 and value.device.type == device
        torch.testing.assert_close(value.double().cpu(), wanted[name], atol=limit, rtol=2 * EPS)
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("motion", [STILL, CAMERA_MOTION, TURN], ids=["still", "moving", "turning"])
@pytest.mark.parametrize("shutter", SHUTTERS)
def test_cameras(shutter: str, motion: Motion, device: str) -> None:
    for size in ((1, 1), (9, 7), (33, 31), (1, 40), (40, 1)):
        found = check(make_camera_view(*size, 8.0, shutter, motion), device)
        assert len(found.delays) == size[0] * size[1]
    lens = (-0.3, 0.1, 1e-3, -2e-3, 0.01)
    check(make_camera_view(33, 31, 30.0, shutter, motion, distortion=lens), device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("motion", [STILL, LIDAR_MOTION, TURN], ids=["still", "moving", "turning"])
def test_lidars(motion: Motion, device: str) -> None:
    check(make_lidar_view(make_lidar(), motion), device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("r", [0, 1, 255, 257])
def test_any_number_of_rays_at_any_fractions(r: int, device: str) -> None:
    directions = torch.nn.functional.normalize(torch.randn(r, 3, dtype=F64), dim=-1)
    found = check(rays_view(make_lidar(), directions, uniform(-1, 2, r), TURN), device)
    assert found.origins.shape == found.directions.shape == (r, 3) and found.delays.shape == (r,)


def turned(a: Tensor, b: Tensor) -> LidarView:
    """A lidar between two random places, with these axes at start and end."""
    ends = [pose_matrix(q, torch.tensor([12.0, -5.0, 1.7], dtype=F64) + torch.randn(3, dtype=F64)) for q in (a, b)]
    view = make_lidar_view(make_lidar(4, 16), LIDAR_MOTION)
    return replace(view, T_world_sensor_start=ends[0], T_world_sensor_end=ends[1])


@pytest.mark.parametrize("device", DEVICES)
def test_poses_of_any_turn(device: str) -> None:
    """None of half a turn, which both ways about are as short as float32 can tell."""
    q = quats()
    for a, b in zip(q, q[torch.randperm(len(q))], strict=True):
        view = turned(a, b)
        if angle_of(view) < math.pi - 1e-3:
            check(view, device)
        check(turned(a, a), device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_half_a_turn(axis: int, device: str) -> None:
    """Exactly: from the sensor's axes to two of them reversed."""
    half = torch.eye(4, dtype=F64)[axis + 1]
    view = turned(torch.eye(4, dtype=F64)[0], half)
    check(view, device)
    assert angle_of(view) == pytest.approx(math.pi)


@pytest.mark.parametrize("device", DEVICES)
def test_rays_far_from_the_origin_of_the_world(device: str) -> None:
    """Origins are relative to the centre before they are rounded: at 131 km float32 counts in steps of 1/64 m."""
    T = POSE.clone()
    T[:2, 3] += 131072
    check(make_lidar_view(make_lidar(), LIDAR_MOTION, T), device)


@pytest.mark.parametrize("device", DEVICES)
def test_the_same_in_float32_by_torch(device: str) -> None:
    """Beside view.rays() as the trainer had it: no origin or delay is less exact than its rounding."""
    for view in (make_camera_view(33, 31, 30.0, "bottom_to_top", CAMERA_MOTION), make_lidar_view(make_lidar(), TURN)):
        on_device = cast_view(view, torch.float32, device)
        found, expected = rays(on_device), on_device.rays()
        for name in ("origins", "directions", "delays"):
            torch.testing.assert_close(getattr(found, name), getattr(expected, name), atol=2e-6, rtol=2e-6)


def test_poses_that_are_learned_keep_their_gradient() -> None:
    view: Any = cast_view(make_lidar_view(make_lidar(4, 16), LIDAR_MOTION), torch.float32)
    for name in ("T_world_sensor_start", "T_world_sensor_end"):
        leaf = getattr(view, name).clone().requires_grad_()
        (gradient,) = torch.autograd.grad(rays(replace(view, **{name: leaf})).directions.sum(), leaf)
        assert gradient[:3, :3].any()
    assert not rays(view).origins.requires_grad


@pytest.mark.parametrize("shutter", SHUTTERS)
def test_fractions_of_pixels_are_made_once(shutter: str) -> None:
    camera = make_camera_view(9, 7, 8.0, shutter).camera
    found = pixel_fractions(camera)
    assert found is pixel_fractions(camera) and found.shape == (7, 9) and found.dtype == torch.float32
    middle = torch.tensor([4.5, 1.5], dtype=F64)  # of row 1, column 4
    expected = {
        "global": 0.5,
        "top_to_bottom": 1 / 6,
        "bottom_to_top": 5 / 6,
        "left_to_right": 0.5,
        "right_to_left": 0.5,
    }
    assert (
        float(found[1, 4]) == pytest.approx(expected[shutter]) == pytest.approx(float(shutter_fraction(camera, middle)))
    )


@pytest.mark.parametrize("device", DEVICES)
def test_origins_may_be_left_out(device: str) -> None:
    view = cast_view(make_camera_view(37, 5, 30.0, "top_to_bottom", CAMERA_MOTION), torch.float32, device)
    all_of, found = rays(view), rays(view, with_origins=False)
    assert found.origins.shape == (0, 3) and len(all_of.origins) == 37 * 5
    assert found.directions.equal(all_of.directions) and found.delays.equal(all_of.delays)


def test_fractions_are_as_many_as_rays_or_one() -> None:
    directions, numbers = torch.zeros(5, 3), torch.zeros(NUMBERS)
    one = torch.ops.nurec_lite.rays(numbers, directions, torch.tensor([0.3]))
    five = torch.ops.nurec_lite.rays(numbers, directions, torch.full((5,), 0.3))
    assert all(torch.equal(a, b) for a, b in zip(one, five, strict=True))
    for n in (0, 2, 4, 6):
        with pytest.raises(ValueError, match=rf"fractions has shape \[{n}\], but must have \[5\], or \[1\]"):
            torch.ops.nurec_lite.rays(numbers, directions, torch.zeros(n))
