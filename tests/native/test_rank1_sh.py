# SPDX-License-Identifier: Apache-2.0
"""Gradients of harmonics as unwritten products: the backward pass agrees with torch in float64, only a step's own
parameters take part, and the operators refuse wrong arguments. tests/opt/test_fused_harmonics.py has the updates."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from block_lists import listed
from operators import check_schema
from rounding import assert_near
from torch import Tensor
from torch.nn import functional as F
from warp_tile_scenes import driven

from nurec_lite.geometry.harmonics import sh_basis
from nurec_lite.native import ops
from nurec_lite.native import stages as native
from nurec_lite.native.operators.view_colour import PlacementArrays, view_colour, view_directions
from nurec_lite.native.operators.visible_blocks import BLOCK
from nurec_lite.native.plan import CPU_PLAN
from nurec_lite.native.rank1_sh import DeferredShGrad
from nurec_lite.scene.gaussians import SplitGaussians
from nurec_lite.splat import render

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SIZES = ((0, 0), (1, 0), (0, 1), (31, 2), (33, 31), (128, 129), (257, 900))  # that stand still, and that move
PLACED = ("still_means", "means", "rotations")
EYE = torch.tensor([0.3, -0.2, 1.5])


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def scene_of(still: int, moving: int, bands: int = 16, device: str = "cpu") -> SplitGaussians:
    """A scene: a third of the Gaussians has channels that are clamped, and one of five nodes is empty."""
    n, generator = still + moving, torch.Generator().manual_seed(still + moving)

    def made(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    node = torch.randint(4, (moving,), generator=generator).sort().values.to(device)
    return SplitGaussians(
        still_means=20 * made(still, 3), still_quats=made(still, 4), means=20 * made(moving, 3), quats=made(moving, 4),
        velocities=made(moving, 3), rotations=F.normalize(made(5, 4), dim=-1), nodes=node, scales=made(n, 3),
        opacities=made(n), sh0=made(n, 1, 3), sh_rest=0.3 * made(n, bands - 1, 3), lidar=made(n, 2),
    )  # fmt: skip


def doubled(g: SplitGaussians) -> SplitGaussians:
    return replace(g, **{k: v.cpu().double() for k, v in vars(g).items() if v.is_floating_point()}, nodes=g.nodes.cpu())


def colours_of(n: int, device: str = "cpu") -> Tensor:
    """Gradients of colours; a third belongs to Gaussians that no image sees, and whole blocks of 128 where there are as many."""
    d_colour = torch.randn(n, 3, generator=torch.Generator().manual_seed(n)).to(device)
    d_colour[::3] = 0
    d_colour[128:256] = d_colour[512:] = 0
    return d_colour


def arguments_of(g: SplitGaussians, d_colour: Tensor) -> tuple[Any, ...]:
    placements = PlacementArrays(g.still_means, g.means, g.rotations, g.nodes)
    return placements, g.sh0, g.sh_rest, EYE.to(d_colour), d_colour


# ---- the backward pass


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bands", [1, 4, 9, 16])
@pytest.mark.parametrize(("still", "moving"), SIZES, ids=str)
def test_the_product_is_the_gradient(still: int, moving: int, bands: int, device: str) -> None:
    g, d_colour = scene_of(still, moving, bands, device), colours_of(still + moving, device)
    *placed, directions, colours = torch.ops.nurec_lite.view_colour_rank1(*arguments_of(g, d_colour))
    exact = doubled(g)
    leaves = {name: getattr(exact, name).requires_grad_() for name in (*PLACED, "sh0", "sh_rest")}
    colour = render.view_colour(replace(exact, **leaves), EYE.double())
    wanted = torch.autograd.grad(
        colour, list(leaves.values()), d_colour.cpu().double(), materialize_grads=True, allow_unused=True
    )
    product = sh_basis(directions.double(), bands)[:, :, None] * colours.double()[:, None]
    assert_near(product, torch.cat(wanted[3:], dim=1), 1e-4)
    for found, expected in zip(placed, wanted[:3], strict=True):
        assert_near(found, expected, 1e-4)
    if still + moving > 30:
        assert ((colours == 0) & (d_colour != 0)).any()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bands", [1, 4, 9, 16])
def test_blocks_out_of_view_are_passed_by(bands: int, device: str) -> None:
    """The others get the same colours and gradients; none of these numbers is read."""
    g, d_colour = scene_of(600, 30, bands, device), colours_of(630, device)
    flags = torch.tensor([True, False, True], device=device)
    blocks, rows = listed(flags), flags.repeat_interleave(BLOCK)[:630]
    *arguments, _ = arguments_of(g, d_colour)
    plain, found = (torch.ops.nurec_lite.view_colour(*arguments, None, given) for given in (None, blocks))
    assert torch.equal(found[rows], plain[rows])
    d_colour = d_colour.masked_fill(~rows[:, None], torch.nan)
    still, moving, rotations, *factors = torch.ops.nurec_lite.view_colour_rank1(*arguments, d_colour, blocks)
    expected = torch.ops.nurec_lite.view_colour_rank1(*arguments, d_colour.nan_to_num(0), None)
    assert torch.equal(still[rows[:600]], expected[0][rows[:600]])
    assert torch.equal(moving, expected[1]) and torch.equal(rotations, expected[2])
    for own, other in zip(factors, expected[3:], strict=True):
        assert torch.equal(own[rows], other[rows])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("still", [0, 1, 257, 600, 630])
def test_directions_of_static_gaussians_follow_from_the_eye(still: int, device: str) -> None:
    """The backward pass stores the same. Rows of moving Gaussians, and rows out of the blocks, are not written."""
    driven(device)
    g, eyes = scene_of(630, 0, 4, device), torch.stack([EYE, EYE + 3]).to(device)
    flags = torch.tensor([True, False, True])
    found = torch.full((2, 630, 3), torch.nan, device=device)
    view_directions(g.still_means, eyes, listed(flags.to(device)), still, found)
    rows = flags.repeat_interleave(BLOCK)[:630]
    rows[still:] = False
    for eye, own in zip(eyes, found, strict=True):
        assert torch.equal(own.isfinite().all(-1).cpu(), rows)
        exact = render.local_directions(doubled(g), eye.cpu().double())
        assert_near(own[rows], exact[rows], 1e-6)
        *arguments, _, d_colour = arguments_of(g, torch.ones_like(own))
        stored = torch.ops.nurec_lite.view_colour_rank1(*arguments, eye, d_colour, None)[3]
        torch.testing.assert_close(own[rows], stored[rows], rtol=0, atol=2e-7)


# ---- from one to the other


def learned(n: int = 40) -> SplitGaussians:
    g = scene_of(n - 9, 9)
    return replace(g, sh0=g.sh0.requires_grad_(), sh_rest=g.sh_rest.requires_grad_(), means=g.means.requires_grad_())


def coloured(deferred: DeferredShGrad, g: SplitGaussians, eye: Tensor) -> Tensor:
    return native.colours_of(g, eye, None, replace(CPU_PLAN, rank1_sh=deferred))


def test_only_parameters_of_a_step_leave_a_product() -> None:
    g, deferred = learned(), DeferredShGrad()
    other = replace(g, sh0=g.sh0.detach().clone().requires_grad_())
    with deferred.expect(g.sh0, g.sh_rest):
        coloured(deferred, other, EYE).sum().backward()
        assert deferred.pop() is None and other.sh0.grad is not None
        with torch.no_grad():
            coloured(deferred, g, EYE)
        g.sh_rest.grad = None
        coloured(deferred, g, EYE).sum().backward()
        left = deferred.pop()
        assert left is not None and left.harmonics[0] is g.sh0 and left.harmonics[1] is g.sh_rest
        assert g.sh0.grad is None and g.sh_rest.grad is None and g.means.grad is not None
    coloured(deferred, g, EYE).sum().backward()
    assert g.sh0.grad is not None and deferred.pop() is None


def test_a_backward_pass_after_the_step_writes() -> None:
    g, deferred = learned(), DeferredShGrad()
    with deferred.expect(g.sh0, g.sh_rest):
        colour = coloured(deferred, g, EYE)
    colour.sum().backward()
    assert g.sh0.grad is not None and deferred.pop() is None


def test_a_second_product_is_written_and_both_count() -> None:
    g, deferred, d_colour = learned(), DeferredShGrad(), colours_of(40)
    with deferred.expect(g.sh0, g.sh_rest):
        a, b = (coloured(deferred, g, eye) for eye in (EYE, EYE + 3))
        torch.autograd.backward([a, b], [d_colour, d_colour])
        left = deferred.pop()
    assert left is not None and g.sh0.grad is not None
    left.write()
    found = g.sh0.grad, g.sh_rest.grad
    colours = [view_colour(g, eye) for eye in (EYE, EYE + 3)]
    expected = torch.autograd.grad(colours, [g.sh0, g.sh_rest], [d_colour, d_colour])
    for one, other in zip(found, expected, strict=True):
        assert one is not None
        assert_near(one, other)


def test_what_is_the_whole_gradient_is_handed_on_at_once() -> None:
    """Other gradients wait for the rest, which is written."""
    g, deferred, found = learned(), DeferredShGrad(), []
    with deferred.expect(g.sh0, g.sh_rest, update=found.append):
        with torch.no_grad():
            coloured(deferred, g, EYE)
        coloured(deferred, g, EYE).sum().backward()
        assert len(found) == 1 and deferred.pop() is None and g.sh0.grad is None
    with deferred.expect(g.sh0, g.sh_rest, update=found.append):
        torch.stack([coloured(deferred, g, eye) for eye in (EYE, EYE + 3)]).sum().backward()
        assert len(found) == 1 and deferred.pop() is not None and g.sh0.grad is not None


def test_a_gradient_besides_what_was_handed_on_is_noticed() -> None:
    g, deferred = learned(), DeferredShGrad()
    with deferred.expect(g.sh0, g.sh_rest, update=lambda _: None):
        (coloured(deferred, g, EYE).sum() + g.sh0.sum()).backward()
        with pytest.raises(AssertionError, match="before all of their gradient was there"):
            deferred.pop()


def test_an_eye_that_learns_goes_the_plain_way() -> None:
    g, deferred, eye = learned(), DeferredShGrad(), EYE.clone().requires_grad_()
    with deferred.expect(g.sh0, g.sh_rest):
        coloured(deferred, g, eye).sum().backward()
        assert deferred.pop() is None
    assert eye.grad is not None and g.sh0.grad is not None


def test_what_nobody_takes_is_noticed() -> None:
    g, deferred = learned(), DeferredShGrad()
    with pytest.raises(AssertionError, match="was not taken"), deferred.expect(g.sh0, g.sh_rest):
        coloured(deferred, g, EYE).sum().backward()
    with pytest.raises(KeyError), deferred.expect(g.sh0, g.sh_rest):
        coloured(deferred, g, EYE).sum().backward()
        raise KeyError
    assert deferred.pop() is None


# ---- the operators


def given_to_adam(n: int = 6, device: str = "cpu") -> dict[str, Any]:
    shapes = (n, 3), (n, 1, 3), (n, 8, 3)
    values, first, second = ([torch.rand(s, device=device) for s in shapes] for _ in range(3))
    directions = F.normalize(torch.randn(1, n, 3, device=device), dim=-1)
    colours = torch.randn(1, n, 3, device=device)
    return {
        "parameters": values, "gradients": [torch.rand(n, 3, device=device), None, None], "first": first,
        "second": second, "steps": [torch.ones((), device=device) for _ in shapes],
        "rates": torch.full((3,), 0.1, device=device), "failed": None, "touched_only": [False, True, False],
        "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-15, "directions": directions, "colours": colours,
    }  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
def test_torch_s_own_checks(device: str) -> None:
    check_schema(torch.ops.nurec_lite.adam.default, tuple(given_to_adam(device=device).values()))
    g = scene_of(4, 3, 4, device)
    check_schema(torch.ops.nurec_lite.view_colour_rank1.default, arguments_of(g, colours_of(7, device)))


@pytest.mark.parametrize("device", DEVICES)
def test_directions_that_do_not_fit_are_refused(device: str) -> None:
    driven(device)
    means, eyes, directions = (torch.rand(*shape, device=device) for shape in ((7, 3), (2, 3), (2, 7, 3)))
    blocks = listed(torch.tensor([True], device=device))
    operator = torch.ops.nurec_lite.view_directions
    check_schema(operator.default, (means, eyes, blocks, 4, directions))
    for still, into, words in (
        (8, directions, "still is 8"),
        (4, directions[:1], "directions"),
        (4, directions.mT, "directions"),
    ):
        with pytest.raises(ValueError, match=words):
            operator(means, eyes, blocks, still, into)


WRONG = {
    "both, or neither of them": {"colours": None},
    "gradients has 2 elements that are None, but must have 0": {"colours": None, "directions": None},
    "gradients has 1 elements that are None, but must have 2": {"gradients": [None, *2 * [torch.rand(6, 1, 3)]]},
    "directions has shape": {"directions": torch.rand(1, 5, 3)},
    "colours is Double": {"colours": torch.rand(1, 6, 3).double()},
    "colours has 2 views": {"colours": torch.rand(2, 6, 3)},
    "the first parameter without a gradient has shape": {"gradients": [None, torch.rand(6, 1, 3), None]},
    "the second parameter without a gradient has shape": {"gradients": [torch.rand(6, 3), None, None], "swapped": True},
    "sh has 6 coefficients": {"parameters": [torch.rand(6, 3), torch.rand(6, 1, 3), torch.rand(6, 5, 3)]},
}


@pytest.mark.parametrize("words", WRONG)
def test_what_does_not_fit_is_refused(words: str) -> None:
    changes = dict(WRONG[words])
    if changes.pop("swapped", False):
        changes["parameters"] = [torch.rand(6, 3), torch.rand(6, 1, 3), torch.rand(6, 8)]
    given = given_to_adam() | changes
    for name in ("first", "second"):
        given[name] = [torch.rand_like(p) for p in given["parameters"]]
    if words.startswith("gradients has 1"):
        given["gradients"][2] = torch.rand(6, 8, 3)
    with pytest.raises((ValueError, TypeError), match=words):
        torch.ops.nurec_lite.adam(*given.values())
