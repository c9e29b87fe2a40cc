# SPDX-License-Identifier: Apache-2.0
"""Ranges of the training step: their paths and nesting, their cost when off, and that they change nothing."""

import threading
import time
import timeit
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny_capture import tiny_config, tiny_state
from torch.profiler import ProfilerActivity, profile

from nurec_lite.backends import base_stages
from nurec_lite.base.nvtx import PACKAGE, SETTING
from nurec_lite.base.ranges import BACKWARD, in_span, span, switch
from nurec_lite.config import TrainConfig
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.loop import one_step
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState

CPU = torch.device("cpu")
COLLECT = ["step/collect", "step/collect/interpolate"]
RENDER = ["", "/project", "/tile", "/gather", "/rays"]
CAMERA = [f"step/render_camera{part}" for part in [*RENDER, "/colour", "/blend", "/sky"]]
LIDAR = [f"step/render_lidar{part}" for part in [*RENDER, "/blend"]]
PATHS = ["step", "step/next_batch", "step/place", *COLLECT, *COLLECT, *CAMERA, *LIDAR, "step/loss", "step/backward"]
PATHS += [
    "step/backward/render",
    "step/backward/sh_colour",
    "step/optimize",
    "step/noise",
    "step/density",
    "step/report",
]
CALLS = Counter(PATHS) + Counter(["step/backward/render"])  # as of collecting: of the camera and of the lidar


class Recorded:
    """Begins and ends in their order, and the open ranges that each thread had."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def begin(self, path: str) -> int:
        self.events.append(("begin", path))
        return len(self.events)

    def end(self, path: str, begun: int) -> None:
        assert self.events[begun - 1] == ("begin", path)
        self.events.append(("end", path))

    def paths(self) -> list[str]:
        return [path for kind, path in self.events if kind == "begin"]


@pytest.fixture(scope="module")
def native() -> Stages:
    return base_stages("native", CPU)


def started(n: int = 1, lidar_rays: int = 128) -> TrainState:
    """Made before anything is recorded: making a scene has ranges of its own."""
    return tiny_state(tiny_config(train=TrainConfig(steps=n, lidar_rays=lidar_rays)))


def steps(stages: Stages, state: TrainState) -> dict[str, torch.Tensor]:
    for _ in range(state.config.train.steps):
        one_step(stages, state, time.monotonic())
    return state.scene.parameters()


def recorded(stages: Stages, **changes: int) -> list[str]:
    recorder, state = Recorded(), started(**changes)
    with switch(timing=recorder):
        steps(stages, state)
    return recorder.paths()


# Paths


def test_ranges_nest_by_whole_paths_and_the_block_around_them_is_restored() -> None:
    recorder = Recorded()
    with switch(timing=recorder), span("a"):
        with span("b"):
            in_span("c", lambda: None)()
        with span("c"):
            pass
    expected = ["begin a", "begin a/b", "begin a/b/c", "end a/b/c", "end a/b", "begin a/c", "end a/c", "end a"]
    assert [" ".join(event) for event in recorder.events] == expected


def test_a_range_ends_when_an_error_leaves_it_and_the_next_one_stands_where_it_should() -> None:
    recorder = Recorded()
    with switch(timing=recorder), span("a"):
        with pytest.raises(ZeroDivisionError), span("b"):
            raise ZeroDivisionError
        with span("c"):
            pass
    assert recorder.events[1:5] == [("begin", "a/b"), ("end", "a/b"), ("begin", "a/c"), ("end", "a/c")]


def test_another_thread_knows_no_open_range_so_it_names_where_it_stands() -> None:
    def backward() -> None:
        with span("render", within=BACKWARD), span("inner"):
            pass
        with span("alone"):
            pass

    recorder = Recorded()
    with switch(timing=recorder), span("step"), span("backward"):
        thread = threading.Thread(target=backward)
        thread.start()
        thread.join()
        backward()
    here = ["step/backward/render", "step/backward/render/inner"]
    assert recorder.paths() == ["step", "step/backward", *here, "alone", *here, "step/backward/alone"]


def test_a_range_that_is_open_when_recording_begins_or_ends_disturbs_nothing() -> None:
    recorder = Recorded()
    with span("before"), switch(timing=recorder):
        inner = span("inner")
        inner.__enter__()
    inner.__exit__(None, None, None)
    with span("after"):
        pass
    assert recorder.events == [("begin", "inner"), ("end", "inner")]


# The step


def test_a_step_has_the_ranges_of_every_stage_in_their_order(native: Stages) -> None:
    found = recorded(native)
    assert Counter(found) == CALLS
    assert [p for p in found if not p.startswith(BACKWARD)] == [p for p in PATHS if not p.startswith(BACKWARD)]


def test_a_step_without_lidar_has_no_ranges_of_one(native: Stages) -> None:
    assert set(recorded(native, lidar_rays=0)) == set(PATHS) - set(LIDAR)


def test_the_reference_has_the_same_ranges_but_for_the_operators_in_backward() -> None:
    assert set(recorded(reference_stages())) == set(PATHS) - {"step/backward/render", "step/backward/sh_colour"}


def test_a_stage_that_an_option_swaps_or_wraps_keeps_its_range(native: Stages) -> None:
    def around(inner: Callable) -> Callable:
        return lambda *args: inner(*args)

    changed = native.swap("mine", interpolate=around(native.render.interpolate)).wrap(tile=around, render_lidar=around)
    assert Counter(recorded(changed)) == CALLS


def test_torch_profiler_shows_the_ranges_inside_one_another(native: Stages) -> None:
    state = started()
    with profile(activities=[ProfilerActivity.CPU]) as seen, switch(torch=True):
        steps(native, state)
    events: dict[str, Any] = {e.name: e for e in seen.events() if e.name in PATHS}
    assert set(events) == set(PATHS)
    for name, event in events.items():
        outer = name.rpartition("/")[0]
        if outer:
            assert events[outer].time_range.start <= event.time_range.start, name
            assert event.time_range.end <= events[outer].time_range.end, name


def test_parameters_are_bitwise_the_same_with_ranges_and_without(native: Stages) -> None:
    plain, state = steps(native, started(n=4)), started(n=4)
    with switch(nvtx=True, torch=True, timing=Recorded()):
        ranged = steps(native, state)
    assert all(torch.equal(plain[name], ranged[name]) for name in plain)


# Cost


def test_a_range_costs_less_than_a_microsecond_while_nothing_is_recorded() -> None:
    def one() -> None:
        with span("name"):
            pass

    assert min(timeit.repeat(one, number=10_000, repeat=5)) / 10_000 < 1e-6
    assert in_span("name", one) is one


def test_nor_with_nvtx_while_no_tool_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the package tells that nobody listens. torch's binding does not tell it, where torch has one."""
    pytest.importorskip("nvtx")
    monkeypatch.setenv(SETTING, PACKAGE)
    with switch(nvtx=True):
        assert in_span("name", len) is len


def test_ranges_of_a_recorder_begin_where_it_is_switched_on() -> None:
    """These are the steps of a run; another recorder has its phases."""
    phases, steps = Recorded(), Recorded()
    with switch(timing=phases), span("training"):
        with switch(timing=steps), span("step"), span("render"):
            pass
        with span("checkpoint"):
            pass
    assert steps.paths() == ["step", "step/render"] and phases.paths() == ["training", "training/checkpoint"]
