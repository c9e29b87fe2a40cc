# SPDX-License-Identifier: Apache-2.0
"""kernels/math/depth.cuh: keys that sort Gaussians from near to far."""

import pytest
import torch
from kernel_math import F64, call
from torch import Tensor

NEAREST, FARTHEST = 1 / 16, 4096.0
BITS = [16, 24]


def distances() -> Tensor:  # [n, 1] float32 in float64, ascending: of both signs, from the smallest to infinity
    size = torch.logspace(-45, 38, 5001, dtype=F64).float()
    near = torch.linspace(0, 100, 5001)
    one = torch.cat([size, near, torch.tensor([torch.inf, torch.finfo(torch.float32).max])])
    return torch.cat([-one, one]).unique().to(F64)[:, None]


def bits_of(x: Tensor) -> Tensor:
    """Bits of floats."""
    return x.float().view(torch.int32).long() & 0xFFFFFFFF


def short(x: Tensor, bits: int) -> Tensor:  # [n]
    return call("short_depth_key", x, float(bits))[:, 0]


def test_all_bits_are_in_the_order_of_floats() -> None:
    keys = call("depth_key", distances())[:, 0]
    assert (keys.diff() > 0).all() and keys.min() >= 0 and keys.max() < 2**32 - 1


def test_either_zero_is_the_same() -> None:
    zeros = torch.tensor([0.0, -0.0], dtype=F64)[:, None]
    assert len(call("depth_key", zeros).unique()) == 1


@pytest.mark.parametrize("bits", BITS)
def test_a_short_key_never_decreases_and_fits(bits: int) -> None:
    keys = short(distances(), bits)
    assert (keys.diff() >= 0).all() and keys.min() == 0 and keys.max() == 2**bits - 1


@pytest.mark.parametrize("bits", BITS)
def test_a_short_key_is_the_first_bits_of_sixteen_octaves(bits: int) -> None:
    x = distances()
    inside = x[((x >= NEAREST) & (x < FARTHEST))][:, None]
    expected = (bits_of(inside) - bits_of(torch.tensor(NEAREST))) >> (27 - bits)
    assert torch.equal(short(inside, bits).long(), expected[:, 0])


@pytest.mark.parametrize(("bits", "step"), [(24, 2.0**-20), (16, 2.0**-12)])
def test_distances_with_one_key_differ_by_less_than_a_step(bits: int, step: float) -> None:
    """Distances that differ by a step of their size have other keys."""
    x = NEAREST * 2 ** torch.linspace(0, 15.99, 20_001, dtype=F64)[:, None]
    x = x.float().to(F64)
    assert (short(x * (1 + step), bits) > short(x, bits)).all()
    assert (short(x * (1 + step), bits) <= short(x, bits) + 2).all()


@pytest.mark.parametrize("bits", BITS)
def test_what_is_nearer_or_farther_shares_the_first_or_the_last_key(bits: int) -> None:
    near = torch.tensor([-torch.inf, -1e30, -5.0, -0.0, 0.0, 1e-40, 0.0624, NEAREST], dtype=F64)[:, None]
    far = torch.tensor([4095.999, FARTHEST, 1e6, 3e38, torch.inf], dtype=F64)[:, None]
    assert (short(near, bits) == 0).all() and (short(far, bits) == 2**bits - 1).all()


@pytest.mark.parametrize("bits", BITS)
def test_what_is_no_number_comes_last_as_with_all_bits(bits: int) -> None:
    nan = torch.tensor([[torch.nan]], dtype=F64)
    assert float(short(nan, bits)) == 2**bits - 1
    assert float(call("depth_key", nan)) > float(call("depth_key", torch.tensor([[torch.inf]], dtype=F64)))
