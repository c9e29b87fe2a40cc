# SPDX-License-Identifier: Apache-2.0
"""Room for later options: a trivial stand-in for every option of the design goes together with `+opt=all`, at the place where `all` would
apply it, and the step asks none of them whether it is there."""

import ast
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from tiny_capture import tiny_config, tiny_state

from nurec_lite.backends import base_stages
from nurec_lite.base.options import option_module, parameters_of
from nurec_lite.base.paths import PACKAGE, resource
from nurec_lite.training.shots import Shots
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState
from nurec_lite.training.step import step

STEPS = 5  # with a relocation in them
ORDER = (
    "workers", "batch", "several_gpus", "pinned", "prefetch", "resident", "fused_interp", "collect_once", "no_sync", "morton_order",
    "split_backward", "launch_bounds", "warp_cull", "tile_cull", "balanced_tiles", "short_keys", "fused_adam", "fused_ssim",
    "fused_sky", "fused_colour", "fused_activate", "fused_range", "fused_harmonics", "fused_project", "amp", "compile",
    "side_streams", "cuda_graph",
)  # fmt: skip
Calls = Counter[str]
StandIn = Callable[[Stages, Calls], Stages]


def counting(name: str, calls: Calls, function: Callable) -> Callable:
    def counted(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return function(*args, **kwargs)

    return counted


def around(name: str, *stages: str) -> StandIn:
    """A stand-in that wraps stages and only counts their calls."""
    return lambda record, calls: record.wrap(**{stage: lambda inner: counting(name, calls, inner) for stage in stages})


def batch(record: Stages, calls: Calls) -> Stages:
    """The option itself, which is of class quality, so that `all` never has it."""
    option = import_module("nurec_lite.opt.lab.batch").apply(record, **parameters_of("batch"))
    return around("batch", "schedule")(option, calls)


def several_gpus(record: Stages, calls: Calls) -> Stages:
    """Every process takes its share of the shots; gradients are averaged."""
    processes, own = 1, 0
    summed = record.swap("several_gpus", reduce=counting("several_gpus", calls, lambda state: None))
    return summed.wrap(next_batch=lambda inner: lambda plan, number: inner(plan, processes * number + own))


def resident(record: Stages, calls: Calls) -> Stages:
    """Stages that keep decoded frames."""
    kept: dict[int, Shots] = {}

    def wrapper(inner: Callable) -> Callable:
        def next_batch(plan: Any, number: int) -> Shots:
            if number not in kept:
                kept[number] = inner(plan, number)
            return kept[number]

        return counting("resident", calls, next_batch)

    return record.wrap(next_batch=wrapper)


def pinned(record: Stages, calls: Calls) -> Stages:
    def place(stages: Stages, state: TrainState, shots: Shots) -> Shots:
        return shots.copied(torch.clone)

    return record.swap("pinned", place=counting("pinned", calls, place))


def prefetch(record: Stages, calls: Calls) -> Stages:
    """The next step's shots are on their way while this one learns."""
    ahead: dict[int, Shots] = {}

    def wrapper(inner: Callable) -> Callable:
        def feed(stages: Stages, state: TrainState) -> Shots:
            shots = ahead.pop(state.step, None) or inner(stages, state)
            ahead[state.step + 1] = inner(stages, replace(state, step=state.step + 1))
            return shots

        return counting("prefetch", calls, feed)

    return record.wrap(fetch=wrapper)


def amp(record: Stages, calls: Calls) -> Stages:
    """Likewise."""
    option = import_module("nurec_lite.opt.lab.amp").apply(record, **parameters_of("amp"))
    return around("amp", "optimize")(option, calls)


STAND_INS: dict[str, StandIn] = {
    "batch": batch,
    "several_gpus": several_gpus,
    "resident": resident,
    "pinned": pinned,
    "prefetch": prefetch,
    "warp_cull": lambda record, calls: record.planned("warp_cull", cell_beams=2),
    "balanced_tiles": lambda record, calls: record.planned("balanced_tiles", cell_rays=16),
    "amp": amp,
    "compile": around("compile", "activate", "image_loss"),
    "cuda_graph": around("cuda_graph", "learn"),
}
FEEDING = ("pinned", "prefetch", "resident")  # real ones, as they work on a CPU
IDLE_BESIDE = {"resident": ("pinned", "prefetch")}  # stand-ins that a real option would leave nothing to do
ASIDE = {
    "several_gpus": "fused_harmonics"
}  # the real option that steps back for a stand-in; the same to rounding, not bit for bit
OTHER_NUMBERS = ("amp", "batch", "warp_cull", "balanced_tiles")
SAME_NUMBERS = sorted(set(STAND_INS) - set(OTHER_NUMBERS))  # bit for bit


@cache
def listed(kind: str) -> tuple[str, ...]:
    return tuple(OmegaConf.load(resource("conf/opt/all.yaml"))["all"][kind])


def together(calls: Calls, *names: str, feeding: tuple[str, ...] = (), without: str | None = None) -> Stages:
    """All options of `all` for a GPU that run on a CPU as well, and stand-ins, each at its place. Left out are those that a CPU cannot
    run, and those that stand on them, except for those that feed; and `without`."""
    record, real = base_stages("native", torch.device("cpu")), set[str]()
    for name in ORDER:
        if name in names:
            record = STAND_INS[name](record, calls)
        elif name in feeding:
            record = option_module(name).apply(record, **parameters_of(name))
        elif name != without and name in listed("cuda") and not set(names) & set(IDLE_BESIDE.get(name, ())):
            option = option_module(name)
            if option.unavailable(record) is None and real.issuperset(option.REQUIRES):
                record, real = option.apply(record, **parameters_of(name)), real | {name}
    return record


def trained(
    *names: str, feeding: tuple[str, ...] = (), without: str | None = None
) -> tuple[dict[str, torch.Tensor], Calls]:
    state, calls = tiny_state(tiny_config(steps=STEPS)), Calls()
    stages = together(calls, *names, feeding=feeding, without=without)
    state.plan = stages.feed.frames(state.plan)
    try:
        while state.step < STEPS:
            state.progress = state.step / STEPS
            step(stages, state)
            state.step += 1
        stages.update.synchronize(stages, state)
    finally:
        stages.close()
    return {name: p.detach() for name, p in state.scene.parameters().items()}, calls


@cache
def plain(*names: str, without: str | None = None) -> dict[str, torch.Tensor]:
    """The parameters that several tests compare with theirs."""
    return trained(*names, without=without)[0]


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_order_is_that_of_all(kind: str) -> None:
    assert set(listed(kind)) <= set(ORDER)
    assert tuple(sorted(listed(kind), key=ORDER.index)) == listed(kind)


@pytest.mark.parametrize("name", SAME_NUMBERS)
def test_a_stand_in_goes_with_all_and_changes_nothing(name: str) -> None:
    expected, (found, calls) = plain(without=ASIDE.get(name)), trained(name)
    assert all(torch.equal(expected[k], found[k]) for k in expected)
    assert calls[name] >= STEPS


@pytest.mark.parametrize("name", OTHER_NUMBERS)
def test_what_changes_numbers_goes_with_all(name: str) -> None:
    found, _ = trained(name)
    assert all(p.isfinite().all() for p in found.values())


@pytest.mark.parametrize("feeding", [*((name,) for name in FEEDING), FEEDING])
@pytest.mark.parametrize("names", [(), ("several_gpus",), ("amp", "cuda_graph", "several_gpus")])
def test_what_feeds_goes_with_all_and_changes_nothing(feeding: tuple[str, ...], names: tuple[str, ...]) -> None:
    expected, (found, _) = plain(*names), trained(*names, feeding=feeding)
    assert all(torch.equal(expected[k], found[k]) for k in expected)


def test_all_stand_ins_go_together() -> None:
    found, calls = trained(*STAND_INS)
    assert all(p.isfinite().all() for p in found.values())
    assert set(calls) == set(STAND_INS) - {"warp_cull", "balanced_tiles"}  # those are fields of the plan


@pytest.mark.parametrize("file", ["step", "baseline", "loop", "density", "losses", "optim"])
def test_the_step_asks_for_no_option(file: str) -> None:
    """It asks neither for a stage's owner nor for the names in the configuration."""
    tree = ast.parse(Path(PACKAGE / f"training/{file}.py").read_text())
    asked = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not asked & {"claims", "wrapped", "opt"}
