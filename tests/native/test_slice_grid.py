# SPDX-License-Identifier: Apache-2.0
"""The operator slice_grid against nurec_lite/scene/bilateral.py in float64: images, and gradients of grid and image.

Tolerance: a value is a sum of 8 x 4 products of numbers about 1, each rounded to 2^-24, and a gradient of the grid one of all pixels, so
it is compared relative to the largest.
"""

import pytest
import torch
from operators import check_schema
from parity import DEVICES
from torch import Tensor

from nurec_lite.native import ops
from nurec_lite.native.operators.slice_grid import slice_grid
from nurec_lite.scene.bilateral import NUMBERS, sliced

IMAGES = [(1, 1), (1, 7), (5, 1), (17, 33), (45, 70)]
GRIDS = [(1, 1, 1), (1, 2, 3), (4, 8, 8), (2, 1, 5), (3, 40, 64)]  # Z, Y, X


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def inputs(image: tuple[int, int], grid: tuple[int, int, int], seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Colours; some are darker than 0 or brighter than 1."""
    generator = torch.Generator().manual_seed(seed)
    made = [0.3 * torch.randn(NUMBERS, *grid, generator=generator)]
    made += [torch.rand(*image, 3, generator=generator) * 1.6 - 0.3, torch.randn(*image, 3, generator=generator)]
    return made[0], made[1], made[2]


def results(by, grid: Tensor, image: Tensor, d: Tensor) -> list[Tensor]:
    grid, image = grid.clone().requires_grad_(), image.clone().requires_grad_()
    found = by(grid, image)
    return [found.detach(), *torch.autograd.grad(found, (grid, image), d)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("image", IMAGES, ids=str)
def test_images_and_gradients(image: tuple[int, int], grid: tuple[int, int, int], device: str) -> None:
    given = inputs(image, grid)
    expected = results(sliced, *(value.double() for value in given))
    found = results(slice_grid, *(value.to(device) for value in given))
    for own, right in zip(found, expected, strict=True):
        largest = float(right.abs().max())
        torch.testing.assert_close(own.cpu().double(), right, rtol=1e-5, atol=4e-6 * max(largest, 1))


@pytest.mark.parametrize("device", DEVICES)
def test_zeros_are_the_identity(device: str) -> None:
    grid, image, d = (value.to(device) for value in inputs((9, 12), (4, 3, 2)))
    found, _, d_image = results(slice_grid, torch.zeros_like(grid), image, d)
    assert torch.equal(found, image) and torch.equal(d_image, d)


@pytest.mark.parametrize("device", DEVICES)
def test_colours_that_are_no_numbers_stay_where_they_are(device: str) -> None:
    """The colour is none, but nothing is read or written beside the grid, and other pixels are as they would be."""
    grid, image, d = (value.to(device) for value in inputs((6, 8), (4, 3, 2)))
    right = results(slice_grid, grid, image, d)[0]
    image[2, 3] = torch.tensor([float("nan"), float("inf"), -float("inf")], device=device)
    found = results(slice_grid, grid, image, d)[0]
    others = torch.ones(6, 8, dtype=torch.bool, device=device)
    others[2, 3] = False
    assert torch.equal(found[others], right[others]) and not found[2, 3].isfinite().any()


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_need_not_lie_row_by_row(device: str) -> None:
    grid, image, d = (value.to(device) for value in inputs((12, 9), (4, 3, 2)))
    turned = d.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    for a, b in zip(results(slice_grid, grid, image, turned), results(slice_grid, grid, image, d), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_double_precision_goes_the_plain_way() -> None:
    grid, image, _ = (value.double() for value in inputs((4, 5), (2, 3, 4)))
    assert torch.equal(slice_grid(grid, image), sliced(grid, image))


@pytest.mark.parametrize(
    ("grid", "image", "message"),
    [
        ((11, 2, 2, 2), (4, 5, 3), r"grid has shape \[11, 2, 2, 2\]"),
        ((12, 0, 2, 2), (4, 5, 3), "size of grid is 0"),
        ((12, 2, 2, 2), (4, 5, 4), r"image has shape \[4, 5, 4\]"),
        ((12, 2, 2, 2), (0, 5, 3), "height is 0"),
    ],
)
def test_wrong_arrays_are_refused(grid: tuple[int, ...], image: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        torch.ops.nurec_lite.slice_grid(torch.zeros(grid), torch.zeros(image))


@pytest.mark.parametrize("device", DEVICES)
def test_torch_s_own_checks(device: str) -> None:
    grid, image, _ = (value.to(device) for value in inputs((4, 5), (2, 3, 4)))
    arguments = grid.requires_grad_(), image.requires_grad_()
    check_schema(torch.ops.nurec_lite.slice_grid.default, arguments)
