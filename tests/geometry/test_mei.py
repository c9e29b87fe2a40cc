# SPDX-License-Identifier: Apache-2.0
"""Mei's model by polynomials: within 0.05 pixels of the exact one for the fisheye cameras of KITTI-360, and pixels back to rays."""

import math
from dataclasses import replace

import pytest
import torch

from nurec_lite.geometry.camera import Camera, beyond, lens_flaw, pixel_directions, project_points, unproject
from nurec_lite.geometry.mei import FIELD, projected, widest

KITTI_360 = (2.2134, 0.0168, 1.6549, 4.2e-4, 4.2e-4)
TWISTED = (2.5535, 0.0494, 4.5068, 1.35e-3, -7.0e-4)  # with more tangential distortion


def camera(numbers: tuple[float, ...], gamma: float, size: int = 1400) -> Camera:
    f, middle = gamma / (1 + numbers[0]), size / 2
    return Camera("c", size, size, f, f, middle, middle, torch.eye(4).double(), numbers, lens="mei")


@pytest.mark.parametrize(("numbers", "gamma"), [(KITTI_360, 1336.0), (TWISTED, 1485.0)])
def test_the_polynomial_is_the_model_within_the_field(numbers: tuple[float, ...], gamma: float) -> None:
    angle, around = torch.meshgrid(
        torch.linspace(0.001, widest(numbers[0]), 333).double(), torch.linspace(0, 6.2, 37).double(), indexing="ij"
    )
    rays = torch.stack([angle.sin() * around.cos(), angle.sin() * around.sin(), angle.cos()], dim=-1)
    one = camera(numbers, gamma)
    found, _ = project_points(one, 5 * rays)
    off = (found - (one.fx * projected(numbers, rays) + one.cx)).norm(dim=-1)
    assert float(off.max()) < 0.04


def test_pixels_go_back_to_their_rays() -> None:
    one = camera(KITTI_360, 1336.0)
    pixels = 1400 * torch.rand(500, 2, dtype=torch.float64)
    rays = unproject(one, pixels)
    seen = rays[:, 2] > math.cos(FIELD)
    assert 300 < int(seen.sum()) < 480  # corners have none
    again, _ = project_points(one, rays[seen])
    assert float((again - pixels[seen]).norm(dim=1).max()) < 1e-6
    assert bool(torch.isfinite(pixel_directions(camera(KITTI_360, 33.4, 35))).all())


@pytest.mark.parametrize("xi", [-5.0, -0.5, 101.0, math.nan])
def test_a_xi_that_no_camera_has_is_a_flaw(xi: float) -> None:
    flaw = lens_flaw(camera((xi, *KITTI_360[1:]), 1336.0))
    assert flaw is not None and "a xi of" in flaw


def test_pixels_without_a_direction_must_be_masked() -> None:
    one = camera(KITTI_360, 33.4, 35)
    assert lens_flaw(one) is not None
    assert lens_flaw(replace(one, mask=beyond(one, FIELD))) is None
