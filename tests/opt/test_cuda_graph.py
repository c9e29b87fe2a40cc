# SPDX-License-Identifier: Apache-2.0
"""The option `cuda_graph`: its launch equals the step without it, through relocations, failed steps and sweeps of any size. On a CPU
a stand-in for the recorder does the work again at every launch, in the fixed places; on a GPU it is recorded."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from graph_steps import BELOW, CPU, gpu_state, own, stages_of
from recorder_standin import Again, StandIn, install
from stepping import assert_close, cramped, everything, no_sync_of, steps
from tiny_capture import tiny_capture, tiny_config, tiny_state

from benchmarks.opt import bench_cuda_graph
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.base.ranges import switch
from nurec_lite.base.timing import Timing
from nurec_lite.capture.pack import write_pack
from nurec_lite.config import DensityConfig
from nurec_lite.opt.all import cuda_graph
from nurec_lite.opt.all.cuda_graph import CapturedStep, CudaGraph, profiled
from nurec_lite.training.loop import one_step
from nurec_lite.training.state import TrainState


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


# ---- the option


def test_it_stands_around_learn_and_names_what_it_needs() -> None:
    with pytest.raises(OptionError, match="cannot run here: it records work of a GPU"):
        stages_of("cuda_graph")
    with pytest.raises(OptionError, match="requires 'no_sync'"):
        build_stages({"cuda_graph": {}}, base_stages("native", CPU))


# ---- the same step, from fixed places


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("grid", [None, [3, 2, 2]], ids=str)
def test_steps_are_those_without_it(grid: list[int] | None) -> None:
    """Through relocations, with growth, at steps 3, 7 and 11; rays that fill up change the order of sums alone."""
    model = replace(tiny_config().model, calibrate=grid is not None, knot_seconds=0.1, bilateral_grid=grid)
    plain, graphed = (tiny_state(tiny_config(model=model)) for _ in range(2))
    stages = stages_of("cuda_graph")
    steps(stages_of(), plain, 5)
    steps(stages, graphed, 5)
    assert_close(graphed, plain, 1e-4, 1e-6)
    steps(stages, graphed, 27)
    assert own(stages).launched >= 6 and own(stages).recorded >= 3
    assert len(graphed.scene.gaussians) > len(tiny_state().scene.gaussians)
    assert all(value.isfinite().all() for value in everything(graphed).values())


@pytest.mark.usefixtures("stand_in")
def test_without_lidar() -> None:
    plain, graphed = (
        tiny_state(replace(tiny_config(), train=replace(tiny_config().train, lidar_rays=0))) for _ in "ab"
    )
    stages = stages_of("cuda_graph")
    steps(stages_of(), plain, 12)
    steps(stages, graphed, 12)
    assert own(stages).launched >= 2
    assert_close(graphed, plain)


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("at", [{4}, {6, 7}, {5, 9}], ids=str)
def test_too_little_capacity_changes_nothing(at: set[int]) -> None:
    """Lists that overflow within a graph make it a step in vain; it and those after it are done again."""
    config = tiny_config(density=DensityConfig(every=1000, start=0.0, stop=1.0))
    plain, overflown = tiny_state(config), tiny_state(config)
    steps(stages_of("cuda_graph"), plain, 12)
    stages = cramped(stages_of("cuda_graph"), at)
    steps(stages, overflown, 12)
    assert no_sync_of(stages).redone >= len(at)
    assert_close(overflown, plain, 1e-4, 1e-6)


@pytest.mark.usefixtures("stand_in")
def test_a_step_is_recorded_once_for_all_that_have_its_sizes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    state = tiny_state(tiny_config(density=DensityConfig(every=1000, start=0.0, stop=1.0)))
    stages = stages_of("cuda_graph")
    monkeypatch.setattr(no_sync_of(stages).capacities, "of", lambda view: 4096)
    steps(stages, state, 20)
    keys = set(own(stages)._steps)
    assert own(stages).recorded == len(keys) <= 2 * len(state.plan.capture.cameras)  # in two sizes of sweeps at most
    assert own(stages).launched >= 20 - 2 * len(keys)
    with caplog.at_level("INFO"):
        stages.close()
    assert f"cuda_graph: {own(stages).launched} of 20 steps were launched, of {len(keys)} recordings" in caplog.text


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(("growth", "most"), [(1.0, 1), (1.05, 3)])
def test_sensors_run_plainly_once(growth: float, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later steps of them are recorded at once. The first step makes moments, and the relocations at steps 8 and 16 may make a store, which
    needs one plain step more."""
    state = tiny_state(tiny_config(density=DensityConfig(every=8, start=0.0, stop=1.0, growth=growth)))
    stages, calls = stages_of("cuda_graph"), calls_of(monkeypatch)
    steps(stages, state, 24)
    known, again = set[Any](), 0
    for name, parts in calls:
        assert name == "_plainly" or parts <= known
        again += name == "_plainly" and parts <= known
        known |= parts
    assert again <= most and len(calls) > len(known)


