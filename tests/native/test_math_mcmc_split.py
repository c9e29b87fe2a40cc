# SPDX-License-Identifier: Apache-2.0
"""kernels/math/mcmc_split.cuh in float64, against nurec_lite/training/density.py."""

import pytest
import torch
from kernel_math import F64, call, close
from torch import Tensor

from nurec_lite.training.density import DEAD_OPACITY, INVISIBLE, MAX_COPIES, _alternating, mcmc_split, split_opacity

COPIES = torch.arange(1, MAX_COPIES + 1)
# Torch's 1 - (1 - o)^(1/n) is off by some 1e-16, which is this much of the least opacity here by 51.
ROUNDING = 2e-8


def opacities() -> Tensor:  # [n] 1e-6 to 1 - 1e-7, and values that are cut there
    near_0, near_1 = torch.logspace(-6, -0.5, 23, dtype=F64), 1 - torch.logspace(-7, -0.5, 23, dtype=F64)
    return torch.cat([near_0, near_1, torch.tensor([0.5, 1 - 1e-9], dtype=F64)])


def all_of(values: Tensor) -> tuple[Tensor, Tensor]:  # [n 51, ...] each with every number of copies, and these [n 51]
    return values.repeat_interleave(MAX_COPIES, 0), COPIES.repeat(len(values))


def found_parts(logits: Tensor, copies: Tensor) -> tuple[Tensor, Tensor]:
    found = call(
        "split_logits_alone" if logits.shape[1] == 1 else "split_logits_of_both", logits, copies[:, None].double()
    )
    return found[:, :-1], found[:, -1]


def test_opacities_of_copies() -> None:
    o, n = all_of(opacities()[:-1])
    expected, _ = split_opacity(o, n)
    found = call("split_opacity", o[:, None], n[:, None].double()).squeeze(1)
    torch.testing.assert_close(found, expected, rtol=ROUNDING, atol=0)
    assert torch.equal(found[n == 1], o[n == 1])


def test_opacities_so_small_that_1_less_them_is_1() -> None:
    o, n = all_of(torch.tensor([1e-9, 1e-15, 1e-20, 1e-40, 0], dtype=F64))
    found = call("split_opacity", o[:, None], n[:, None].double()).squeeze(1)
    torch.testing.assert_close(found, o / n, rtol=2e-9, atol=0)


def test_sums_with_every_number_of_terms() -> None:
    o, n = all_of(opacities()[:-1])
    x, _ = split_opacity(o, n)
    table = _alternating(torch.device("cpu"))  # [k, n]
    terms = table[:, n].T * x[:, None] ** torch.arange(MAX_COPIES)
    found = call("alternating_sum", x[:, None], n[:, None].double()).squeeze(1)
    assert bool(((found - terms.sum(1)).abs() <= 1e-13 * terms.abs().sum(1)).all())  # terms cancel
    at_0 = call("alternating_sum", torch.zeros(MAX_COPIES, 1, dtype=F64), COPIES[:, None].double())
    assert torch.equal(at_0, COPIES[:, None].double())


def test_one_sensor() -> None:
    o, n = all_of(opacities())
    logits = torch.logit(o)[:, None]
    for found, expected in zip(found_parts(logits, n), mcmc_split(logits, n), strict=True):
        torch.testing.assert_close(found, expected, rtol=ROUNDING, atol=1e-9)


def test_two_sensors_and_ties_of_them() -> None:
    """Pairs of all opacities, those with themselves among them."""
    pairs = torch.cartesian_prod(opacities()[::3], opacities()[::3])
    logits, n = all_of(torch.logit(pairs))
    found, factor = found_parts(logits, n)
    wanted, expected = mcmc_split(logits, n)
    torch.testing.assert_close(found, wanted, rtol=ROUNDING, atol=1e-9)
    torch.testing.assert_close(factor, expected, rtol=ROUNDING, atol=0)
    tied = logits[:, 0] == logits[:, 1]
    assert tied.any() and torch.equal(found[tied, 0], found[tied, 1])


def test_one_copy_is_as_opaque_as_the_one() -> None:
    o = opacities()[(opacities() >= DEAD_OPACITY) & (opacities() <= 1 - 1e-6)]
    logits = torch.logit(o)[:, None]
    found, factor = found_parts(logits, torch.ones(len(o)))
    close(found, logits, 1e-9)
    close(factor[:, None], torch.ones(len(o), 1, dtype=F64))


def test_limits_of_a_copy_s_opacity() -> None:
    o = torch.tensor([[1e-9], [0.001], [0.3], [1 - 1e-9]], dtype=F64)
    for greatest, least in ((1.0, DEAD_OPACITY), (0.0, INVISIBLE)):
        close(call("copy_logit", o, greatest), torch.logit(o.clamp(least, 1 - 1e-6)))
    close(call("clamped", o, 0.01, 0.5), o.clamp(0.01, 0.5))


@pytest.mark.parametrize("sensor", [0, 1])
def test_what_is_no_number_stays_that(sensor: int) -> None:
    logits = torch.tensor([[0.3, 0.2]], dtype=F64)
    logits[0, sensor] = torch.nan
    found, _ = found_parts(logits, torch.tensor([3]))
    assert found.isnan().tolist() == mcmc_split(logits, torch.tensor([3]))[0].isnan().tolist()
