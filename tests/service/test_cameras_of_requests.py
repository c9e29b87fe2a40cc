# SPDX-License-Identifier: Apache-2.0
"""Cameras of requests: the service's description of a camera gives that camera again, and unsupported ones are refused by name."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny_capture import tiny_capture

from nurec_lite.geometry.camera import SHUTTERS, Camera, project_points
from nurec_lite.service.cameras import camera_of, pose_of, spec_of
from nurec_lite.service.checks import pose
from nurec_lite.service.errors import RequestError
from nurec_lite.service.messages import message

MOST = 1_000_000
OWN = replace(tiny_capture().cameras[0], distortion=(-0.1, 0.02, 1e-3, -2e-3, 1e-3))


def read(spec: Any, height: int = 0, width: int = 0) -> Camera:
    return camera_of(spec, height, width, MOST, {OWN.name: OWN}, "own")


LENSES = {
    "plain": replace(OWN, distortion=()),
    "rational": replace(OWN, distortion=(-0.1, 0.02, 1e-3, -2e-3, 1e-3, 0.05, 0.01, 1e-3)),
    "prism": replace(OWN, distortion=(-0.1, 0.02, 1e-3, -2e-3, 1e-3, 0.05, 0.01, 1e-3, 1e-3, 2e-4, -1e-3, 1e-4)),
    "fisheye": replace(OWN, lens="fisheye", distortion=(0.02, -0.01, 1e-3, -1e-4)),
    "ftheta": replace(OWN, lens="ftheta", distortion=(0.01, -0.02, 1e-3, 0.0, 0.002, -0.001)),
    "ftheta by its inverse": replace(
        OWN, lens="ftheta", distortion=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0)
    ),
}


@pytest.mark.parametrize("shutter", SHUTTERS)
def test_a_camera_goes_there_and_back(shutter: str) -> None:
    assert read(spec_of(replace(OWN, shutter=shutter))) == replace(OWN, shutter=shutter)


@pytest.mark.parametrize("name", LENSES)
@pytest.mark.parametrize("size", [(0, 0), (3 * OWN.height, 3 * OWN.width)])
def test_a_lens_goes_there_and_back(name: str, size: tuple[int, int]) -> None:
    """Points appear where they did, in an image of any size."""
    camera, points = (
        LENSES[name],
        torch.tensor([[0.5, -0.2, 4.0], [-1.0, 0.4, 5.0], [0.0, 0.0, 2.0]], dtype=torch.float64),
    )
    found = read(spec_of(camera), *size)
    assert found.lens == camera.lens
    scale = found.width / camera.width
    torch.testing.assert_close(
        project_points(found, points)[0], scale * project_points(camera, points)[0], rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(("reference", "terms"), [(2, "angle_to_pixeldist_poly"), (1, "pixeldist_to_angle_poly")])
def test_an_ftheta_camera_of_known_angles(reference: int, terms: str) -> None:
    """A linear polynomial: so many pixels a radian, about a principal point that counts from the first pixel's centre."""
    value = 30.0 if reference == 2 else 1 / 30
    spec = other(
        ftheta_param={
            "principal_point_x": 1.5,
            "principal_point_y": 1.0,
            "reference_poly": reference,
            terms: [0, value],
        }
    )
    camera = read(spec)
    pixels, _ = project_points(camera, torch.tensor([[1.0, 0.0, 1.0], [0.0, -1.0, 0.0]], dtype=torch.float64) * 7)
    quarter = torch.pi / 4
    wanted = torch.tensor([[2.0 + 30 * quarter, 1.5], [2.0, 1.5 - 60 * quarter]], dtype=torch.float64)
    torch.testing.assert_close(pixels[0], wanted[0], rtol=0, atol=1e-4)


def test_another_size_shows_the_same() -> None:
    """Points keep their places as shares of the image."""
    points = torch.tensor([[0.5, -0.2, 4.0], [-1.0, 0.4, 5.0]], dtype=torch.float64)
    large = read(spec_of(OWN), 3 * OWN.height, 2 * OWN.width)
    (small, _), (found, _) = project_points(OWN, points), project_points(large, points)
    torch.testing.assert_close(found, small * torch.tensor([2.0, 3.0], dtype=torch.float64))


def test_a_camera_of_another_name_sits_on_the_rig_s_origin() -> None:
    spec = spec_of(OWN)
    spec.logical_id = "other"
    assert read(spec).name == "own" and torch.equal(read(spec).T_rig_cam, torch.eye(4, dtype=torch.float64))


