# SPDX-License-Identifier: Apache-2.0
"""Two ranks tell each other how long the lists of their images are, and pair images by that. With NUREC_LITE_EMULATE_CUDA=1 two
processes run the CUDA drivers."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ranked import Started
from recorder_standin import install
from stepping import cramped, everything, steps
from test_fused_project import ALL, underground
from test_spread_blocks import CPU, stages_of
from warp_tile_scenes import driven

from nurec_lite.base.ranks import begin
from nurec_lite.training import partners, unseen
from nurec_lite.training.shots import Shots
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState

WINDOW = 8  # steps, and as many are in flight
EPOCH = 8  # steps


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    driven("cpu")
    monkeypatch.setattr(partners, "WINDOW", WINDOW)
    yield


def trained(
    rank: int,
    n: int = 64,
    blocks: bool = False,
    more: tuple[str, ...] = (),
    options: tuple[str, ...] = (*ALL, "resident"),
    overflows: frozenset[int] = frozenset(),
) -> dict[str, Any]:
    """The scene after some steps, one of three with a sweep; the images of each step as planned, and those of this rank."""
    ranks, planned, own = begin("cpu"), [], []
    passing = ("fused_project",) if blocks else ()  # before cuda_graph, which records it
    stages = stages_of(ranks, False, (*options, *passing, *more))
    inner = stages.feed.fetch

    def fetch(stages: Stages, state: TrainState) -> Shots:
        shots = inner(stages, state)
        planned.append(state.plan.images_of(state.step))
        own.append([shot.index for shot in shots.images])
        return shots

    with unseen.every_drive_is_long() if blocks else nullcontext():
        state = underground(stages, CPU)
        state.step, state.plan = 0, replace(state.plan, sweeps_every=3)
        stages = stages.replaced(fetch=fetch)
        steps(cramped(stages, set(overflows)) if overflows else stages, state, n)
    stages.close()
    ranks.leave()
    return {
        "end": {name: value.detach().numpy() for name, value in everything(state).items()}, "planned": planned, "own": own,
        "entries": state.plan.partners.entries, "images": set(state.plan.split.train_images),
        "base": [state.plan.images.of(step) for step in range(n)],
    }  # fmt: skip


def both(work: Any, said: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = Started(2, work, said).results()
    assert first["planned"] == second["planned"] and first["entries"] == second["entries"]
    for rank, found in enumerate((first, second)):
        assert found["own"] == [[images[rank]] for images in found["planned"]]
    for name, value in first["end"].items():
        assert (value == second["end"][name]).all(), f"ranks update {name} alike, bit by bit"
    return first, second


CASES: dict[str, dict[str, Any]] = {
    "all Gaussians": {}, "visible blocks": {"blocks": True}, "recorded": {"more": ("cuda_graph",)},
    "recorded blocks": {"more": ("cuda_graph",), "blocks": True},
    "repeated steps": {"overflows": frozenset({30, 45})},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_pair_the_same_images_by_the_lists_of_both(
    case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch)
    found, _ = both(partial(trained, **CASES[case]), tmp_path / "said.txt")
    assert found["entries"].keys() == found["images"] and all(length > 0 for length in found["entries"].values())
    assert len(set(found["entries"].values())) > len(found["images"]) // 2
    assert found["planned"] != found["base"] and found["planned"][: 2 * WINDOW] == found["base"][: 2 * WINDOW]
    for start in range(0, len(found["planned"]), EPOCH):
        epoch = [image for images in found["planned"][start : start + EPOCH] for image in images]
        assert sorted(epoch) == sorted(found["images"])


OTHERS: dict[str, dict[str, Any]] = {
    "without factors": {"options": (*(name for name in ALL if name != "fused_harmonics"), "resident")},
    "decoded for each step": {"options": ALL},
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_runs_have_the_order_of_the_seed(case: str, tmp_path: Path) -> None:
    found, _ = both(partial(trained, **OTHERS[case]), tmp_path / "said.txt")
    assert found["planned"] == found["base"] and bool(found["entries"]) is (case == "decoded for each step")
