# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest
import torch
from scipy.special import assoc_legendre_p_all
from splat_scenes import F64, oracle_harmonics
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn import functional as F

from nurec_lite.splat.harmonics import DEGREE_0, sh_basis, sh_colour

BANDS = (1, 4, 9, 16)


def random_directions(n: int) -> Tensor:
    return F.normalize(torch.randn(n, 3, dtype=F64), dim=-1)


def sphere(n: int = 8) -> tuple[Tensor, Tensor]:
    """Directions and weights that integrate polynomials up to degree 2 n - 1 over the sphere exactly."""
    z, weights = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(n))
    azimuth = torch.arange(2 * n, dtype=F64) * math.pi / n
    z, azimuth = torch.cartesian_prod(z, azimuth).unbind(-1)
    r = (1 - z * z).sqrt()
    return torch.stack([r * azimuth.cos(), r * azimuth.sin(), z], dim=-1), weights.repeat_interleave(
        2 * n
    ) * math.pi / n


@pytest.mark.parametrize("n", BANDS)
def test_the_basis_is_orthonormal(n: int) -> None:
    directions, weights = sphere()
    basis = sh_basis(directions, n)
    torch.testing.assert_close(basis.T @ (weights[:, None] * basis), torch.eye(n, dtype=F64), atol=1e-13, rtol=0)


@pytest.mark.parametrize("n", BANDS)
def test_the_basis_is_that_of_3d_gaussian_splatting(n: int) -> None:
    """Signs and order included, so that scenes can be exchanged."""
    directions = random_directions(50)
    torch.testing.assert_close(sh_basis(directions, n), oracle_harmonics(directions, n), atol=1e-12, rtol=0)


def test_the_basis_agrees_with_legendre_functions() -> None:
    """Y_lm = N P_l^|m|(z) times sqrt 2 cos m phi or sqrt 2 sin |m| phi, with the Condon-Shortley phase in P."""
    directions = random_directions(50)
    x, y, z = directions.numpy().T
    phi, basis = np.arctan2(y, x), sh_basis(directions, 16).numpy()
    legendre = assoc_legendre_p_all(3, 3, z)[0]  # by degree, order (negative ones last), place
    for degree in range(4):
        for m in range(-degree, degree + 1):
            k = abs(m)
            norm = math.sqrt((2 * degree + 1) / (4 * math.pi) * math.factorial(degree - k) / math.factorial(degree + k))
            angular = math.sqrt(2) * (np.cos(k * phi) if m > 0 else np.sin(k * phi)) if m else 1.0
            expected = norm * legendre[degree, k] * angular
            np.testing.assert_allclose(basis[:, degree * degree + degree + m], expected, atol=1e-12)


def test_the_squares_of_a_band_add_up_to_a_constant() -> None:
    """The addition theorem: a band turns into itself, so no direction is special."""
    basis = sh_basis(random_directions(50), 16)
    for degree in range(4):
        total = basis[:, degree**2 : (degree + 1) ** 2].square().sum(1)
        torch.testing.assert_close(total, torch.full_like(total, (2 * degree + 1) / (4 * math.pi)))


def test_a_constant_band_is_a_constant_colour() -> None:
    sh = torch.zeros(7, 16, 3, dtype=F64)
    sh[:, 0] = torch.tensor([0.1, -0.2, 0.3], dtype=F64) / DEGREE_0
    expected = torch.tensor([0.6, 0.3, 0.8], dtype=F64).expand(7, 3)
    torch.testing.assert_close(sh_colour(sh, random_directions(7)), expected)


def test_colours_are_not_negative_and_not_bounded_above() -> None:
    sh = torch.tensor([[[-3.0, 0, 9]]], dtype=F64)
    colour = sh_colour(sh, random_directions(1))
    assert colour[0, 0] == 0 and colour[0, 2] > 2


def test_a_colour_clamped_at_zero_has_no_gradient() -> None:
    sh = torch.tensor([[[-3.0, 0.1, 9]]], dtype=F64, requires_grad=True)
    (gradient,) = torch.autograd.grad(sh_colour(sh, random_directions(1)).sum(), sh)
    torch.testing.assert_close(gradient, DEGREE_0 * torch.tensor([[[0.0, 1, 1]]], dtype=F64))


@pytest.mark.parametrize("n", BANDS)
def test_gradients(n: int) -> None:
    sh = (0.1 * torch.randn(3, n, 3, dtype=F64)).requires_grad_()
    assert gradcheck(sh_colour, (sh, random_directions(3).requires_grad_()))


@pytest.mark.parametrize("n", BANDS)
def test_no_gaussians(n: int) -> None:
    assert sh_basis(torch.zeros(0, 3), n).shape == (0, n)
    assert sh_colour(torch.zeros(0, n, 3), torch.zeros(0, 3)).shape == (0, 3)