def with_lens(**changes: Any) -> Any:
    spec = spec_of(OWN)
    for name, values in changes.items():
        owner = spec if hasattr(spec, name) else spec.opencv_pinhole_param
        if isinstance(values, list):
            del getattr(owner, name)[:]
            getattr(owner, name).extend(values)
        else:
            setattr(owner, name, values)
    return spec


def other(**model: Any) -> Any:
    return message("CameraSpec")(resolution_h=4, resolution_w=4, **model)


# A circle of 180 degrees within an image of four pixels a side
SMALL_FISHEYE = {"focal_length_x": 0.8, "focal_length_y": 0.8, "principal_point_x": 2, "principal_point_y": 2}


def test_pixels_beyond_the_largest_angle_are_masked() -> None:
    mask = read(
        other(opencv_fisheye_param=SMALL_FISHEYE | {"max_angle": 2.1})
    ).mask  # the corners lie 2.65 radians off the axis
    corners = torch.zeros(4, 4, dtype=torch.bool)
    corners[::3, ::3] = True
    assert mask is not None and torch.equal(mask, corners)
    whole = SMALL_FISHEYE | {"focal_length_x": 1, "focal_length_y": 1, "max_angle": 2.9}
    assert read(other(opencv_fisheye_param=whole)).mask is None
    for name in ("fisheye", "ftheta"):  # the service's own largest angle masks nothing
        assert read(spec_of(LENSES[name]), 48, 80).mask is None


@pytest.mark.parametrize(
    ("spec", "status", "sentence"),
    [
        (other(), "INVALID_ARGUMENT", "camera_intrinsics has no model"),
        (other(ftheta_param={}), "INVALID_ARGUMENT", "reference_poly"),
        (other(ftheta_param={"reference_poly": 2}), "INVALID_ARGUMENT", "ftheta_param"),
        (other(ftheta_param={"reference_poly": 2, "angle_to_pixeldist_poly": [0, float("nan")]}), "INVALID_ARGUMENT", "not finite"),
        (other(ftheta_param={"reference_poly": 1, "pixeldist_to_angle_poly": [0, -1]}), "INVALID_ARGUMENT", "does not rise"),
        (other(opencv_fisheye_param={"radial_coeffs": [0] * 5}), "INVALID_ARGUMENT", "5 radial_coeffs, but may have 4"),
        (other(opencv_fisheye_param={}), "INVALID_ARGUMENT", "focal length 0"),
        (other(opencv_pinhole_param={}, bivariate_windshield_model_param={}), "UNIMPLEMENTED", "a windshield model"),
        (with_lens(radial_coeffs=[0.0] * 7), "INVALID_ARGUMENT", "has 7 radial_coeffs, but may have 6"),
        (with_lens(focal_length_x=float("inf")), "INVALID_ARGUMENT", "a number that is not finite"),
        (with_lens(focal_length_x=0.0), "INVALID_ARGUMENT", "_param has the focal length 0, 26.*; correct it$"),
        (with_lens(radial_coeffs=[-3.0]), "INVALID_ARGUMENT", "fold"),
        (other(opencv_fisheye_param=SMALL_FISHEYE), "INVALID_ARGUMENT", "a fisheye lens that ends 180 degrees from its axis"),
        (other(opencv_fisheye_param=SMALL_FISHEYE | {"max_angle": float("nan")}), "INVALID_ARGUMENT", "has the max_angle nan; give"),
        (other(opencv_fisheye_param=SMALL_FISHEYE | {"max_angle": -1}), "INVALID_ARGUMENT", "has the max_angle -1; give radians"),
        (other(opencv_fisheye_param=SMALL_FISHEYE | {"focal_length_x": 1e-200, "focal_length_y": 1e-200, "max_angle": 1}),
         "INVALID_ARGUMENT", "makes it a line"),
        (other(opencv_fisheye_param=SMALL_FISHEYE | {"max_angle": 0.1}), "INVALID_ARGUMENT", "a mask that leaves no pixel"),
        (with_lens(shutter_type=9), "INVALID_ARGUMENT", "shutter_type is 9"),
        (with_lens(resolution_h=2000, resolution_w=2000), "RESOURCE_EXHAUSTED", "2000 x 2000 pixels is more than 1000000"),
    ],
    ids=range(19),
)  # fmt: skip
def test_a_camera_that_is_not_rendered_is_refused(spec: Any, status: str, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence) as error:
        read(spec)
    assert error.value.status == status


def test_a_pose_goes_there_and_back() -> None:
    T = OWN.T_rig_cam.clone()
    w, x, y, z, *place = pose(pose_of(T), "pose")
    assert w * w + x * x + y * y + z * z == pytest.approx(1) and place == pytest.approx(T[:3, 3].tolist(), abs=1e-5)