def calls_of(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, set[Any]]]:
    """Filled with the plain steps and the recordings that follow, each with its parts."""
    calls = list[tuple[str, set[Any]]]()
    plainly, recorded = CudaGraph._plainly, CudaGraph._recorded

    def noted_plainly(self: CudaGraph, key: Any, *rest: Any) -> Any:
        calls.append(("_plainly", set(cuda_graph._parts(key))))
        return plainly(self, key, *rest)

    def noted_recorded(self: CudaGraph, key: Any, *rest: Any) -> bool:
        found = recorded(self, key, *rest)
        calls.extend([("_recorded", set(cuda_graph._parts(key)))] if found else [])
        return found

    monkeypatch.setattr(CudaGraph, "_plainly", noted_plainly)
    monkeypatch.setattr(CudaGraph, "_recorded", noted_recorded)
    return calls


@pytest.mark.usefixtures("stand_in")
def test_the_recording_that_waits_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is kept of those of two cameras."""
    config = tiny_config(density=DensityConfig(every=1000, start=0.0, stop=1.0))
    plain, graphed, stages = tiny_state(config), tiny_state(config), stages_of("cuda_graph")
    monkeypatch.setattr(cuda_graph, "MAX_GRAPHS", 1)
    steps(stages_of(), plain, 20)
    steps(stages, graphed, 20)
    assert len(own(stages)._steps) == 1 and own(stages).recorded > 4
    assert_close(graphed, plain, 1e-4, 1e-6)


@pytest.mark.usefixtures("stand_in")
def test_recordings_of_tensors_that_were_replaced_are_dropped() -> None:
    state, stages = tiny_state(), stages_of("cuda_graph")
    steps(stages, state, 7)
    before = dict(own(stages)._steps)
    steps(stages, state, 4)
    assert before and not set(map(id, before.values())) & set(map(id, own(stages)._steps.values()))


@pytest.mark.usefixtures("stand_in")
def test_a_recording_goes_on_through_relocations_that_add_no_gaussians(monkeypatch: pytest.MonkeyPatch) -> None:
    """They write into the store; the steps are those without the option."""
    config = tiny_config(density=DensityConfig(every=4, start=0.0, stop=1.0, cap=1))
    plain, graphed = tiny_state(config), tiny_state(config)
    steps(stages_of(), plain, 5)
    stages = stages_of("cuda_graph")
    steps(stages, graphed, 5)
    assert_close(graphed, plain, 1e-4, 1e-6)
    monkeypatch.setattr(no_sync_of(stages).capacities, "of", lambda view: 4096)
    steps(stages, graphed, 20)
    records, before = dict(own(stages)._steps), graphed.scene.gaussians.means.detach().clone()
    steps(stages, graphed, 12)
    assert records.keys() == own(stages)._steps.keys()
    assert all(own(stages)._steps[key] is record for key, record in records.items())
    assert not torch.equal(before, graphed.scene.gaussians.means)
    assert all(value.isfinite().all() for value in everything(graphed).values())


# ---- steps that cannot be captured


def test_what_cannot_be_recorded_is_listed_and_steps_go_on(
    stand_in: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(cuda_graph, "Recorder", StandIn)
    monkeypatch.setattr(cuda_graph, "unavailable", lambda stages: None)
    state, stages = tiny_state(), stages_of("cuda_graph")
    waiting = stages.replaced(terms=lambda *args: {name: t * float(t > 0) for name, t in inner(*args).items()})
    inner = stages.loss.terms
    with caplog.at_level("WARNING"):
        steps(waiting, state, 6)
    assert own(stages).launched == 0
    assert "cuda_graph is off, since a step cannot be recorded: the host reads a number and waits for it" in caplog.text
    assert "_local_scalar_dense" in caplog.text


def test_what_a_first_step_makes_once_is_no_reason_against_recording(caplog: pytest.LogCaptureFixture) -> None:
    graph = CudaGraph()
    with caplog.at_level("WARNING"):
        assert not graph._judged(("an image",), ["a copy from the host"])
        assert not graph._judged(("an image", "a sweep"), ["a copy from the host"])
        assert graph._judged(("an image",), [])
    assert "cuda_graph is off" not in caplog.text
    with caplog.at_level("WARNING"):
        assert not graph._judged(("an image", "a sweep"), ["the host waits"])
    assert "cuda_graph is off, since a step cannot be recorded: the host waits" in caplog.text


@pytest.mark.usefixtures("stand_in")
def test_a_recording_that_fails_leaves_the_step(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: StandIn, work: Any, generators: Any) -> Again:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(StandIn, "record", fail)
    plain, state, stages = tiny_state(), tiny_state(), stages_of("cuda_graph")
    with caplog.at_level("WARNING"):
        steps(stages, state, 20)
    steps(stages_of(), plain, 20)
    assert_close(state, plain)
    assert caplog.text.count("could not be recorded: operation not permitted when stream is capturing") == 1


@pytest.mark.usefixtures("stand_in")
def test_a_recording_without_a_plain_step_of_its_sizes_may_fail(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The step runs plainly then, and the next one of its sizes is recorded."""
    record, plainly_before, refused = CudaGraph._record, list[bool](), list[bool]()

    def noted(self: CudaGraph, step: CapturedStep, *rest: Any) -> bool:
        plainly_before.append(step.ran)
        return record(self, step, *rest)

    def fail(self: StandIn, work: Any, generators: Any) -> Again:
        if not plainly_before[-1]:
            refused.append(True)
            raise RuntimeError("operation not permitted when stream is capturing")
        return Again(work)

    monkeypatch.setattr(CudaGraph, "_record", noted)
    monkeypatch.setattr(StandIn, "record", fail)
    config = tiny_config(density=DensityConfig(every=1000, start=0.0, stop=1.0))
    plain, state, stages = tiny_state(config), tiny_state(config), stages_of("cuda_graph")
    monkeypatch.setattr(no_sync_of(stages).capacities, "of", lambda view: 4096 if state.step < 10 else 8192)
    with caplog.at_level("WARNING"):
        steps(stages, state, 20)
    steps(stages_of(), plain, 20)
    assert_close(state, plain, 1e-4, 1e-6)
    assert refused and own(stages).launched >= 4 and "cuda_graph is off" not in caplog.text


