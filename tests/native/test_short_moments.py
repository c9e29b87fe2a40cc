# SPDX-License-Identifier: Apache-2.0
"""The operator adam with moments that are bfloat16: it does the same as with float32, within the rounding of 8 bits and in the mean
without an error. The option that keeps such moments is tested in tests/opt/test_amp.py."""

from itertools import product

import pytest
import torch
from rounding import assert_near
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.geometry.harmonics import sh_basis
from nurec_lite.native import ops
from nurec_lite.native.rank1_sh import Rank1ShGrad
from nurec_lite.opt.all import fused_adam
from nurec_lite.opt.lab import amp
from nurec_lite.training.optim import MOMENTS

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
BETAS, EPSILON, RATE = (0.9, 0.999), 1e-15, 0.01
UNIT = 2.0**-7  # between two neighbours, at most, as a part of either
SHORT, WHOLE = torch.bfloat16, torch.float32


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def optimizers(n: int, bands: int, device: str) -> tuple[torch.optim.Adam, torch.optim.Adam]:  # with it, without
    """Optimizers of harmonics between other parameters."""
    shapes = {"means": (n, 3), "sh0": (n, 1, 3), "sh_rest": (n, bands - 1, 3), "lidar_logits": (n, 2)}
    values = {name: torch.randn(shape, device=device) for name, shape in shapes.items()}
    made = []
    for _ in range(2):
        groups = [
            {"params": [v.clone().requires_grad_()], "name": name, "lr": RATE * (k + 1)}
            for k, (name, v) in enumerate(values.items())
        ]
        made.append(torch.optim.Adam(groups, betas=BETAS, eps=EPSILON, fused=True))
    amp.shorten(made[0])
    return made[0], made[1]


def harmonics_in(optimizer: torch.optim.Adam) -> tuple[Tensor, Tensor]:
    _, sh0, sh_rest, _ = (group["params"][0] for group in optimizer.param_groups)
    return sh0, sh_rest


def kept_in(optimizer: torch.optim.Adam) -> list[Tensor]:
    """Harmonics and their moments, copied."""
    found = [t for p in harmonics_in(optimizer) for t in (p, *(optimizer.state[p][name] for name in MOMENTS))]
    return [t.detach().clone() for t in found]


def factors(like: Tensor) -> tuple[Tensor, Tensor]:  # [N, 3] directions, [N, 3] gradients of colours
    directions, colours = F.normalize(torch.randn_like(like), dim=-1), torch.randn_like(like)
    colours[torch.rand_like(colours) < 0.4] = 0
    return directions, colours


def advance(
    *optimizers: torch.optim.Adam,
    written: bool = False,  # whether gradients are
    failed: Tensor | None = None,
    touched_only: tuple[str, ...] = (),
) -> Tensor:  # [N, 3] gradients of colours
    """A step of each by the same gradients."""
    given = [torch.randn_like(group["params"][0]) for group in optimizers[0].param_groups]
    directions, colours = factors(given[0])
    for optimizer in optimizers:
        for group, gradient in zip(optimizer.param_groups, given, strict=True):
            group["params"][0].grad = None if group["name"] in amp.SHORT else gradient
        outer = Rank1ShGrad(harmonics_in(optimizer), directions[None], colours[None])
        if written:
            outer.write()
        fused_adam.update(optimizer, failed, touched_only, outer=None if written else outer)
    return colours


