# SPDX-License-Identifier: Apache-2.0
import math

import pytest
import torch
from splat_scenes import F64, make_sky, oracle_sky, spherical, tensor, uniform
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn import functional as F

from nurec_lite.scene.sky import sample_sky


def random_directions(n: int) -> Tensor:
    return F.normalize(torch.randn(n, 3, dtype=F64), dim=-1)


@pytest.mark.parametrize("shape", [(4, 8), (5, 7), (1, 1), (16, 32)])
def test_equals_the_oracle(shape: tuple[int, int]) -> None:
    sky, directions = make_sky(*shape), random_directions(100)
    torch.testing.assert_close(sample_sky(sky, directions), oracle_sky(sky, directions), atol=1e-12, rtol=1e-12)


def test_wraps_in_azimuth() -> None:
    """Just left and just right of straight behind, and exactly there from both sides, the colour is one."""
    sky, elevation = make_sky(), uniform(-1.5, 1.5, 20)
    left, right = (spherical(sign * torch.full_like(elevation, math.pi - 1e-9), elevation) for sign in (1, -1))
    a, b = sample_sky(sky, left), sample_sky(sky, right)
    torch.testing.assert_close(a, b, atol=1e-8, rtol=0)
    middle = torch.sigmoid(0.5 * (sky[:, :, 0] + sky[:, :, -1]))  # half way between the outermost columns
    rows = math.pi / 2 - (torch.arange(4, dtype=F64) + 0.5) * math.pi / 4
    behind = sample_sky(sky, spherical(torch.full_like(rows, math.pi), rows))
    torch.testing.assert_close(behind, middle.T, atol=1e-12, rtol=0)


def test_texels_lie_at_their_centres() -> None:
    """Column 0 begins at azimuth pi and columns go clockwise; row 0 begins at the zenith."""
    sky, (height, width) = make_sky(), (4, 8)
    row, column = torch.meshgrid(torch.arange(height, dtype=F64), torch.arange(width, dtype=F64), indexing="ij")
    azimuth = math.pi - (column + 0.5) * 2 * math.pi / width
    elevation = math.pi / 2 - (row + 0.5) * math.pi / height
    values = sample_sky(sky, spherical(azimuth, elevation).view(-1, 3))
    torch.testing.assert_close(values, torch.sigmoid(sky).flatten(1).T, atol=1e-12, rtol=0)


def test_row_0_is_the_zenith_and_the_last_row_the_nadir() -> None:
    sky = torch.zeros(3, 6, 12, dtype=F64)
    sky[:, 0], sky[:, -1] = 2.0, -2.0
    up, down, level = sample_sky(sky, tensor([0.0, 0, 1], [0, 0, -1], [1, 0, 0]))
    torch.testing.assert_close(up, torch.sigmoid(tensor(2.0)).expand(3))
    torch.testing.assert_close(down, torch.sigmoid(tensor(-2.0)).expand(3))
    torch.testing.assert_close(level, tensor(0.5).expand(3))


def test_left_of_forward_lies_in_the_left_half_of_the_map() -> None:
    sky = torch.zeros(3, 4, 8, dtype=F64)
    sky[:, :, :4] = 3.0
    left, right = sample_sky(sky, tensor([0.0, 1, 0], [0, -1, 0]))
    assert (left > 0.9).all() and (right == 0.5).all()


def test_gradients_in_map_and_direction() -> None:
    sky, directions = make_sky(3, 5).requires_grad_(), random_directions(6).requires_grad_()
    assert gradcheck(sample_sky, (sky, directions), atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_gradients_are_finite_everywhere(dtype: torch.dtype) -> None:
    sky = make_sky().to(dtype).requires_grad_()
    special = tensor([0.0, 0, 1], [0, 0, -1], [-1, 0, 0], [-1, -0.0, 0], [1e-6, 0, 1]).to(dtype).requires_grad_()
    values = sample_sky(sky, special)
    gradients = torch.autograd.grad(values.sum(), (sky, special))
    assert values.isfinite().all() and all(x.isfinite().all() for x in gradients)


def test_every_ray_gives_its_weight_to_the_map() -> None:
    """The bilinear weights of a ray add up to one, at the seam and at the poles too."""
    sky = torch.zeros(3, 4, 8, dtype=F64, requires_grad=True)
    directions = torch.cat([random_directions(50), tensor([0.0, 0, 1], [0, 0, -1], [-1, 0, 0], [-1, -0.0, 0])])
    (gradient,) = torch.autograd.grad(sample_sky(sky, directions).sum(), sky)
    torch.testing.assert_close(gradient.sum((1, 2)), torch.full((3,), 54 * 0.25, dtype=F64))


def test_single_precision_and_no_rays() -> None:
    sky, directions = make_sky(), random_directions(30)
    values = sample_sky(sky.float(), directions.float())
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.double(), sample_sky(sky, directions), atol=1e-5, rtol=1e-5)
    assert sample_sky(sky, directions[:0]).shape == (0, 3)
