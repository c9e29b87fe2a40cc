# SPDX-License-Identifier: Apache-2.0
"""The operator mcmc_split in single precision, against nurec_lite/training/density.py. test_math_mcmc_split.py has its formulas in double
precision, tests/opt/test_fused_activate_part.py relocations by it."""

import pytest
import torch
from operators import check_schema
from torch import Tensor

from nurec_lite.native import ops
from nurec_lite.training.density import DEAD_OPACITY, MAX_COPIES, mcmc_split

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
UNIT = 2.0**-22  # of an opacity: two last bits of those near 1


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def part(logits: Tensor, copies: Tensor, device: str = "cpu") -> tuple[Tensor, Tensor]:
    found, factor = torch.ops.nurec_lite.mcmc_split(logits.to(device), copies.to(device))
    return found.cpu(), factor.cpu()


def problem(n: int, sensors: int) -> tuple[Tensor, Tensor]:
    """Opacities 1e-6 to 1 - 1e-7, a fourth of them ties, and all numbers of copies."""
    make = torch.Generator().manual_seed(n + sensors)
    far = 16 * (2 * torch.rand(n, sensors, generator=make) - 1)
    far[::4] = far[::4, :1]
    return far.clamp(min=-13.8), 1 + torch.arange(n) % MAX_COPIES


def agree(logits: Tensor, copies: Tensor, found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    """A sigmoid may be off by its last bit, and so may an opacity of a copy: by how much logits and factors move then."""
    o = torch.sigmoid(logits.double()).clamp(max=1 - 1e-7)
    left = (1 - o) ** (1 / copies[:, None].double())  # that a copy lets through
    share = 1 - left
    of_sigmoid = left * UNIT * o / ((1 - o) * copies[:, None])
    limit = (of_sigmoid + UNIT * share) / (share.clamp(min=1e-6) * left.clamp(min=1e-6)) + 1e-5
    assert bool(((found[0].double() - expected[0].double()).abs() <= limit).all())
    slope = 1e-5 + (of_sigmoid / share).amax(1)
    assert bool(((found[1].double() / expected[1].double() - 1).abs() <= slope).all())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sensors", [1, 2])
@pytest.mark.parametrize("n", [0, 1, 31, 33, 255, 257, 5001])
def test_as_the_readable_one_has_them(n: int, sensors: int, device: str) -> None:
    logits, copies = problem(n, sensors)
    found, factor = part(logits, copies, device)
    assert found.shape == logits.shape and factor.shape == (n,)
    agree(logits, copies, (found, factor), mcmc_split(logits, copies))


@pytest.mark.parametrize("device", DEVICES)
def test_sensors_that_see_alike_are_both_kept_from_death(device: str) -> None:
    logits = torch.logit(torch.tensor([[0.02, 0.02], [0.02, 0.019], [0.019, 0.02]]))
    found, _ = part(logits, torch.full((3,), MAX_COPIES), device)
    kept = (torch.sigmoid(found) - DEAD_OPACITY).abs() < 1e-6
    assert kept.tolist() == [[True, True], [True, False], [False, True]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sensors", [1, 2])
def test_one_copy_stays_as_it_was(sensors: int, device: str) -> None:
    logits, _ = problem(500, sensors)
    logits = logits.clamp(-5.2, 13)
    found, factor = part(logits, torch.ones(500, dtype=torch.int64), device)
    opacities = torch.sigmoid(logits)
    torch.testing.assert_close(torch.sigmoid(found), opacities, rtol=2e-6, atol=0)
    torch.testing.assert_close(factor, torch.ones(500))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sensors", [1, 2])
@pytest.mark.parametrize("n", [0, 7])
def test_torch_s_own_checks(n: int, sensors: int, device: str) -> None:
    logits, copies = problem(n, sensors)
    check_schema(torch.ops.nurec_lite.mcmc_split.default, (logits.to(device), copies.to(device)))


WRONG = {
    "logits has shape": {"logits": torch.zeros(5)},
    "logits has 3 columns, but must have 1, or 2": {"logits": torch.zeros(5, 3)},
    "logits has 0 columns": {"logits": torch.zeros(5, 0)},
    "logits is Double": {"logits": torch.zeros(5, 2, dtype=torch.float64)},
    "logits is not contiguous": {"logits": torch.zeros(2, 5).T},
    "copies has shape": {"copies": torch.ones(4, dtype=torch.int64)},
    "copies is Int": {"copies": torch.ones(5, dtype=torch.int32)},
    "copies holds 0": {"copies": torch.tensor([1, 1, 0, 1, 1])},
    "copies holds 52": {"copies": torch.tensor([1, 1, 52, 1, 1])},
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_arrays_are_refused(words: str) -> None:
    given = {"logits": torch.zeros(5, 2), "copies": torch.ones(5, dtype=torch.int64)} | WRONG[words]
    with pytest.raises((ValueError, TypeError), match=words):
        torch.ops.nurec_lite.mcmc_split(given["logits"], given["copies"])
