# SPDX-License-Identifier: Apache-2.0
"""The operator sh_colour against the torch function of the same name."""

import pytest
import torch
from operators import check_schema
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.geometry.harmonics import sh_colour
from nurec_lite.native import ops

BANDS = (1, 4, 9, 16)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SIZES = (0, 1, 31, 33, 1025)


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def inputs(n: int, s: int, device: str) -> tuple[Tensor, Tensor]:
    """Some of the colours are clamped."""
    directions = F.normalize(torch.randn(n, 3), dim=-1)
    return torch.randn(n, s, 3).to(device), directions.to(device)


def by_op(sh: Tensor, directions: Tensor, apart: bool = False) -> Tensor:
    """`apart`: the first coefficients in an array of their own."""
    bands = (sh[:, :1].contiguous(), sh[:, 1:].contiguous()) if apart else (sh, None)
    return torch.ops.nurec_lite.sh_colour(*bands, directions)


def gradients(sh: Tensor, directions: Tensor, d_colour: Tensor, op: bool, apart: bool = False) -> list[Tensor]:
    leaves = [sh.clone().requires_grad_(), directions.clone().requires_grad_()]
    colour = by_op(*leaves, apart) if op else sh_colour(*leaves)
    return list(torch.autograd.grad(colour, leaves, d_colour, materialize_grads=True))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("s", BANDS)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("apart", [False, True])
def test_colours(n: int, s: int, device: str, apart: bool) -> None:
    sh, directions = inputs(n, s, device)
    expected = sh_colour(sh.double(), directions.double())
    found = by_op(sh, directions, apart)
    assert n < 31 or (found == 0).any()
    torch.testing.assert_close(found.double(), expected, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("s", BANDS)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("apart", [False, True])
def test_gradients(n: int, s: int, device: str, apart: bool) -> None:
    sh, directions = inputs(n, s, device)
    d_colour = torch.randn(n, 3, device=device)
    found = gradients(sh, directions, d_colour, op=True, apart=apart)
    expected = gradients(sh.double(), directions.double(), d_colour.double(), op=False)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_gradient_of_a_sum_and_of_a_part(device: str) -> None:
    """Gradients that arrive without memory of their own, or with strides."""
    sh, directions = inputs(33, 4, device)
    ones = torch.ones((), device=device).expand(33, 3)
    strided = torch.randn(33, 6, device=device)[:, ::2]
    for d_colour in (ones, strided):
        found = gradients(sh, directions, d_colour, op=True)
        torch.testing.assert_close(found, gradients(sh, directions, d_colour, op=False), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_only_what_is_asked_for(device: str) -> None:
    sh, directions = inputs(7, 9, device)
    leaf = sh.requires_grad_()
    (found,) = torch.autograd.grad(by_op(leaf, directions).sum(), leaf)
    torch.testing.assert_close(found, torch.autograd.grad(sh_colour(leaf, directions).sum(), leaf)[0])


@pytest.mark.parametrize("device", DEVICES)
def test_the_operator_is_a_whole_one(device: str) -> None:
    """The operator changes exactly the tensors of its schema, and its gradient is registered."""
    sh, directions = inputs(33, 16, device)
    op = torch.ops.nurec_lite.sh_colour.default
    backward = torch.ops.nurec_lite.sh_colour_backward.default
    for bands in ((sh, None), (sh[:, :1].contiguous(), sh[:, 1:].contiguous())):
        leaves = [band if band is None else band.clone().requires_grad_() for band in bands]
        check_schema(op, (*leaves, directions.clone().requires_grad_()))
        check_schema(backward, (*bands, directions, torch.randn(33, 3, device=device)))


def test_no_second_derivative() -> None:
    sh, directions = inputs(3, 4, "cpu")
    leaf = sh.requires_grad_()
    (first,) = torch.autograd.grad(by_op(leaf, directions).square().sum(), leaf, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        first.sum().backward()


@pytest.mark.parametrize(
    ("sh", "directions", "error", "sentence"),
    [
        (torch.zeros(5, 5, 3), torch.zeros(5, 3), ValueError, "sh has 5 coefficients, but must have 1, 4, 9 or 16"),
        (torch.zeros(5, 4), torch.zeros(5, 3), ValueError, "sh has shape"),
        (torch.zeros(5, 4, 2), torch.zeros(5, 3), ValueError, "sh has shape"),
        (torch.zeros(5, 4, 3), torch.zeros(6, 3), ValueError, "directions has shape"),
        (torch.zeros(5, 4, 3).double(), torch.zeros(5, 3), TypeError, "sh is Double, but must be Float"),
        (torch.zeros(5, 4, 3), torch.zeros(5, 3).double(), TypeError, "directions is Double"),
        (torch.zeros(4, 5, 3).transpose(0, 1), torch.zeros(5, 3), ValueError, "sh is not contiguous"),
        (torch.zeros(5, 4, 3), torch.zeros(3, 5).T, ValueError, "directions is not contiguous"),
    ],
)
def test_what_does_not_fit_is_refused(sh: Tensor, directions: Tensor, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        torch.ops.nurec_lite.sh_colour(sh, None, directions)


@pytest.mark.parametrize(
    ("first", "rest", "sentence"),
    [
        (torch.zeros(5, 2, 3), torch.zeros(5, 2, 3), "sh has shape"),
        (torch.zeros(5, 1, 3), torch.zeros(4, 3, 3), "rest has shape"),
        (torch.zeros(5, 1, 3), torch.zeros(5, 4, 3), "sh has 5 coefficients"),
    ],
)
def test_bands_apart_that_do_not_fit_are_refused(first: Tensor, rest: Tensor, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        torch.ops.nurec_lite.sh_colour(first, rest, torch.zeros(5, 3))
