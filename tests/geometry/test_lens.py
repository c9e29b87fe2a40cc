# SPDX-License-Identifier: Apache-2.0
"""Lenses beyond the pinhole: against values by hand, against NCore's own models, and there and back."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from lenses import ANGULAR, LENSES
from torch import Tensor

from nurec_lite.geometry.camera import Camera, lens_flaw, lens_numbers, project_points, unproject, view_limits
from nurec_lite.geometry.lens import fold, jacobian, moved

F64 = torch.float64


def make_camera(kind: str, focal: float | None = None) -> Camera:
    """640x480 pixels, 200 degrees from side to side, or 70 through a pinhole."""
    model, numbers = LENSES[kind]
    f = focal or (183.0 if kind in ANGULAR else 457.0)
    return Camera("c", 640, 480, f, 1.02 * f, 311.0, 245.5, torch.eye(4, dtype=F64), numbers, lens=model)


def pixels(n: int = 400) -> Tensor:
    return torch.rand(n, 2, dtype=F64) * torch.tensor([640.0, 480.0], dtype=F64)


@pytest.mark.parametrize("kind", LENSES)
def test_pixels_come_back_from_their_rays(kind: str) -> None:
    camera, at = make_camera(kind), pixels()
    at[0] = torch.tensor([camera.cx, camera.cy])
    rays = unproject(camera, at)
    torch.testing.assert_close(rays.norm(dim=-1), torch.ones(len(at), dtype=F64))
    back, depth = project_points(camera, 7 * rays)
    torch.testing.assert_close(back, at, atol=1e-8, rtol=0)
    torch.testing.assert_close(depth, torch.full_like(depth, 7) if kind in ANGULAR else 7 * rays[:, 2])
    assert (kind in ANGULAR) == bool((rays[:, 2] < 0).any())  # it sees behind itself
    assert lens_flaw(camera) is None


def test_a_fisheye_by_hand() -> None:
    """theta (1 + k1 theta^2 + k2 theta^4), at 90 and at 100 degrees."""
    camera = replace(make_camera("fisheye", 100.0), distortion=(0.01, -0.001, 0.0, 0.0))
    a, b = math.pi / 2, math.radians(100)
    points = torch.tensor([[2.0, 0, 0], [0, math.sin(b), math.cos(b)], [0, 0, 5]], dtype=F64)
    u = camera.cx + 100 * a * (1 + 0.01 * a**2 - 0.001 * a**4)
    v = camera.cy + 102 * b * (1 + 0.01 * b**2 - 0.001 * b**4)
    expected = torch.tensor([[u, camera.cy], [camera.cx, v], [camera.cx, camera.cy]], dtype=F64)
    torch.testing.assert_close(project_points(camera, points)[0], expected)


def test_ftheta_by_hand() -> None:
    """r = fy (theta + a2 theta^2 + a3 theta^3), u = c r cos + d r sin, v = e r cos + r sin, with fx = c fy."""
    camera = make_camera("ftheta", 100.0)
    theta, phi = 1.9, 0.7
    p = torch.tensor([[math.sin(theta) * math.cos(phi), math.sin(theta) * math.sin(phi), math.cos(theta)]], dtype=F64)
    r = theta * (1 + 0.01 * theta - 0.02 * theta**2 + 0.003 * theta**3 + 0.0005 * theta**4)
    x, y = r * math.cos(phi), r * math.sin(phi)
    expected = [100 * x + 102 * 0.002 * y + 311.0, 102 * (-0.003 * x + y) + 245.5]
    torch.testing.assert_close(project_points(camera, p)[0], torch.tensor([expected], dtype=F64))


@pytest.mark.parametrize("kind", LENSES)
def test_gradients_of_a_projection(kind: str) -> None:
    camera = make_camera(kind)
    points = (5 * unproject(camera, pixels(6))).requires_grad_()
    assert torch.autograd.gradcheck(lambda p: project_points(camera, p)[0], points)
    lens, q = lens_numbers(camera), 0.4 * torch.randn(9, 2, dtype=F64)
    slopes = torch.stack([torch.autograd.functional.jacobian(lambda a: moved(lens, a, 9.0), one) for one in q])  # type: ignore[no-untyped-call]
    torch.testing.assert_close(jacobian(lens, q), slopes)


@pytest.mark.parametrize("kind", LENSES)
def test_nothing_outside_folds_into_the_image(kind: str) -> None:
    """From everywhere that the image does not see, points lie outside of it."""
    camera = make_camera(kind)
    points = torch.nn.functional.normalize(torch.randn(20000, 3, dtype=F64), dim=-1)
    if kind not in ANGULAR:
        points[:, 2] = points[:, 2].abs().clamp(min=0.02)
    at, _ = project_points(camera, points)
    angle = torch.atan2(points[:, :2].norm(dim=1), points[:, 2])
    beyond = angle > view_limits(camera)[1] + 1e-6
    inside = ((at > 0) & (at < at.new_tensor([640, 480]))).all(1)
    assert beyond.sum() > 1000 and not (inside & beyond).any()


def test_a_lens_that_folds_within_the_image() -> None:
    """theta - 0.2 theta^3 turns round at 1 / sqrt(0.6) = 74 degrees."""
    camera = replace(make_camera("fisheye"), distortion=(-0.2, 0.0, 0.0, 0.0))
    assert abs(fold(lens_numbers(camera)) - 1 / math.sqrt(0.6)) < 1e-3
    assert "ends 74 degrees from its axis" in str(lens_flaw(camera))
    assert lens_flaw(replace(camera, width=100, height=80, cx=50.0, cy=40.0)) is None


def test_a_denominator_that_becomes_zero() -> None:
    """r / (1 - 4 r^2) reaches all pixels before r = 0.5."""
    camera = replace(make_camera("rational"), distortion=(0.0, 0.0, 0.0, 0.0, 0.0, -4.0, 0.0, 0.0))
    rays = unproject(camera, pixels())
    assert fold(lens_numbers(camera)) < 0.5 and lens_flaw(camera) is None
    assert bool((rays[:, :2].norm(dim=1) < 0.5 * rays[:, 2]).all())


def test_polynomials_that_contradict_one_another() -> None:
    camera = replace(make_camera("ftheta"), distortion=(0.0,) * 6 + (1.0, 0.0, 0.0, 0.0, 0.0))
    assert lens_flaw(camera) is None
    other = replace(camera, distortion=(0.0,) * 6 + (1.05, 0.0, 0.0, 0.0, 0.0))
    assert "differ by" in str(lens_flaw(other))


@pytest.mark.parametrize("kind", ["rational", "prism", "fisheye", "ftheta", "ftheta_back"])
def test_as_ncore_has_them(kind: str) -> None:
    """Rays and projections of NVIDIA's own library, in double precision."""
    models = pytest.importorskip("ncore.sensors")
    from nurec_lite.capture.ncore.lenses import camera_model

    camera = make_camera(kind.split("_")[0])
    if kind == "ftheta_back":
        camera = replace(camera, distortion=(0.0, 0.0, 0.0, 0.0, 0.002, -0.003, 1.0, 0.0, 0.0, 0.0, 0.0))
    theirs: Any = models.CameraModel.from_parameters(camera_model(camera), device="cpu", dtype=F64)
    at = pixels(60)
    rays = unproject(camera, at)
    torch.testing.assert_close(theirs.image_points_to_camera_rays(at), rays, atol=3e-6, rtol=0)
    found = theirs.camera_rays_to_image_points(rays)
    torch.testing.assert_close(found.image_points, at, atol=2e-3, rtol=0)  # parameters are float32
