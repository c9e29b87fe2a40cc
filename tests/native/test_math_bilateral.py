# SPDX-License-Identifier: Apache-2.0
"""kernels/math/bilateral.cuh in float64, against nurec_lite/scene/bilateral.py."""

import math

import pytest
import torch
from kernel_math import F64, autograd, call, close, differences
from torch import Tensor

from nurec_lite.scene.bilateral import NUMBERS, sliced

SHAPE = (NUMBERS, 2, 3, 4)  # as tests/native/math_rows has it
WIDTH, HEIGHT = 9, 7


def pixels() -> Tensor:  # [n, 2] column and row
    return torch.cartesian_prod(torch.arange(WIDTH, dtype=F64), torch.arange(HEIGHT, dtype=F64))


def inputs() -> tuple[Tensor, Tensor]:
    """A grid and a colour for each pixel; some are darker than 0, or brighter than 1."""
    n = WIDTH * HEIGHT
    return torch.randn(n, math.prod(SHAPE), dtype=F64), torch.rand(n, 3, dtype=F64) * 1.8 - 0.4


def by_torch(grids: Tensor, colours: Tensor) -> Tensor:
    """Each pixel's colour through its own grid."""
    found = []
    for (column, row), grid, colour in zip(pixels().long().tolist(), grids, colours, strict=True):
        image = colour.expand(HEIGHT, WIDTH, 3)
        found.append(sliced(grid.view(SHAPE), image)[row, column])
    return torch.stack(found)


@pytest.mark.parametrize("cells", [1, 2, 5])
def test_steps_lie_between_two_cells(cells: int) -> None:
    place = torch.tensor([-3.0, 0, 0.25, 1, 1.5, 3.999, 4, 9, math.inf, -math.inf, math.nan], dtype=F64)[:, None]
    low, following, share, inside = call("grid_step", place, float(cells)).unbind(1)
    kept = place[:, 0].nan_to_num(0, cells - 1, 0).clamp(0, cells - 1)
    close((low + share)[:, None], kept[:, None], 0)
    assert (share >= 0).all() and (share <= 1).all() and (low >= 0).all() and (low + following <= cells - 1).all()
    assert torch.equal(inside.bool(), (place[:, 0] > 0) & (place[:, 0] < cells - 1))


def test_places_go_from_corner_to_corner() -> None:
    pixel = torch.arange(6, dtype=F64)[:, None]
    close(call("grid_place", pixel, 6.0, 4.0), 3 * pixel / 5)
    close(call("grid_place", pixel[:1], 1.0, 4.0), torch.full((1, 1), 1.5, dtype=F64))


def test_weights_of_the_four_columns_of_cells_about_a_pixel() -> None:
    found = call("grid_cell", inputs()[1], pixels())
    close(found.sum(1, keepdim=True), torch.ones(len(found), 1, dtype=F64))
    across, down = (pixels() / torch.tensor([WIDTH - 1, HEIGHT - 1]) * torch.tensor([3, 2])).unbind(1)
    right = across - across.floor().clamp(max=2)
    below = down - down.floor().clamp(max=1)
    close(found[:, 1:2], (right * (1 - below))[:, None])
    close(found[:, 3:], (right * below)[:, None])


def test_luminance_weights() -> None:
    colours = inputs()[1]
    close(call("luminance_weights", colours), colours @ torch.tensor([[0.299], [0.587], [0.114]], dtype=F64))


def test_colours() -> None:
    grids, colours = inputs()
    right = by_torch(grids, colours)
    close(call("sliced", grids, colours, pixels()), right)
    close(call("grid_row", grids, colours, pixels())[:, :3], right - colours)


def test_derivatives() -> None:
    grids, colours = inputs()
    d = torch.randn(len(grids), 3, dtype=F64)
    found = call("sliced_backward", grids, colours, pixels(), d)
    close(found, autograd(by_torch, [grids, colours], d), 1e-11)
    close(found, differences(lambda g, c: call("sliced", g, c, pixels()), [grids, colours], d), 1e-7)
