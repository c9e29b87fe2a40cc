# SPDX-License-Identifier: Apache-2.0
"""The option `morton_order`: Gaussians near one another lie near one another, with all that belongs to them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from recorder_standin import install
from stepping import cramped, everything, no_sync_of, steps
from tiny_capture import tiny_state

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.opt.all.morton_order import BITS, CELL, by_place, morton_codes
from nurec_lite.training.density import Order, Relocation, relocate
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState

CPU = torch.device("cpu")


def stages_of(*names: str) -> Stages:
    return build_stages({name: parameters_of(name) for name in names}, base_stages("native", CPU))


# ---- codes


def plainly(cell: tuple[int, int, int]) -> int:
    """Bit by bit."""
    half = 1 << (BITS - 1)
    return sum(((c + half) >> k & 1) << (3 * k + axis) for k in range(BITS) for axis, c in enumerate(cell))


@given(st.tuples(*[st.integers(-(1 << 20), (1 << 20) - 1)] * 3))
def test_codes_are_those_of_bits_in_turns(cell: tuple[int, int, int]) -> None:
    means = (torch.tensor([cell], dtype=torch.float64) + 0.5) * CELL
    assert int(morton_codes(means)) == plainly(cell)


def test_what_is_too_far_lies_in_the_outermost_cells() -> None:
    most = (1 << (3 * BITS)) - 1
    assert morton_codes(torch.tensor([[1e9] * 3, [-1e9] * 3, [-0.1] * 3, [0.1] * 3])).tolist() == [
        most, 0, plainly((-1, -1, -1)), plainly((0, 0, 0)),
    ]  # fmt: skip
    assert morton_codes(torch.zeros(0, 3)).shape == (0,)


# ---- relocations


def relocated(state: TrainState, n_new: int, order: Order | None = None) -> Relocation:
    moved = relocate(state.scene.gaussians, n_new, torch.Generator().manual_seed(3), None, 0.1, None, order)
    assert moved is not None
    return moved


@pytest.mark.parametrize("n_new", [0, 9])
def test_a_relocation_has_the_same_gaussians_in_order(n_new: int) -> None:
    state = tiny_state()
    plain, own = relocated(state, n_new), relocated(state, n_new, by_place)
    codes = morton_codes(own.changed["means"])
    assert bool((own.node.diff() >= 0).all()) and len(own.node.unique()) > 1
    assert bool((codes.diff() >= 0)[own.node.diff() == 0].all()) and not bool((codes.diff() >= 0).all())
    order = torch.argsort(morton_codes(plain.changed["means"]), stable=True)
    order = order[torch.argsort(plain.node[order], stable=True)]
    for name in ("source", "node", "anew"):
        assert torch.equal(getattr(own, name), getattr(plain, name)[order]), name
    for name, value in own.changed.items():
        assert torch.equal(value, plain.changed[name][order]), name


# ---- the option


@pytest.mark.parametrize("below", [(), ("fused_interp", "fused_colour", "no_sync", "fused_adam", "fused_harmonics")])
def test_a_training_is_in_order_after_each_relocation(below: tuple[str, ...]) -> None:
    """At steps 3, 7 and 11; moments follow."""
    state, stages = tiny_state(), stages_of(*below, "morton_order")
    steps(stages, state, 4)
    g = state.scene.gaussians
    in_place = morton_codes(g.means.detach()).diff() >= 0
    assert bool(in_place[g.node.diff() == 0].float().mean() > 0.95)  # they have moved a step since
    steps(stages, state, 8)
    assert all(value.isfinite().all() for value in everything(state).values())
    assert len(g) > len(tiny_state().scene.gaussians)


def test_it_goes_with_steps_that_are_done_again_and_recorded_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("fused_interp", "no_sync", "fused_adam", "morton_order")
    tight, state = cramped(stages_of(*names), {3}), tiny_state()
    steps(tight, state, 9)
    assert no_sync_of(tight).redone >= 1
    install(monkeypatch)
    stages, graphed = stages_of(*names, "cuda_graph"), tiny_state()
    steps(stages, graphed, 25)
    assert stages.update.learn.launched >= 6  # type: ignore[attr-defined]
    for one in (state, graphed):
        assert all(value.isfinite().all() for value in everything(one).values())