def assert_explained(ours: torch.optim.Adam, plain: torch.optim.Adam, count: int) -> None:
    """Behind so many steps: a moment is off by a unit a step at most, of the largest that it has been; values by as much of their rates."""
    slack = count * UNIT * (1 + UNIT) ** count
    for k, (a, b) in enumerate(zip(harmonics_in(ours), harmonics_in(plain), strict=True)):
        mine, other = ours.state[a], plain.state[b]
        assert {mine[name].dtype for name in MOMENTS} == {SHORT} and float(mine["step"]) == float(
            other["step"]
        ) == count
        if not a.numel():
            continue
        second, exact = mine["exp_avg_sq"].float(), other["exp_avg_sq"]
        assert bool(((second - exact).abs() <= slack * exact + 1e-30).all())
        first = (mine["exp_avg"].float() - other["exp_avg"]).abs()
        assert float(first.max()) <= slack * float(other["exp_avg"].abs().max() * 1.5)
        assert float((a - b).detach().abs().max()) <= (count - 1) * slack * 4 * RATE * (k + 2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("written", [False, True], ids=["outer", "written"])
@pytest.mark.parametrize("bands", [1, 4, 9, 16])
@pytest.mark.parametrize("n", [0, 1, 31, 33, 259])
def test_steps_are_those_in_float32_but_for_8_bits(n: int, bands: int, written: bool, device: str) -> None:
    ours, plain = optimizers(n, bands, device)
    for count in range(1, 5):
        advance(ours, plain, written=written)
        assert_explained(ours, plain, count)
        if count == 1:  # before anything was rounded
            for a, b in zip(harmonics_in(ours), harmonics_in(plain), strict=True):
                assert_near(a, b)
    means, other = (o.param_groups[0]["params"][0] for o in (ours, plain))
    assert torch.equal(means, other) and ours.state[means]["exp_avg"].dtype == WHOLE


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("written", [False, True], ids=["outer", "written"])
def test_moments_that_start_anywhere(written: bool, device: str) -> None:
    """They start in the middle of a row that is read as a vector; a value's draws are the same."""
    ours, other = optimizers(70, 16, device)
    amp.shorten(other)
    advance(ours, other)
    for kept, name in product((other.state[p] for p in harmonics_in(other)), MOMENTS):
        longer = torch.cat([torch.zeros(3, device=device, dtype=SHORT), kept[name].flatten()])
        kept[name] = longer[3:].view_as(kept[name])
    advance(ours, other, written=written)
    for a, b in zip(kept_in(ours), kept_in(other), strict=True):
        torch.testing.assert_close(a, b, rtol=UNIT, atol=1e-6)
        assert a.dtype == WHOLE or float((a == b).float().mean()) > 0.99  # the rest by single precision's own rounding


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("written", [False, True], ids=["outer", "written"])
def test_a_failed_step_changes_nothing(written: bool, device: str) -> None:
    ours, _ = optimizers(67, 16, device)
    advance(ours, failed=torch.zeros((), device=device))
    before = kept_in(ours)
    advance(ours, failed=torch.ones((), device=device), written=written)
    assert all(torch.equal(a, b) for a, b in zip(kept_in(ours), before, strict=True))
    assert all(float(kept["step"]) == 1 for kept in ours.state.values())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("written", [False, True], ids=["outer", "written"])
def test_touched_only(written: bool, device: str) -> None:
    """Rows without a gradient stay, to the last bit."""
    ours, _ = optimizers(150, 9, device)
    advance(ours)
    before = kept_in(ours)
    colours = advance(ours, written=written, touched_only=amp.SHORT)
    for a, b in zip(kept_in(ours), before, strict=True):
        still = (colours == 0)[:, None].expand_as(a)
        assert torch.equal(a[still], b[still]) and not torch.equal(a, b)


# ---- chance


def alike(n: int, start: float = 0.3) -> tuple[torch.optim.Adam, Rank1ShGrad]:
    """Gaussians that are all the same, which chance alone tells apart; of degree 0."""
    ours, _ = optimizers(n, 1, "cpu")
    (sh0, rest), direction = harmonics_in(ours), torch.tensor([[0.0, 0.0, 1.0]]).repeat(n, 1)
    with torch.no_grad():
        sh0.fill_(1.0)
    for name in MOMENTS:
        ours.state[sh0][name].fill_(start)
    return ours, Rank1ShGrad((sh0, rest), direction[None], torch.full((1, n, 3), 0.7))


def test_the_mean_of_many_is_that_in_float32() -> None:
    """A second moment changes by a fraction of a unit in each of 300 steps; rounded to the nearest it would not change."""
    ours, outer = alike(5000)
    (sh0, _), gradient = outer.harmonics, float(sh_basis(outer.directions[0, :1], 1)) * 0.7
    first = second = float(torch.tensor(0.3, dtype=SHORT))
    for _ in range(300):
        fused_adam.update(ours, outer=outer)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
    found = {name: ours.state[sh0][name].double() for name in MOMENTS}
    assert_mean(found["exp_avg"], first)
    assert_mean(found["exp_avg_sq"], second)
    assert float(found["exp_avg_sq"].std()) < 0.08 * second
    nearest = torch.tensor(0.3, dtype=SHORT)
    assert torch.equal((0.999 * nearest.float() + 0.001 * gradient**2).bfloat16(), nearest)


def assert_mean(found: Tensor, expected: float) -> None:
    """Asserts that a mean lies within five of its own errors."""
    assert abs(float(found.mean()) - expected) < 5 * float(found.std()) / found.numel() ** 0.5 + 1e-6


def test_neighbours_are_rounded_apart() -> None:
    ours, outer = alike(4000)
    fused_adam.update(ours, outer=outer)
    found = ours.state[outer.harmonics[0]]["exp_avg_sq"].float().flatten()
    high = found > found.min()
    part = float(high.float().mean())
    both = float((high[1:] & high[:-1]).float().mean())
    assert 0.01 < part < 0.99 and abs(both - part**2) < 0.03


def test_runs_can_be_repeated_and_steps_differ() -> None:
    found = []
    for step in (4.0, 4.0, 5.0):
        ours, outer = alike(500)
        ours.state[outer.harmonics[0]]["step"].fill_(step)
        fused_adam.update(ours, outer=outer)
        found.append(ours.state[outer.harmonics[0]]["exp_avg"])
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


# ---- refusals


def test_moments_of_two_types_are_refused() -> None:
    ours, _ = optimizers(5, 4, "cpu")
    sh0, _ = harmonics_in(ours)
    ours.state[sh0]["exp_avg_sq"] = ours.state[sh0]["exp_avg_sq"].float()
    with pytest.raises(TypeError, match=r"second\[1\] is Float, but must be BFloat16"):
        advance(ours)
    ours.state[sh0]["exp_avg"] = ours.state[sh0]["exp_avg"].float()
    with pytest.raises(TypeError, match="are Float and BFloat16, but must be of one type"):
        advance(ours)
    for name in MOMENTS:
        ours.state[sh0][name] = ours.state[sh0][name].half()
    with pytest.raises(TypeError, match=r"first\[1\] is Half, but must be Float"):
        advance(ours)