@pytest.mark.usefixtures("stand_in")
def test_ranges_are_timed_in_steps_between_those_of_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 19 runs without it."""
    config = tiny_config()
    config = replace(config, train=replace(config.train, timing=True), density=replace(config.density, every=1000))
    state, stages, timing = tiny_state(config), stages_of("cuda_graph"), Timing(CPU, warm_up=0)
    monkeypatch.setattr(no_sync_of(stages).capacities, "of", lambda view: 4096)
    with switch(timing=timing):
        for _ in range(45):
            one_step(stages, state, time.monotonic())
    launched, between = ({row.range: row for row in timing.latencies(kind)} for kind in ("graph", "plain"))
    assert launched["step/graph"].steps == launched["step"].steps == own(stages).launched - own(stages).recorded > 20
    assert "step/render_lidar" not in launched and between["step/render_lidar/blend"].steps >= 2
    assert launched["step"].steps + between["step"].steps < 45  # those that record are neither


@pytest.mark.parametrize("lidar_every", range(2, 13))
def test_steps_with_sweeps_are_among_those_that_are_timed(lidar_every: int) -> None:
    """One of twenty left out all sweeps of a run with one in four steps."""
    found = [step for step in range(6000) if profiled(step)]
    assert {step % lidar_every for step in found} == set(range(lidar_every))
    assert len(found) < 80  # of 6000: they take four times as long


# ---- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("rays", "calibrate", "grid"),
    [(128, False, None), (128, True, None), (128, True, [3, 2, 2]), (0, False, None), (10**6, False, None)],
)
def test_replays_are_the_steps_without_it(rays: int, calibrate: bool, grid: list[int] | None) -> None:
    """Sums of gradients by atomics come in any order, and a step of Adam makes of a gradient near zero a difference of up to its rate: as
    far as two runs without it are apart, beside other work on the GPU more than alone, the third may be, too."""
    device, names = torch.device("cuda"), ("resident", "warp_cull", "tile_cull", "balanced_tiles")
    plain, again, graphed = (gpu_state(rays, 1000, calibrate, grid) for _ in range(3))
    stages, without = stages_of(*names, "cuda_graph", device=device), stages_of(*names, device=device)
    try:
        steps(without, plain, 16)
        steps(stages, graphed, 16)
        assert own(stages).launched >= 4
    finally:
        stages.close()
        without.close()
    without = stages_of(*names, device=device)
    try:
        steps(without, again, 16)
    finally:
        without.close()
    for name in plain.scene.parameters():
        assert far_apart(graphed, plain, name) < 0.02 + 2 * far_apart(again, plain, name), name


def far_apart(a: TrainState, b: TrainState, name: str) -> float:
    """Share of the numbers."""
    one, other = (state.scene.parameters()[name] for state in (a, b))
    return float(((one - other).abs() > 1e-3 * other.abs() + 1e-4).float().mean())


@pytest.mark.gpu
def test_replays_go_on_where_images_become_whole() -> None:
    """After eight of sixteen steps; nothing that is made once for a size keeps the step from being recorded."""
    device, names = torch.device("cuda"), ("resident", "warp_cull", "tile_cull", "balanced_tiles")
    plain, graphed = (gpu_state(every=1000) for _ in range(2))
    for state in (plain, graphed):
        state.config.train.coarse, state.plan = 0.4, replace(state.plan, coarse=True)
    stages, without = stages_of(*names, "cuda_graph", device=device), stages_of(*names, device=device)
    try:
        steps(without, plain, 16)
        steps(stages, graphed, 16)
        sizes = {shape for (images, _), *_ in own(stages)._steps for _, shape in images}  # type: ignore[misc, attr-defined]
        assert sizes == {(12, 20, 3), (24, 40, 3)} and own(stages).launched >= 2 and not own(stages)._off
        for name, value in plain.scene.parameters().items():
            far = (graphed.scene.parameters()[name] - value).abs() > 1e-3 * value.abs() + 1e-4
            assert far.float().mean() < 0.02, name
    finally:
        stages.close()
        without.close()


@pytest.mark.gpu
def test_replays_go_on_through_relocations() -> None:
    state, stages = gpu_state(), stages_of("resident", "warp_cull", "cuda_graph", device=torch.device("cuda"))
    try:
        steps(stages, state, 40)
    finally:
        stages.close()
    assert own(stages).launched >= 1 and len(state.scene.gaussians) > len(gpu_state().scene.gaussians)
    state.history.read()
    assert state.history.rows and state.history.trouble() is None


@pytest.mark.gpu
def test_random_numbers_go_on_from_launch_to_launch() -> None:
    device = torch.device("cuda")
    plain, graphed = gpu_state(every=1000), gpu_state(every=1000)
    stages, without = stages_of("cuda_graph", device=device), stages_of(device=device)
    steps(without, plain, 12)
    steps(stages, graphed, 12)
    assert own(stages).launched >= 1
    assert torch.equal(plain.generator.get_state(), graphed.generator.get_state())


@pytest.mark.gpu
def test_steps_without_a_sweep_are_recorded_in_a_run_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their first one comes when all else is known, and makes its own tensors once."""
    stages, state = stages_of("cuda_graph", device=torch.device("cuda")), gpu_state(every=1000, calibrate=True)
    monkeypatch.setattr(no_sync_of(stages).capacities, "of", lambda view: 8192)
    state.plan = replace(state.plan, sweeps_every=4)
    steps(stages, state, 40)
    assert not own(stages)._off and own(stages).launched >= 16


