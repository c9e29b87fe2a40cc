# SPDX-License-Identifier: Apache-2.0
"""Branches of a step read tensors that they are given, that were there before and that they made themselves, and nobody else reads their
tensors before they are joined: with any stages, and also where a tensor that is kept for ever is made in this very step."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from branch_watch import Watch
from emulation import EMULATED
from ranked import Started
from tiny_capture import tiny_capture, tiny_config, tiny_shots, tiny_state

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.base.ranks import begin
from nurec_lite.training.shots import Shots
from nurec_lite.training.spread import exchanging, spread
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState

CPU = torch.device("cpu")
LEAST = ("fused_interp", "collect_once", "no_sync")
MOST = (*LEAST, *(f"fused_{name}" for name in ("adam", "ssim", "sky", "colour", "activate", "range", "harmonics")))
WARP_TILES = ("warp_cull", "tile_cull", "balanced_tiles")
SETS = [("reference", ()), ("native", ()), ("native", LEAST), ("native", MOST)]
GRIDS = pytest.mark.parametrize("grid", [None, [3, 2, 2]], ids=["as given", "corrected"])
PACKAGES = (
    "geometry",
    "scene",
    "splat",
    "training.losses",
    "native.stages",
    "native.warps",
)  # that keep tensors which are made once


def stages_of(ops: str, names: tuple[str, ...], device: torch.device = CPU) -> Stages:
    return build_stages({name: parameters_of(name) for name in names}, base_stages(ops, device))


def forget() -> None:
    """Results that these packages have kept."""
    prefixes = tuple(f"nurec_lite.{name}" for name in PACKAGES)
    for module in [vars(module) for name, module in sys.modules.items() if name.startswith(prefixes)]:
        classes = [vars(value) for value in module.values() if isinstance(value, type)]
        for value in [value for names in (module, *classes) for value in names.values()]:
            if hasattr(value, "cache_clear"):
                value.cache_clear()


def watched(stages: Stages, state: TrainState, shots: Shots) -> Watch:
    """A step before anything has been made for it."""
    watch = Watch()
    stages = watch.around(stages)
    forget()
    with watch:
        stages.update.try_step(stages, state, shots)
    return watch


def state_of(grid: list[int] | None) -> TrainState:
    model = replace(tiny_config().model, calibrate=grid is not None, knot_seconds=0.1, bilateral_grid=grid)
    return tiny_state(tiny_config(model=model))


@GRIDS
@pytest.mark.parametrize(("ops", "names"), SETS, ids=["plain", "native", "least", "most"])
@pytest.mark.parametrize("n", [(1, 1), (1, 0), (2, 2)], ids=str)
def test_no_branch_reads_what_it_was_not_given(
    ops: str, names: tuple[str, ...], n: tuple[int, int], grid: list[int] | None
) -> None:
    stages, state = stages_of(ops, names), state_of(grid)
    kinds = [(kind, count) for kind, count in zip(("images", "sweeps"), n, strict=True) if count]
    views = ["images"] * n[0] + ["sweeps"] * n[1]
    early = ["harmonics"] if "fused_harmonics" in names and n[0] == 1 else []
    exposed = {"images": ["exposures"], "sweeps": []}
    for result in (
        False,
        "no_sync" in names,
    ):  # lists of a first step are as long as they need, and report no capacity
        watch = watched(stages, state, tiny_shots(tuple(range(n[0])), tuple(range(n[1]))))
        assert not watch.found
        rendered = [branch for kind, count in kinds for branch in (kind, *["lists"] * (count * result), *exposed[kind])]
        # all of a kind rendered, all images exposed, each compared
        assert watch.begun == [*rendered, "images", *views, "lists", "figures", *early]


@GRIDS
@pytest.mark.skipif(not EMULATED, reason="runs over the CUDA drivers on the CPU: set NUREC_LITE_EMULATE_CUDA=1")
@pytest.mark.parametrize("frames", [(0,), (0, 1)], ids=["alone", "in one launch"])
def test_nor_with_warp_tiles(frames: tuple[int, ...], grid: list[int] | None) -> None:
    base, names = replace(base_stages("native", CPU), device="cuda"), (*MOST, *WARP_TILES, "batch")
    stages, state = build_stages({name: parameters_of(name) for name in names}, base), state_of(grid)
    for _ in range(2):
        assert not watched(stages, state, tiny_shots(frames, frames)).found


@pytest.mark.gpu
@GRIDS
def test_nor_with_the_options_of_a_gpu(grid: list[int] | None) -> None:
    device, config = torch.device("cuda"), tiny_config(device="cuda")
    config = replace(config, model=replace(config.model, calibrate=grid is not None, bilateral_grid=grid))
    stages, state = stages_of("native", (*MOST, *WARP_TILES), device), make_state(config, tiny_capture(), device)
    result = 0  # lists: those of a camera that comes for the first time are as long as they need
    for state.step in range(4):
        watch = watched(stages, state, stages.feed.fetch(stages, state))
        own = [branch for branch in watch.begun if branch != "lists"]
        assert not watch.found and own == [
            "images", "exposures", "sweeps", "images", "images", "sweeps", "figures", "harmonics",
        ]  # fmt: skip
        result += watch.begun.count("lists") - 1
    assert result >= 3


def seen_by_rank(rank: int) -> list[str]:
    """Races of two steps of a rank; lists have a capacity in the second one."""
    ranks, names = begin("cpu"), (*MOST, "batch")
    stages = spread(
        build_stages({name: parameters_of(name) for name in names}, exchanging(base_stages("native", CPU), ranks)),
        ranks,
    )
    state, found = tiny_state(), dict[str, None]()
    for _ in range(2):
        watch = watched(stages, state, tiny_shots((rank,), (rank,)))
        assert watch.begun.count("harmonics") == 1, "messages are made during the backward pass"
        found |= watch.found
    ranks.leave()
    return list(found)


def test_nor_on_several_ranks(tmp_path: Path) -> None:
    assert Started(2, seen_by_rank, tmp_path / "said.txt").results() == [[], []]


# ---- that it is seen


def of_another(inner: Callable) -> Callable:
    """The loss of a sweep that looks at a foreign tensor: at numbers that the step has made."""
    return lambda returns, sweep, *more: inner(returns, sweep, *more) | {"drop": LEFT[-1] * returns.median.mean()}


LEFT: list[Any] = []


def after(then: Callable) -> Callable:
    """A stage that hands its result over as well."""

    def wrapped(inner: Callable) -> Callable:
        def stage(*given: Any) -> Any:
            made = inner(*given)
            then(made)
            return made

        return stage

    return wrapped


leaving = after(LEFT.append)


def test_what_was_not_given_is_seen() -> None:
    stages = base_stages("native", CPU).wrap(image_loss=leaving, lidar_loss=of_another)
    watch = watched(stages, tiny_state(), tiny_shots((0,), (0,)))
    assert watch.found.keys() == {"aten.mul.Tensor: sweeps reads what images made"}


def test_a_race_within_the_backward_pass_is_seen() -> None:
    """A work that begins there looks at an image."""
    watch = Watch()

    def begun(gradient: torch.Tensor) -> None:
        watch.run("harmonics", lambda: LEFT[-1].distance + 1)

    hooked = after(lambda image: image.register_hook(begun))
    stages = watch.around(base_stages("native", CPU).wrap(render_camera=leaving, expose=hooked))
    with watch:
        stages.update.learn(stages, tiny_state(), tiny_shots((0,), (0,)))
    assert watch.found.keys() == {"aten.add.Tensor: harmonics reads what images made"}


def test_what_is_not_joined_is_seen() -> None:
    watch = Watch()
    watch.join = lambda *branches: None  # type: ignore[method-assign]
    stages = watch.around(base_stages("native", CPU))
    with watch:
        stages.update.learn(stages, tiny_state(), tiny_shots((0, 1), (0, 1)))  # whose terms are means
    assert {
        f"aten.stack.default: step reads what {branch} made" for branch in ("images", "sweeps")
    } <= watch.found.keys()
