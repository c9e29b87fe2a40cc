# SPDX-License-Identifier: Apache-2.0
"""Bilateral grids: a camera's change of a colour by its place in the image and its brightness.

A grid holds affine transforms of colour over place and luminance, few enough that they model a camera's
local tone mapping, but no edge of the image. Zeros are the identity. Source: Chen, Paris and Durand, Real-time Edge-Aware Image Processing
with the Bilateral Grid (2007); learned with a scene: Wang et al., Bilateral Guided Radiance Field Processing (SIGGRAPH 2024).
Letters: X Y Z cells across, down and over luminance.
"""

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

NUMBERS = 12  # of a cell: the rows of a 3x4 matrix less the identity; its last column is added
_LUMINANCE = (0.299, 0.587, 0.114)  # of red, green and blue (Rec. ITU-R BT.601)


def sliced(
    grid: Tensor,  # [12, Z, Y, X] corner cells lie on corner pixels, the first and last layer at luminance 0 and 1
    image: Tensor,  # [H, W, 3] colours; their luminance chooses the layer
) -> Tensor:  # [H, W, 3] transformed, each by its neighbouring cells, trilinearly
    """Applies a grid to an image. Gradients reach both, the image through its luminance as well; colours brighter than 1 or darker than 0
    use the last cell."""
    luminance = sum(weight * image[..., c] for c, weight in enumerate(_LUMINANCE))
    assert isinstance(luminance, Tensor)
    across = _places(image.shape[0], image.shape[1], image.dtype, image.device)
    at = torch.cat([across, (2 * luminance - 1)[..., None]], dim=-1)
    found = F.grid_sample(grid[None], at[None, None], mode="bilinear", padding_mode="border", align_corners=True)
    matrices = found[0, :, 0].unflatten(0, (3, 4))  # [3, 4, H, W]
    change = (matrices[:, :3] * image.movedim(-1, 0)).sum(1) + matrices[
        :, 3
    ]  # a product of matrices takes 33 launches for 1080p
    return image + change.movedim(0, -1)


def variation(
    grids: Tensor,  # [C, K, 12, Z, Y, X] of each camera and knot of time
) -> Tensor:  # scalar
    """Mean squares of how cells differ from their neighbours in place and luminance (the total variation of Wang et al. 2024) and, which is
    ours, in time. An axis of one cell has none."""
    found: Tensor = _Variation.apply(grids)
    return found


class _Variation(torch.autograd.Function):
    """A quadratic form: half of the cells' product with its gradient, which three matrix products find on the way."""

    @staticmethod
    def forward(ctx: Any, grids: Tensor) -> Tensor:
        c, k, _, z, y, x = grids.shape
        time, deep, flat = _curvatures((c, k, NUMBERS, z, y, x), grids.dtype, grids.device)
        gradient = torch.matmul(grids.reshape(-1, y * x), flat)
        for axis, rows in ((deep, c * k * NUMBERS), (time, c)):  # added in one launch each
            cells = axis.shape[0]
            spread = axis.expand(rows, cells, cells)
            gradient = torch.baddbmm(gradient.view(rows, cells, -1), spread, grids.reshape(rows, cells, -1))
        ctx.save_for_backward(gradient.view(grids.shape))
        return 0.5 * torch.dot(grids.flatten(), gradient.flatten())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_total: Tensor) -> Tensor:
        (gradient,) = ctx.saved_tensors
        return d_total * gradient


@lru_cache(maxsize=16)
def _curvatures(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Second differences over time [K, K], luminance [Z, Z] and place [Y X, Y X]; their products with the cells are gradients of the mean
    squares of first ones. Nothing may be written into them."""

    def along(axis: int) -> Tensor:
        cells = shape[axis]
        if cells == 1:
            return torch.zeros(1, 1, dtype=dtype)
        change = torch.eye(cells, dtype=dtype).diff(dim=0)
        return change.T @ change * (2 * cells / ((cells - 1) * math.prod(shape)))

    across, down = (torch.eye(shape[axis], dtype=dtype) for axis in (5, 4))
    flat = torch.kron(along(4), across) + torch.kron(down, along(5))
    return along(1).to(device), along(3).to(device), flat.to(device)


@lru_cache(maxsize=16)
def _places(height: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[H, W, 2] x and y of pixels, from -1 in the first to 1 in the last. Nothing may be written into it."""
    y, x = ((2 * torch.arange(n, dtype=torch.float64) - (n - 1)) / max(n - 1, 1) for n in (height, width))
    return torch.stack([x.expand(height, width), y[:, None].expand(height, width)], dim=-1).to(device, dtype)
