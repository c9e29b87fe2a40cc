# SPDX-License-Identifier: Apache-2.0
"""Several ranks on a long drive join the blocks that their views see, and exchange gradients of these alone. With NUREC_LITE_EMULATE_CUDA=1
two processes run the CUDA drivers."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from block_lists import flags_of
from branch_watch import Watch
from ranked import Started
from stepping import cramped, everything, no_sync_of, steps
from test_fused_project import ALL, PLAN_OF_A_GPU, underground
from tiny_capture import tiny_state
from torch.nn import functional as F
from warp_tile_scenes import driven

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.base.ranks import Ranks, begin
from nurec_lite.native import ops
from nurec_lite.native.bind import native_stages
from nurec_lite.native.rank1_sh import Rank1ShGrad
from nurec_lite.training import unseen
from nurec_lite.training.block_messages import BlockMessage
from nurec_lite.training.exchange import Exchange, Factors
from nurec_lite.training.factor_messages import BlockFactors, WholeFactors
from nurec_lite.training.spread import exchanged, exchanging, spread
from nurec_lite.training.stages import Stages

CPU = torch.device("cpu")
EPS = 1e-6  # of Adam, as in test_spread.py
ROUNDING = {"rtol": 1e-3, "atol": 1e-4}
N = 6  # steps


def stages_of(ranks: Ranks, blocks: bool, options: tuple[str, ...]) -> Stages:
    names = (*options, *(("fused_project",) if blocks else ()), "batch")
    given = {name: parameters_of(name) | ({"images": 2, "sweeps": 2} if name == "batch" else {}) for name in names}
    base = replace(base_stages("native", CPU).compiled(PLAN_OF_A_GPU, native_stages), device="cuda")
    return spread(build_stages(given, exchanging(base, ranks)), ranks)


def trained(
    rank: int,
    blocks: bool,
    options: tuple[str, ...] = ALL,
    overflows: frozenset[int] = frozenset(),
    narrow: tuple[str, int] = ("", 3),  # kinds of lists that overflow then, and how many entries they hold
    n: int = N,
) -> dict[str, Any]:
    """All that some steps change, of two images and sometimes two sweeps, and the blocks that they saw."""
    ranks, seen = begin("cpu"), {}
    stages = stages_of(ranks, blocks, options)
    inner = stages.update.noise

    def noise(state: Any) -> None:
        seen[state.step] = None if state.visible_blocks is None else flags_of(state.visible_blocks).tolist()
        inner(state)

    with unseen.every_drive_is_long():
        state = underground(stages, CPU)
        for group in state.optimizer.param_groups:
            group["eps"] = EPS
        stages = stages.replaced(noise=noise)
        steps(cramped(stages, set(overflows), *narrow) if overflows else stages, state, n)
    ranks.leave()
    return {
        "end": {name: value.detach().numpy() for name, value in everything(state).items()}, "seen": seen,
        "sent": exchanged(stages).get("exchanged_bytes_a_step"), "redone": no_sync_of(stages).redone,
    }  # fmt: skip


def assert_alike(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in wanted["end"].items():
        torch.testing.assert_close(torch.tensor(found["end"][name]), torch.tensor(value), **ROUNDING, msg=name)


@pytest.mark.parametrize("left_out", [(), ("fused_harmonics",)], ids=["factors", "gradients"])
def test_two_ranks_see_the_blocks_of_one_process_and_learn_the_same(left_out: tuple[str, ...], tmp_path: Path) -> None:
    driven("cpu")
    options = tuple(name for name in ALL if name not in left_out)
    work = partial(trained, blocks=True, options=options)
    first, second = Started(2, work, tmp_path / "said.txt").results()
    one, whole = work(0), trained(0, blocks=False, options=options)
    assert all(not flags[0] and any(flags) for flags in one["seen"].values())
    assert first["seen"] == second["seen"] == one["seen"]
    for name, value in first["end"].items():
        assert (value == second["end"][name]).all(), f"ranks update {name} alike, bit by bit"
    assert_alike(first, one)
    assert_alike(one, whole)


def test_messages_shrink_when_reports_say_how_many_blocks_steps_see(tmp_path: Path) -> None:
    """One of two blocks is seen; reports come eight steps later."""
    driven("cpu")
    early, late, whole = (
        Started(2, partial(trained, blocks=blocks, n=n), tmp_path / f"{n}{blocks}.txt").results()[0]["sent"]
        for blocks, n in ((True, 2), (True, 12), (False, 12))
    )
    assert 0 < late < 0.7 * early and late < 0.7 * whole


@pytest.mark.parametrize(
    "narrow", [("", 3), ("blocks of images", 0), ("moving Gaussians", 0)], ids=["lists", "blocks", "directions"]
)
def test_what_does_not_fit_into_messages_repeats_the_step_on_all_ranks(narrow: tuple[str, int], tmp_path: Path) -> None:
    """After steps that saw nothing, a message has no room."""
    driven("cpu")
    work = partial(trained, blocks=True, overflows=frozenset({3}), narrow=narrow)
    first, second = Started(2, work, tmp_path / "said.txt").results()
    assert first["redone"] == second["redone"] > 0
    assert_alike(first, Started(2, partial(trained, blocks=True), tmp_path / "other.txt").results()[0])


def races(rank: int) -> list[str]:
    """Tensors that branches of a rank's steps read before those are there, on a GPU."""
    ranks, found = begin("cpu"), dict[str, None]()
    stages = stages_of(ranks, True, ALL)
    with unseen.every_drive_is_long():
        state = underground(stages, CPU)
        steps(stages, state, N)  # arrays of sensors that are kept are made now
        for _ in range(2):
            with Watch() as watch:
                steps(watch.around(stages), state, 1)
            assert state.blocks_sent > 0 and state.directions_sent > 0 and watch.begun.count("harmonics") == 1
            found |= watch.found
    ranks.leave()
    return list(found)


