# SPDX-License-Identifier: Apache-2.0
"""Real spherical harmonics of degree 0 to 3, evaluated by direction (Sloan, "Efficient Spherical Harmonic Evaluation", JCGT 2013),
and turned."""

import math

import torch
from torch import Tensor

from nurec_lite.geometry.se3 import quat_conjugate, quat_rotate

DEGREE_0 = 0.5 / math.sqrt(math.pi)
SAMPLES = 12  # directions that `rotate_sh` solves a band from: the matrix of degree 3 then has condition 3.2


def sh_basis(
    directions: Tensor,  # [..., 3] unit
    n_coefficients: int,  # 1, 4, 9 or 16
) -> Tensor:  # [..., n_coefficients]
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


def rotate_sh(
    sh: Tensor,  # [N, S, 3]
    quaternions: Tensor,  # [N, 4] unit
) -> Tensor:  # [N, S, 3] of the rotated function: its value in direction d is that of the given one in R^T d
    """Rotates coefficients. Each band is solved from its values in fixed directions (Lessig, de Witt and Fiume, "Efficient and accurate
    rotation of finite spherical harmonics expansions", J. Comput. Phys. 231(2), 2012). A band turns into itself, so this is exact up to
    rounding, and the basis alone decides order and signs. Inside in double precision."""
    directions = _spread_directions(SAMPLES, sh.device)
    before = quat_rotate(quat_conjugate(quaternions.double())[:, None], directions)
    here, there = sh_basis(directions, sh.shape[1]), sh_basis(before, sh.shape[1])
    bands = [sh[:, :1].double()]
    for degree in range(1, math.isqrt(sh.shape[1])):
        band = slice(degree * degree, (degree + 1) ** 2)
        turn = torch.linalg.pinv(here[:, band]) @ there[..., band]  # [N, 2 degree + 1, 2 degree + 1]
        bands.append(turn @ sh[:, band].double())
    return torch.cat(bands, dim=1).to(sh.dtype)


def _spread_directions(n: int, device: torch.device) -> Tensor:
    """[n, 3] unit float64, spread evenly over the sphere: equal steps in z, golden angles about it."""
    i = torch.arange(n, dtype=torch.float64, device=device)
    z, azimuth = 1 - (2 * i + 1) / n, i * (math.pi * (3 - math.sqrt(5)))
    r = (1 - z * z).sqrt()
    return torch.stack([r * azimuth.cos(), r * azimuth.sin(), z], dim=-1)
