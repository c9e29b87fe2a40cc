# SPDX-License-Identifier: Apache-2.0
"""kernels/math/bfloat.cuh: rounding by chance, and where the chance comes from."""

import pytest
import torch
from kernel_math import F64, call
from torch import Tensor

DRAWS = torch.arange(1 << 16, dtype=F64)[:, None]
LARGEST = float(torch.finfo(torch.bfloat16).max)


def every_bfloat() -> Tensor:  # [65536, 1]
    return torch.arange(1 << 16).to(torch.uint16).view(torch.bfloat16).to(F64)[:, None]


def from_bits(*bits: int) -> Tensor:  # [n, 1] of floats
    return torch.tensor(bits, dtype=torch.int64).to(torch.uint32).view(torch.float32).to(F64)[:, None]


@pytest.mark.parametrize("draw", [0, 1, 1 << 15, (1 << 16) - 1, (1 << 32) - 1])
def test_what_a_bfloat16_can_be_stays(draw: int) -> None:
    """Zeros of either sign, infinities and the smallest numbers among them."""
    x = every_bfloat()
    found = call("rounded", x, float(draw))
    real = ~x.isnan()
    assert torch.equal(found[real], x[real]) and torch.equal(found[real].signbit(), x[real].signbit())
    assert found[~real].isnan().all()


@pytest.mark.parametrize("x", [1.2345678, -1.2345678, 0.999 * 3.0517578125e-05, 1e-39, -3e-41, 1.7e38, -2.99])
def test_the_mean_over_all_draws_is_the_number_itself(x: float) -> None:
    x = float(torch.tensor(x))
    found = call("rounded", torch.full_like(DRAWS, x), DRAWS)
    low, high = found.min(), found.max()
    assert low < x < high and set(found.flatten().tolist()) == {float(low), float(high)}
    assert torch.equal(found, found.bfloat16().to(F64)) and high - low <= max(abs(x) / 128, 2.0**-133)
    assert float(found.mean()) == pytest.approx(x, rel=1e-12)


def test_only_the_lower_half_of_a_draw_counts() -> None:
    x = torch.full_like(DRAWS, 0.3)
    assert torch.equal(call("rounded", x, DRAWS), call("rounded", x, DRAWS + 77 * 65536))


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_do_not_become_infinite(sign: int) -> None:
    x = sign * from_bits(0x7F7EFFFF, 0x7F7F0000, 0x7F7F0001, 0x7F7FFFFF, 0x7F800000)
    for draw in (0, 1, 0xFFFF):
        found = sign * call("rounded", x, float(draw))[:, 0]
        assert found[0] <= LARGEST and (found[1:4] == LARGEST).all() and found[4] == torch.inf


def test_nan_stays() -> None:
    """NaN stays where all bits that make it one lie in the lower half, and where adding would carry into the sign."""
    x = from_bits(0x7FC00001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC0FFFF, 0xFFC00000)
    for draw in (0, 1, 0xFFFF):
        assert call("rounded", x, float(draw)).isnan().all()


def mixed_here(x: int) -> int:
    state = (x * 747796405 + 2891336453) & 0xFFFFFFFF
    word = (((state >> ((state >> 28) + 4)) ^ state) * 277803737) & 0xFFFFFFFF
    return (word >> 22) ^ word


def test_the_hash_is_that_of_its_source() -> None:
    x = [0, 1, 2, 12345, 1 << 31, (1 << 32) - 1]
    found = call("mixed", torch.tensor(x, dtype=F64)[:, None])
    assert found[:, 0].tolist() == [mixed_here(one) for one in x]


@pytest.mark.parametrize("shift", [0, 16])
def test_draws_of_neighbours_are_even(shift: int) -> None:
    """Both halves, in 64 classes, and each beside that of the next value: chi^2 of 63 and of 4095 has a spread of 11 and 90."""
    start = int(call("start_of_draws", torch.tensor([[7.0]], dtype=F64), 1.0))
    places = (torch.arange(1 << 18) + start) % (1 << 32)
    found = call("mixed", places.to(F64)[:, None])[:, 0].long() >> shift & 0xFFFF
    one, two = found >> 10, (found[:-1] >> 10) * 64 + (found[1:] >> 10)
    assert chi_square(one, 64) < 63 + 5 * 11 and chi_square(two, 4096) < 4095 + 5 * 90


def chi_square(classes: Tensor, n: int) -> float:
    expected = len(classes) / n
    return float(((torch.bincount(classes, minlength=n) - expected) ** 2 / expected).sum())


def test_draws_of_another_step_and_of_another_tensor_begin_elsewhere() -> None:
    steps, tensors = torch.meshgrid(torch.arange(1.0, 500, dtype=F64), torch.arange(20.0, dtype=F64), indexing="ij")
    found = call("start_of_draws", steps.reshape(-1, 1), tensors.reshape(-1, 1))
    assert len(found.unique()) == found.numel()
    known = [mixed_here((mixed_here(1) + k) & 0xFFFFFFFF) for k in range(20)]
    assert found[:20, 0].tolist() == known
