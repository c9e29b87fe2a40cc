# SPDX-License-Identifier: Apache-2.0
"""Operators that pass blocks of 256 Gaussians by: activate, regularisers, sgld_noise and adam. Numbers of visible
blocks are those of a call without blocks. The blocks themselves: test_visible_blocks.py."""

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from block_lists import listed
from operators import check_schema
from stored_gaussians import STORED, gaussians_of, on, opacities_of
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.native import ops
from nurec_lite.native.operators.visible_blocks import BLOCK
from nurec_lite.opt.all import fused_activate
from nurec_lite.training import losses

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SIZES = (1, 255, 256, 257, 1025, 2500, 5000)
MANY = pytest.param(700_000, "cuda", marks=pytest.mark.gpu)  # more visible blocks than a launch has thread blocks
PATTERNS = {  # numbers of the visible blocks of ten
    "none": (),
    "first": (0,),
    "last": (9,),
    "inner": (1, 2, 5, 6),
    "every other": (1, 3, 5, 7, 9),
    "all": tuple(range(10)),
}
BETAS, EPSILON = (0.9, 0.999), 1e-15


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def blocks_of(n: int, pattern: str, device: str) -> tuple[Tensor, Tensor]:
    """Visible blocks, and [N] bool of their Gaussians. The last block counts as the last of ten."""
    blocks = torch.zeros((n + BLOCK - 1) // BLOCK, dtype=torch.bool, device=device)
    blocks[:] = pattern == "all"
    for k in PATTERNS[pattern]:
        if k == 9 or k < len(blocks) - 1:
            blocks[-1 if k == 9 else k] = True
    return listed(blocks), blocks.repeat_interleave(BLOCK)[:n]


def by_pattern(test: Any) -> Any:
    cases = [(n, "cpu") for n in SIZES] + [pytest.param(n, "cuda", marks=pytest.mark.gpu) for n in SIZES] + [MANY]
    test = pytest.mark.parametrize(("n", "device"), cases)(test)
    return pytest.mark.parametrize("pattern", PATTERNS)(test)


def without(values: Tensor, rows: Tensor, value: float = math.nan) -> Tensor:
    """A copy with other values in rows that are not visible."""
    return values.masked_fill(~rows.view(-1, *[1] * (values.dim() - 1)), value)


def test_patterns_are_what_they_say() -> None:
    found = {name: blocks_of(2500, name, "cpu")[0].tolist() for name in PATTERNS}
    assert found["inner"][:5] == [4, 1, 2, 5, 6] and found["last"][:2] == [1, 9] and found["none"][0] == 0
    assert found["all"] == [10, *range(10)] and blocks_of(1, "all", "cpu")[1].tolist() == [True]


# ---- activate


@pytest.mark.parametrize("columns", [2, 3])
@by_pattern
def test_hidden_gaussians_are_transparent(n: int, pattern: str, columns: int, device: str) -> None:
    """Their other values are not written."""
    g, (blocks, rows) = on(gaussians_of(n, columns, odd=False), device), blocks_of(n, pattern, device)
    stored = [getattr(g, name) for name in STORED]
    plain = torch.ops.nurec_lite.activate(*stored)
    found = torch.ops.nurec_lite.activate(*stored, blocks)
    for a, b in zip(found, plain, strict=True):
        assert a.shape == b.shape and (not len(a) or a[rows].equal(b[rows]))
    assert found[2].equal(without(plain[2], rows, 0)) and len(found[4]) == (n if columns > 2 else 0)


# ---- regularisers


def terms_of(values: list[Tensor], own: bool, blocks: Tensor | None) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Terms, and gradients of a weighted sum."""
    camera, lidar, scales = (v.detach().requires_grad_() for v in values)
    terms = fused_activate.regularisers(camera, lidar if own else camera, scales, blocks)
    weights = {"opacity": 0.3, "scale": 0.7, "tie": 0.2}
    leaves = (camera, lidar, scales) if own else (camera, scales)
    loss = torch.stack([weights[name] * term for name, term in terms.items()]).sum()
    return {k: t.detach() for k, t in terms.items()}, list(torch.autograd.grad(loss, leaves))


@pytest.mark.parametrize("own", [True, False])
@by_pattern
def test_means_over_visible_gaussians(n: int, pattern: str, own: bool, device: str) -> None:
    """Nothing of hidden ones is read; gradients are those of the mean over all."""
    values, (blocks, rows) = [v.to(device) for v in opacities_of(n)], blocks_of(n, pattern, device)
    _, wanted = terms_of(values, own, None)
    terms, grads = terms_of([without(v, rows) for v in values], own, blocks)
    camera, lidar, scales = (v[rows].double() for v in values)
    truth = losses.regularisers(camera, lidar if own else camera, scales)
    assert list(terms) == list(truth)
    for name, term in terms.items():
        expected = truth[name] if rows.any() else torch.zeros_like(truth[name])
        torch.testing.assert_close(term.double(), expected, rtol=1e-6, atol=1e-9)
    for a, b in zip(grads, wanted, strict=True):
        assert a.shape == b.shape and a[rows].equal(b[rows])


@pytest.mark.parametrize("device", DEVICES)
def test_no_visible_block_is_zero_and_not_nan(device: str) -> None:
    values, (blocks, _) = [v.to(device) for v in opacities_of(1300)], blocks_of(1300, "none", device)
    terms, _ = terms_of(values, True, blocks)
    assert len(terms) == 3 and all(float(term) == 0 for term in terms.values())


# ---- noise


@by_pattern
def test_hidden_gaussians_get_no_noise(n: int, pattern: str, device: str) -> None:
    """Thin ones stay as thin as they are, too."""
    g, (blocks, rows) = gaussians_of(n, odd=False), blocks_of(n, pattern, device)
    g.opacity_logits.sub_(4), g.lidar_logits.sub_(4)  # transparent ones
    g.log_scales[::2] = -20
    step, amount = (torch.tensor(value, device=device) for value in (41.0, 0.7))
    found, plain, before = (on(g, device) for _ in range(3))
    fused_activate.add_sgld_noise(plain, step, 3, amount, None)
    fused_activate.add_sgld_noise(found, step, 3, amount, None, blocks)
    for name in ("means", "log_scales"):
        a, b, was = (getattr(one, name) for one in (found, plain, before))
        assert a.equal(torch.where(rows[:, None], b, was)) and (n == 1 or not b.equal(was))


# ---- adam


@dataclass(frozen=True)
class Update:
    """Arguments of the operator adam."""

    parameters: list[Tensor]
    gradients: list[Tensor | None]
    first: list[Tensor]
    second: list[Tensor]
    steps: list[Tensor]
    touched_only: list[bool]
    directions: Tensor | None = None
    colours: Tensor | None = None

    def applied(self, blocks: Tensor | None) -> list[Tensor]:
        """Copies of parameters, moments and steps, after the update."""
        kept = [[t.clone() for t in group] for group in (self.parameters, self.first, self.second, self.steps)]
        values, first, second, steps = kept
        rates = 0.01 * torch.arange(1.0, 1 + len(values), device=values[0].device)
        args = values, self.gradients, first, second, steps, rates, None, self.touched_only, *BETAS, EPSILON
        torch.ops.nurec_lite.adam(*args, self.directions, self.colours, None, blocks)
        return [t for group in kept for t in group]

    def changed(self, rows: Tensor, value: float) -> "Update":
        """The same with other gradients of hidden Gaussians; those of colours are 0 where not all tensors are touched_only."""
        gradients = [
            without(d, rows, value) if d is not None and touched else d
            for d, touched in zip(self.gradients, self.touched_only, strict=True)
        ]
        colour = value if all(self.touched_only) else 0
        colours = None if self.colours is None else without(self.colours.transpose(0, 1), rows, colour).transpose(0, 1)
        return replace(self, gradients=gradients, colours=None if colours is None else colours.contiguous())


def update_of(shapes: list[tuple[int, ...]], touched_only: list[bool], dtype: torch.dtype, device: str) -> Update:
    """Some gradients are 0."""
    seed = torch.Generator().manual_seed(shapes[0][0])
    made = [[torch.randn(shape, generator=seed) for shape in shapes] for _ in range(4)]
    values, gradients, first, second = ([t.to(device) for t in group] for group in made)
    given = [d * (d.abs() > 0.4) for d in gradients]
    moments = [m.to(dtype) for m in first], [m.square().to(dtype) for m in second]
    steps = [torch.tensor(3.0, device=device) for _ in shapes]
    return Update(values, list(given), *moments, steps, touched_only)


def assert_same_update(found: list[Tensor], wanted: list[Tensor]) -> None:
    """Bit by bit on a GPU. A compiler for CPUs may fuse the products of a vector and of the rest of a loop differently."""
    for a, b in zip(found, wanted, strict=True):
        rounding = 2.0**-7 if a.dtype == torch.bfloat16 else 1e-6
        torch.testing.assert_close(a, b, **dict.fromkeys(("rtol", "atol"), 0.0 if a.is_cuda else rounding))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@by_pattern
def test_hidden_gaussians_stay_whatever_their_gradients(n: int, pattern: str, dtype: torch.dtype, device: str) -> None:
    """The update without blocks is one where they have none; rows are of several widths."""
    blocks, rows = blocks_of(n, pattern, device)
    shapes, touched_only = [(n, 3), (3, 4, 8), (n, 4), (n,), (n, 3), (n, 15, 3)], [True, False, True, True, True, True]
    update = update_of(shapes, touched_only, dtype, device)
    found = update.changed(rows, math.nan).applied(blocks)
    assert_same_update(found, update.changed(rows, 0).applied(None))
    for k, (now, was) in enumerate(zip(found, update.parameters, strict=False)):
        if update.touched_only[k]:
            assert now[~rows].equal(was[~rows])
    assert not found[1].equal(update.parameters[1]) and (not rows.any() or not found[2].equal(update.parameters[2]))


@pytest.mark.parametrize("device", DEVICES)
def test_tensors_that_begin_in_the_middle_of_a_vector(device: str) -> None:
    n = 1100
    blocks, rows = blocks_of(n, "every other", device)
    update = update_of([(n, 3), (n,)], [True, True], torch.float32, device)
    hidden = update.changed(rows, math.nan).gradients
    odd = [None if d is None else torch.cat([d.new_zeros(1), d.flatten()])[1:].view(d.shape) for d in hidden]
    found = replace(update, gradients=odd).applied(blocks)
    assert_same_update(found, update.changed(rows, 0).applied(None))


@pytest.mark.parametrize("touched_only", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("views", [1, 2, 3])
@pytest.mark.parametrize("coefficients", [1, 4, 9, 16])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("device", DEVICES)
def test_harmonics_without_a_stored_gradient(
    pattern: str, coefficients: int, views: int, dtype: torch.dtype, touched_only: bool, device: str
) -> None:
    """Colours of hidden Gaussians have no gradients. A visible block may lie between hidden ones."""
    n = 2500
    blocks, rows = blocks_of(n, pattern, device)
    shapes: list[tuple[int, ...]] = [(n, 3), (n, 1, 3), (n, coefficients - 1, 3)]
    update = update_of(shapes, [True, touched_only, touched_only], dtype, device)
    made = torch.randn(2, views, n, 3, generator=torch.Generator().manual_seed(views)).to(device)
    update = replace(update, gradients=[update.gradients[0], None, None], directions=F.normalize(made[0], dim=-1))
    update = replace(update, colours=made[1] * (made[1].abs() > 0.4))
    found = update.changed(rows, math.nan).applied(blocks)
    assert_same_update(found, update.changed(rows, 0).applied(None))
    assert found[1].equal(update.parameters[1]) == (touched_only and pattern == "none")


WRONG: dict[str, dict[str, Any]] = {
    r"blocks has shape \[4\], but must have \[3\]": {"blocks": torch.tensor([2, 0, 1, 2], dtype=torch.int32)},
    r"blocks has shape \[2\], but must have \[3\]": {"blocks": torch.tensor([1, 0], dtype=torch.int32)},
    "blocks lists 3 blocks, but there are 2": {"blocks": torch.tensor([3, 0, 1], dtype=torch.int32)},
    "blocks lists -1 blocks, but there are 2": {"blocks": torch.tensor([-1, 0, 1], dtype=torch.int32)},
    "blocks holds 2 in row 2, but numbers must ascend, and be below 2": {
        "blocks": torch.tensor([2, 0, 2], dtype=torch.int32)
    },
    "blocks holds 0 in row 2, but numbers must ascend": {"blocks": torch.tensor([2, 0, 0], dtype=torch.int32)},
    "blocks holds -1 in row 1, but numbers must ascend": {"blocks": torch.tensor([1, -1, 0], dtype=torch.int32)},
    "blocks are given, but no tensor is touched_only": {"touched_only": [False, False]},
    r"parameters\[1\] has shape \[299\] and strides \[1\], but with blocks it must be contiguous": {
        "shapes": [(300, 3), (299,)]
    },
    r"parameters\[0\] has shape \[\] and strides \[\], but with blocks it must be contiguous": {"shapes": [(), (300,)]},
}


@pytest.mark.parametrize("words", WRONG)
def test_blocks_that_do_not_fit_adam_are_refused(words: str) -> None:
    given: dict[str, Any] = {
        "shapes": [(300, 3), (300,)],
        "touched_only": [True, True],
        "blocks": torch.tensor([2, 0, 1], dtype=torch.int32),
    }
    given |= WRONG[words]
    with pytest.raises(ValueError, match=words):
        updated(given["shapes"], given["touched_only"]).applied(given["blocks"])


def updated(shapes: list[tuple[int, ...]], touched_only: list[bool]) -> Update:
    zeros = [torch.zeros(shape) for shape in shapes]
    return Update(zeros, list(zeros), zeros, zeros, [torch.zeros(()) for _ in shapes], touched_only)


def test_blocks_that_do_not_fit_others_are_refused() -> None:
    g, one, wrong = gaussians_of(300), torch.ones(()), torch.ones(2, dtype=torch.int32)
    with pytest.raises(ValueError, match="blocks has shape"):
        torch.ops.nurec_lite.activate(*(getattr(g, name) for name in STORED), wrong)
    with pytest.raises(ValueError, match="blocks has shape"):
        fused_activate.regularisers(*opacities_of(300), wrong)
    with pytest.raises(ValueError, match="blocks has shape"):
        fused_activate.add_sgld_noise(g, one, 0, one, None, wrong)
    with pytest.raises(TypeError, match="blocks is Float"):
        fused_activate.add_sgld_noise(g, one, 0, one, None, torch.ones(3))


# ---- torch's own checks


@pytest.mark.parametrize("device", DEVICES)
def test_torch_s_own_checks_with_blocks(device: str) -> None:
    g, (blocks, _) = on(gaussians_of(300, odd=False), device), blocks_of(300, "all", device)
    one = torch.ones((), device=device)
    camera, lidar, scales = (v.to(device) for v in opacities_of(300))
    check_schema(torch.ops.nurec_lite.activate.default, (*(getattr(g, name) for name in STORED), blocks))
    check_schema(torch.ops.nurec_lite.regularisers.default, (camera, lidar, scales, blocks))
    check_schema(torch.ops.nurec_lite.regularisers_backward.default, (camera, lidar, scales, one, None, one, blocks))
    explored = g.means, g.log_scales, g.quats, g.opacity_logits, g.lidar_logits
    check_schema(torch.ops.nurec_lite.sgld_noise.default, (*explored, one, 3, one, None, -9.0, blocks))
    u = update_of([(300, 3), (300,)], [True, True], torch.float32, device)
    args = u.parameters, u.gradients, u.first, u.second, u.steps, torch.ones(2, device=device), None, u.touched_only
    check_schema(torch.ops.nurec_lite.adam.default, (*args, *BETAS, EPSILON, None, None, None, blocks))