@pytest.mark.gpu
def test_a_wait_in_a_step_is_listed(caplog: pytest.LogCaptureFixture) -> None:
    stages, state = stages_of("cuda_graph", device=torch.device("cuda")), gpu_state()
    inner = stages.loss.terms
    waiting = stages.replaced(terms=lambda *args: {name: t * float(t > 0) for name, t in inner(*args).items()})
    with caplog.at_level("WARNING"):
        steps(waiting, state, 8)
    assert own(stages).launched == 0 and "the host reads a number" in caplog.text


# ---- the benchmark


def test_the_benchmark_compares_losses_first(stand_in: None, tmp_path: Path) -> None:
    names = BELOW[:-1]
    write_pack(tiny_capture(), tmp_path / "tiny.pack")
    small = "model.points=300 model.actor_points=40 model.raised_points=50 model.far_points=20 model.sky_height=8 density.cap=560"
    kept = "density.every=1000 train.steps=40 device=cpu"  # no relocation, whose draws tell apart results that differ by rounding alone
    given = ["data=pack", f"data.root={tmp_path / 'tiny.pack'}", *small.split(), *kept.split()]
    out = tmp_path / "out.json"
    asked = [*given, "--rounds", "2", "--steps", "4", "--warmup", "12", "--out", str(out)]
    bench_cuda_graph.main(asked, (names, (*names, "cuda_graph")))
    found = json.loads(out.read_text())
    one, other = found["sets"].values()
    assert one["launched"] == 0 and other["launched"] > 0 and found["largest_difference"] < 0.02


def test_the_benchmark_s_sets_are_those_of_all() -> None:
    assert "no_sync" in bench_cuda_graph.below() and "cuda_graph" not in bench_cuda_graph.below()
