# SPDX-License-Identifier: Apache-2.0
"""Real spherical harmonics of degree 0 to 3, evaluated by direction (Sloan, "Efficient Spherical Harmonic Evaluation", JCGT 2013)."""

import math

import torch
from torch import Tensor

DEGREE_0 = 0.5 / math.sqrt(math.pi)


def sh_basis(
    directions: Tensor,  # [N, 3] unit
    n_coefficients: int,  # 1, 4, 9 or 16
) -> Tensor:  # [N, n_coefficients]
    """Bands in the order m = -l .. l, with the signs of 3D Gaussian Splatting (Condon-Shortley phase)."""
    x, y, z = directions.unbind(-1)
    terms = [torch.full_like(x, DEGREE_0)]
    if n_coefficients > 1:
        c = math.sqrt(3 / (4 * math.pi))
        terms += [-c * y, c * z, -c * x]
    if n_coefficients > 4:
        c = math.sqrt(15 / math.pi) / 2
        terms += [
            c * x * y,
            -c * y * z,
            math.sqrt(5 / math.pi) / 4 * (3 * z * z - 1),
            -c * x * z,
            c / 2 * (x * x - y * y),
        ]
    if n_coefficients > 9:
        a, b, c = math.sqrt(35 / (2 * math.pi)) / 4, math.sqrt(105 / math.pi) / 2, math.sqrt(21 / (2 * math.pi)) / 4
        terms += [
            -a * y * (3 * x * x - y * y), b * x * y * z, -c * y * (5 * z * z - 1),
            math.sqrt(7 / math.pi) / 4 * z * (5 * z * z - 3),
            -c * x * (5 * z * z - 1), b / 2 * z * (x * x - y * y), -a * x * (x * x - 3 * y * y),
        ]  # fmt: skip
    return torch.stack(terms, dim=-1)


def sh_colour(
    sh: Tensor,  # [N, S, 3]
    directions: Tensor,  # [N, 3] unit, from the eye to the Gaussian, in the axes of the coefficients
) -> Tensor:  # [N, 3], at least 0
    """0.5 + sum of coefficients times basis, clamped below at 0 (3DGS, Kerbl et al. 2023)."""
    return (0.5 + (sh_basis(directions, sh.shape[1])[:, :, None] * sh).sum(1)).clamp(min=0)