def test_branches_of_ranks_read_nothing_too_early(tmp_path: Path) -> None:
    driven("cpu")
    assert Started(2, races, tmp_path / "said.txt").results() == [[], []]


def joined(rank: int) -> list[int]:
    ranks, flags = begin("cpu"), torch.zeros(16, dtype=torch.uint8)
    flags[[rank, 5]] = 1
    Exchange(ranks).join(tiny_state(), flags)
    ranks.leave()
    return flags.nonzero().flatten().tolist()


def test_ranks_join_their_flags(tmp_path: Path) -> None:
    assert Started(2, joined, tmp_path / "said.txt").results() == [[0, 1, 5]] * 2


def test_a_message_without_gradients_of_gaussians_has_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of the sky, say. A rank alone receives its own message."""
    ops.load()
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda array, async_op: Sent())
    sky, means = (torch.ones(n, 3, requires_grad=True) for n in (5, 300))
    sky.grad = torch.full_like(sky, 4.0)
    message = BlockMessage([sky, means], [means], torch.tensor([1, 0, 1], dtype=torch.int32), 2)
    message.send(0.5, torch.ones(()))
    failed = message.receive(torch.ones(()))
    assert failed is not None and bool(failed) and (sky.grad == 2).all() and means.grad is None


class Sent:
    def wait(self) -> None:
        pass


@pytest.mark.parametrize("by_blocks", [False, True], ids=["all Gaussians", "blocks"])
def test_messages_say_which_entries_belong_to_which_image(by_blocks: bool) -> None:
    """Two ranks with two images each, of a scene where some Gaussians move."""
    n, still, views = 300, 270, 2
    if by_blocks:
        driven("cpu")
    means, eyes = torch.randn(n, 3), torch.randn(2, views, 3)
    blocks = torch.tensor([2, 0, 1], dtype=torch.int32)
    form: Factors = BlockFactors(means, views, blocks, 2, n - still) if by_blocks else WholeFactors()
    directions, colours = torch.rand(2, views, n, 3), torch.rand(2, views, n, 3)
    directions[:, :, :still] = F.normalize(means[:still] - eyes[:, :, None], dim=-1)
    entries, none = torch.tensor([[7, 20_000_000], [11, 0]]), torch.empty(0)
    own = [Rank1ShGrad((none, none), *parts) for parts in zip(directions, colours, eyes, strict=True)]
    found = [form.pack(own[rank], 0.5, torch.tensor(float(rank)), entries[rank]) for rank in range(2)]
    received = form.unpack(torch.stack(found))
    assert received.entries.tolist() == [7, 20_000_000, 11, 0] and received.failed == 1
    torch.testing.assert_close(received.directions, directions.flatten(0, 1), rtol=0, atol=1e-6)
    assert torch.equal(received.directions[:, still:], directions.flatten(0, 1)[:, still:])
    assert torch.equal(received.colours, 0.5 * colours.flatten(0, 1))
