# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest
import torch
from scipy.special import assoc_legendre_p_all
from splat_scenes import F64, oracle_harmonics, turn
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn import functional as F

from nurec_lite.geometry.harmonics import DEGREE_0, rotate_sh, sh_basis, sh_colour
from nurec_lite.geometry.se3 import quat_conjugate, quat_multiply

BANDS = (1, 4, 9, 16)


def random_directions(n: int) -> Tensor:
    return F.normalize(torch.randn(n, 3, dtype=F64), dim=-1)


def random_quaternions(n: int) -> Tensor:
    return F.normalize(torch.randn(n, 4, dtype=F64), dim=-1)


def random_coefficients(n: int, coefficients: int) -> Tensor:
    return 0.3 * torch.randn(n, coefficients, 3, dtype=F64)


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


# ---- turned


@pytest.mark.parametrize("n", BANDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(F64, 1e-12), (torch.float32, 1e-5)])
def test_turned_harmonics_show_in_a_direction_what_was_in_the_one_turned_back(
    n: int, dtype: torch.dtype, tolerance: float
) -> None:
    sh, q, d = random_coefficients(33, n), random_quaternions(33), random_directions(33)
    back = (turn(q).transpose(-1, -2) @ d[:, :, None]).squeeze(-1)
    turned = rotate_sh(sh.to(dtype), q.to(dtype))
    assert turned.dtype == dtype
    expected = sh_colour(sh, back)
    assert n == 1 or (expected - sh_colour(sh, d)).abs().max() > 0.1
    torch.testing.assert_close(sh_colour(turned, d.to(dtype)).double(), expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("n", BANDS)
def test_each_band_turns_by_itself(n: int) -> None:
    """Its squares add up to the same: the matrix of every band is orthogonal."""
    sh = random_coefficients(31, n)
    turned = rotate_sh(sh, random_quaternions(31))
    for degree in range(math.isqrt(n)):
        band = slice(degree**2, (degree + 1) ** 2)
        torch.testing.assert_close(turned[:, band].square().sum(1), sh[:, band].square().sum(1), atol=1e-12, rtol=0)


@pytest.mark.parametrize("n", BANDS)
def test_no_turn_and_the_same_turn_with_the_other_sign(n: int) -> None:
    sh, q = random_coefficients(5, n), random_quaternions(5)
    torch.testing.assert_close(rotate_sh(sh, torch.eye(4, dtype=F64)[:1].expand(5, 4)), sh, atol=1e-14, rtol=0)
    torch.testing.assert_close(rotate_sh(sh, -q), rotate_sh(sh, q), atol=1e-14, rtol=0)


@pytest.mark.parametrize("n", BANDS)
def test_turns_follow_one_another_and_are_undone(n: int) -> None:
    sh, a, b = random_coefficients(31, n), random_quaternions(31), random_quaternions(31)
    torch.testing.assert_close(rotate_sh(rotate_sh(sh, b), a), rotate_sh(sh, quat_multiply(a, b)), atol=1e-12, rtol=0)
    torch.testing.assert_close(rotate_sh(rotate_sh(sh, a), quat_conjugate(a)), sh, atol=1e-12, rtol=0)


def test_a_quarter_turn_about_z_takes_x_to_y() -> None:
    """Band 1 is -y, z, -x by hand; a sky that was bright towards x is then bright towards y."""
    sh = torch.zeros(1, 4, 3, dtype=F64)
    sh[0, 3] = torch.tensor([1.0, 2, 3], dtype=F64)
    turned = rotate_sh(sh, torch.tensor([[1.0, 0, 0, 1]], dtype=F64) / math.sqrt(2))
    torch.testing.assert_close(turned, sh[:, [0, 3, 2, 1]], atol=1e-14, rtol=0)


@pytest.mark.parametrize("n", BANDS)
def test_nothing_to_turn(n: int) -> None:
    assert rotate_sh(torch.zeros(0, n, 3), torch.zeros(0, 4)).shape == (0, n, 3)
