# SPDX-License-Identifier: Apache-2.0
"""Planes through groups of neighbouring points. Letters: n groups, k points of each."""

import math

import torch
from torch import Tensor


def planes(
    points: Tensor,  # [n, k, 3] metres, float64
) -> tuple[Tensor, Tensor, Tensor]:
    """Normals [n, 3], and the standard deviations of the points along the normal and along the next axis [n], metres.

    Eigenvalues of a symmetric 3 x 3 matrix in closed form (Smith 1961): LAPACK takes ten times as long for one matrix after another.
    Where the two smallest are one, the normal is any.
    """
    apart = points - points.mean(1, keepdim=True)
    spread = apart.transpose(1, 2) @ apart / points.shape[1]
    low, middle = _two_smallest(spread)
    normals = _axis(spread - low[:, None, None] * torch.eye(3, dtype=spread.dtype))
    return normals, low.clamp(min=0).sqrt(), middle.clamp(min=0).sqrt()


def _two_smallest(spread: Tensor) -> tuple[Tensor, Tensor]:  # [n, 3, 3] -> [n], [n]
    mean = spread.diagonal(dim1=1, dim2=2).mean(1)
    rest = spread - mean[:, None, None] * torch.eye(3, dtype=spread.dtype)
    size = (rest.square().sum((1, 2)) / 6).sqrt().clamp(min=1e-30)
    angle = (torch.linalg.det(rest / size[:, None, None]) / 2).clamp(-1, 1).acos() / 3
    low, high = (mean + 2 * size * (angle + turn).cos() for turn in (2 * math.pi / 3, 0.0))
    return low, 3 * mean - low - high


def _axis(singular: Tensor) -> Tensor:  # [n, 3, 3] -> [n, 3] the direction that it takes to zero
    a, b, c = singular.unbind(1)
    crosses = torch.stack([torch.linalg.cross(x, y) for x, y in ((a, b), (a, c), (b, c))], dim=1)
    best = crosses.square().sum(2).argmax(1)
    axis = crosses[torch.arange(len(best)), best]
    return axis / axis.norm(dim=1, keepdim=True).clamp(min=1e-30)
