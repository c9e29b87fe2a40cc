# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from nurec_lite.geometry.camera import (
    SHUTTERS,
    Camera,
    directions_through,
    distort,
    forget_pixels,
    pixel_directions,
    pixel_fractions,
    project_points,
    shutter_fraction,
    undistort,
)

F64 = torch.float64
KITTI_LENS = (-0.3728755, 0.2037299, 0.0022191, 0.0007238, -0.0723)  # an unrectified image of KITTI raw
WIDE_LENS = (-0.1, 0.01, 0.001, -0.0005, 0.0)


def make_camera(distortion: tuple[float, ...] = (), shutter: str = "global") -> Camera:
    """A 92 degree camera of odd size, its principal point off the centre."""
    return Camera("front", 63, 31, 30.0, 31.0, 30.5, 17.0, torch.eye(4, dtype=F64), distortion, shutter)


# ---- distortion


@pytest.mark.parametrize(
    ("lens", "reach"), [((), 2.0), (KITTI_LENS, 0.75), (WIDE_LENS, 1.6), ((0.2, 0.01, 0.001, -0.002, 0.01), 1.5)]
)
def test_undistort_inverts_distort(lens: tuple[float, ...], reach: float) -> None:
    camera, axis = make_camera(lens), torch.linspace(-reach, reach, 21, dtype=F64)
    xy = torch.cartesian_prod(axis, 0.6 * axis)
    torch.testing.assert_close(undistort(camera, distort(camera, xy)), xy, atol=1e-10, rtol=0)


def test_distortion_follows_the_formula_of_opencv() -> None:
    k1, k2, p1, p2, k3 = lens = (0.1, -0.02, 0.003, -0.004, 0.005)
    x, y = 0.3, -0.5
    r2 = x * x + y * y
    radial = 1 + k1 * r2 + k2 * r2**2 + k3 * r2**3
    expected = [
        x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
        y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y,
    ]
    result = distort(make_camera(lens), torch.tensor([x, y], dtype=F64))
    torch.testing.assert_close(result, torch.tensor(expected, dtype=F64))


# ---- projection


def test_a_point_on_the_axis_lands_on_the_principal_point() -> None:
    pixels, depth = project_points(make_camera(WIDE_LENS), torch.tensor([[0.0, 0, 7]], dtype=F64))
    assert pixels.tolist() == [[30.5, 17.0]] and depth.tolist() == [7.0]


def test_x_goes_right_and_y_goes_down() -> None:
    pixels, _ = project_points(make_camera(), torch.tensor([[1.0, 0, 2], [0, 1, 2]], dtype=F64))
    assert pixels.tolist() == [[45.5, 17.0], [30.5, 32.5]]


@pytest.mark.parametrize("lens", [(), KITTI_LENS, WIDE_LENS])
def test_pixel_directions_project_back_to_the_pixel_centres(lens: tuple[float, ...]) -> None:
    camera = replace(make_camera(lens), fx=60.0, fy=60.0)
    pixels, depth = project_points(camera, 5 * pixel_directions(camera, F64))
    v, u = torch.meshgrid(torch.arange(31) + 0.5, torch.arange(63) + 0.5, indexing="ij")
    torch.testing.assert_close(pixels, torch.stack([u, v], dim=-1).double(), atol=1e-9, rtol=0)
    assert (depth > 0).all()


def test_pixel_directions_are_unit_and_float32() -> None:
    directions = pixel_directions(make_camera(WIDE_LENS))
    assert directions.shape == (31, 63, 3) and directions.dtype == torch.float32
    torch.testing.assert_close(directions.norm(dim=-1), torch.ones(31, 63))


@pytest.mark.parametrize("made", [pixel_directions, pixel_fractions])
def test_what_is_kept_of_pixels_is_made_once_however_it_is_asked_for(made: Callable[..., torch.Tensor]) -> None:
    camera = make_camera(KITTI_LENS)
    kept = made(camera)
    assert made(camera, torch.float32, "cpu") is kept
    assert made(camera, device=torch.device("cpu"), dtype=torch.float32) is kept
    forget_pixels()
    assert made(camera) is not kept


@pytest.mark.parametrize(
    "camera",
    [
        make_camera(),
        make_camera(WIDE_LENS),
        replace(make_camera(), distortion=(0.0,) * 4, lens="fisheye", fx=8.0, fy=8.0),
    ],
    ids=["plain", "bent", "fisheye"],
)
def test_directions_of_some_pixels_are_those_of_all(camera: Camera) -> None:
    """The corners of the fisheye have none: they look along the axis."""
    x, y = torch.tensor([0, 31, camera.width - 1]), torch.tensor([0, 16, 7])
    found = directions_through(camera, torch.stack([x, y], dim=-1).double() + 0.5)
    torch.testing.assert_close(found, pixel_directions(camera, F64)[y, x], atol=1e-12, rtol=0)
    torch.testing.assert_close(found.norm(dim=-1), torch.ones(3, dtype=F64))
    assert (camera.lens == "fisheye") == (found[0].tolist() == [0, 0, 1])


@pytest.mark.gpu
@pytest.mark.parametrize("lens", [(), KITTI_LENS, WIDE_LENS])
def test_a_gpu_makes_directions_itself(lens: tuple[float, ...]) -> None:
    camera = replace(make_camera(lens), fx=60.0, fy=60.0)
    found = pixel_directions(camera, device="cuda")
    assert pixel_directions(camera, torch.float32, torch.device("cuda", torch.cuda.current_device())) is found
    torch.testing.assert_close(found.cpu(), pixel_directions(camera), atol=1e-6, rtol=0)


def test_points_in_the_plane_of_the_camera_stay_finite() -> None:
    points = torch.tensor([[1.0, 1, 0], [0, 0, 0], [1, 0, -3]], requires_grad=True)
    pixels, depth = project_points(make_camera(), points)
    pixels.sum().backward()
    assert pixels.isfinite().all() and depth.tolist() == [0, 0, -3]
    assert points.grad is not None and points.grad.isfinite().all()


def test_gradient_of_projection() -> None:
    points = (torch.rand(5, 3, dtype=F64) + torch.tensor([-0.5, -0.5, 1.0])).requires_grad_()
    assert torch.autograd.gradcheck(lambda p: project_points(make_camera(WIDE_LENS), p), (points,))


# ---- rolling shutter


@pytest.mark.parametrize(
    ("shutter", "corners"),  # at the centres of the pixels top left, top right, bottom left, bottom right
    [
        ("global", [0.5, 0.5, 0.5, 0.5]),
        ("top_to_bottom", [0, 0, 1, 1]),
        ("bottom_to_top", [1, 1, 0, 0]),
        ("left_to_right", [0, 1, 0, 1]),
        ("right_to_left", [1, 0, 1, 0]),
    ],
)
def test_shutter_fraction_at_the_corners(shutter: str, corners: list[float]) -> None:
    pixels = torch.tensor([[0.5, 0.5], [62.5, 0.5], [0.5, 30.5], [62.5, 30.5]])
    assert shutter_fraction(make_camera(shutter=shutter), pixels).tolist() == corners


@pytest.mark.parametrize("shutter", [s for s in SHUTTERS if s != "global"])
def test_shutter_fraction_is_linear_also_outside_the_image(shutter: str) -> None:
    steps = torch.tensor([-2.0, -1, 0, 1, 2], dtype=F64)
    fraction = shutter_fraction(make_camera(shutter=shutter), 100 * steps[:, None].expand(5, 2))
    torch.testing.assert_close(fraction.diff(), fraction.diff()[:1].expand(4))
    assert fraction.min() < 0 and fraction.max() > 1


def test_an_image_of_one_row_is_read_at_the_start() -> None:
    camera = replace(make_camera(shutter="top_to_bottom"), height=1)
    assert shutter_fraction(camera, torch.tensor([3.5, 0.5])) == 0


# ---- the camera itself


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_a_downscaled_camera_sees_the_same_points_at_scaled_pixels(factor: int) -> None:
    camera, points = make_camera(WIDE_LENS), torch.rand(9, 3, dtype=F64) + 0.5
    small = camera.downscaled(factor)
    assert (small.width, small.height) == (63 // factor, 31 // factor)
    pixels, depth = project_points(small, points)
    full, full_depth = project_points(camera, points)
    torch.testing.assert_close(pixels, full / factor)
    torch.testing.assert_close(depth, full_depth)


def test_a_downscaled_pixel_looks_through_the_middle_of_its_block() -> None:
    camera = make_camera()
    blocks = pixel_directions(camera, F64)[1::3, 1::3][:10, :21]  # the middle pixels of 3 x 3 blocks
    torch.testing.assert_close(pixel_directions(camera.downscaled(3), F64), blocks)


def test_an_unknown_shutter_is_refused() -> None:
    with pytest.raises(ValueError, match="camera front: shutter is 'rolling', but must be one of global"):
        make_camera(shutter="rolling")


def test_a_wrong_number_of_coefficients_is_refused() -> None:
    with pytest.raises(
        ValueError, match="distortion has 4 coefficients, but a pinhole lens must have 0 or 5 or 8 or 12"
    ):
        make_camera((0.1, 0.2, 0.3, 0.4))
