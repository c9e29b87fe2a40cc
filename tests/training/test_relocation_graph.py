# SPDX-License-Identifier: Apache-2.0
"""Relocations that are recorded: they equal those without a recording, wherever the store keeps its place and its number, with any
arguments."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from parity import DEVICES
from recorder_standin import StandIn
from stepping import everything
from tiny_capture import tiny_capture, tiny_config
from torch import Tensor

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.capture_safety import Findings
from nurec_lite.base.graphs import Recorder
from nurec_lite.base.options import parameters_of
from nurec_lite.training import relocation_graph
from nurec_lite.training.baseline import rearrange
from nurec_lite.training.density import relocate, relocate_masked
from nurec_lite.training.relocation_graph import CapturedRelocation
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    if request.param == "cpu":
        monkeypatch.setattr(relocation_graph, "Recorder", StandIn)
    return torch.device(request.param)


@pytest.fixture
def safe(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets no finding count on a CPU, where everything is the host's and nothing is unsafe."""
    if device.type == "cpu":
        monkeypatch.setattr(Findings, "__torch_dispatch__", lambda s, f, t, a=(), k=None: f(*a, **(k or {})))


def store(device: torch.device) -> TrainState:
    """A tenth of its Gaussians is dead."""
    config = tiny_config(device=device.type)
    density = replace(config.density, jitter=0.3, box=1.5)
    state = make_state(replace(config, density=density), tiny_capture(), device)
    with torch.no_grad():
        state.scene.gaussians.opacity_logits[::10] = state.scene.gaussians.lidar_logits[::10, 2:] = -9
    state.generator.manual_seed(1)
    return state


def stages_for(
    device: torch.device, inner: Any = relocate_masked, wanted: Callable[[], bool] = lambda: True
) -> tuple[Stages, CapturedRelocation]:
    own = CapturedRelocation(rearrange, wanted)
    return base_stages("native", device).replaced(relocate=inner, rearrange=own), own


def moved(stages: Stages, state: TrainState, times: int, failed: tuple[int, ...] = ()) -> list[Tensor]:
    """The means after each of so many relocations; each leaves more dead; some come after a step that failed."""
    means = []
    for k in range(times):
        state.failed = torch.full((), float(k in failed), device=state.device)
        stages.update.rearrange(stages, state, 0)
        means.append(state.scene.gaussians.means.detach().clone())
        with torch.no_grad():
            state.scene.gaussians.opacity_logits[k::7] = state.scene.gaussians.lidar_logits[k::7, 2:] = -9
    return means


@pytest.mark.usefixtures("safe")
def test_they_are_those_without_a_recording(device: torch.device) -> None:
    own, plain, (stages, recorded) = store(device), store(device), stages_for(device)
    found, wanted = moved(stages, own, 8, (5,)), moved(stages.replaced(rearrange=rearrange), plain, 8, (5,))
    assert recorded.launched >= 5
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(found[5], found[4]) and not torch.equal(found[6], found[5])
    mine, theirs = everything(own), everything(plain)
    for name, value in theirs.items():
        assert torch.equal(mine[name], value), name
    assert torch.equal(own.scene.gaussians.node, plain.scene.gaussians.node)
    assert torch.equal(own.generator.get_state(), plain.generator.get_state())


@pytest.mark.usefixtures("safe")
def test_remembered_node_offsets_are_invalidated(device: torch.device) -> None:
    state, (stages, recorded) = store(device), stages_for(device)
    moved(stages, state, 4)
    before, launched = state.scene.gaussians.node._version, recorded.launched
    moved(stages, state, 1)
    assert recorded.launched == launched + 1 and state.scene.gaussians.node._version > before


@pytest.mark.usefixtures("safe")
def test_growth_runs_as_it_is_and_another_store_begins_anew(device: torch.device) -> None:
    one, other, (stages, recorded) = store(device), store(device), stages_for(device)
    moved(stages, one, 4)
    before, n = recorded.launched, len(one.scene.gaussians)
    stages.update.rearrange(stages, one, 5)
    assert len(one.scene.gaussians) == n + 5 and recorded.launched == before
    assert not recorded._store  # which keeps no tensors that are replaced
    moved(stages, one, 4)
    assert recorded.launched > before
    before = recorded.launched
    for state in (other, one):
        moved(stages, state, 1)
        assert recorded.launched == before and recorded._graph is None
    one.config = replace(one.config, density=replace(one.config.density, jitter=0.1))
    moved(stages, one, 1)
    assert recorded.launched == before and recorded._graph is None


@pytest.mark.usefixtures("safe")
def test_what_stages_know_of_the_store_is_part_of_it(device: torch.device) -> None:
    state, (stages, recorded) = store(device), stages_for(device)
    known: list[int | None] = [3]
    own = SimpleNamespace(graph_key=lambda scene: known[0], forbids_inplace_relocation=lambda scene, node: node[0] < -1)
    stages = replace(stages, changes=replace(stages.changes, capturable=(own,)))
    moved(stages, state, 4)
    before = recorded.launched
    for known[0] in (None, 4):
        moved(stages, state, 1)
        assert before == recorded.launched
    moved(stages, state, 3)
    assert recorded.launched > before >= 1


def test_nothing_is_recorded_where_it_is_not_wanted() -> None:
    stages, recorded = stages_for(torch.device("cpu"), wanted=lambda: False)
    moved(stages, store(torch.device("cpu")), 4)
    assert recorded.launched == 0 and not recorded._store


def test_what_waits_stands_aside(device: torch.device, caplog: pytest.LogCaptureFixture) -> None:
    """`relocate` counts the dead: its second time tells. On a CPU all is the host's."""
    stages, recorded = stages_for(device, relocate)
    with caplog.at_level("WARNING"):
        moved(stages, store(device), 4)
    assert recorded.launched == 0 and recorded._off
    assert "relocations run without a graph, since they cannot be recorded: the host" in caplog.text


@pytest.mark.usefixtures("safe")
def test_a_recording_that_fails_stands_aside(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("operation not permitted\nwhen stream is capturing")

    (stages, recorded), state = stages_for(device), store(device)
    monkeypatch.setattr(StandIn if device.type == "cpu" else Recorder, "record", fails)
    with caplog.at_level("WARNING"):
        moved(stages, state, 5)
    assert recorded.launched == 0 and caplog.text.count("operation not permitted") == 1


@pytest.mark.gpu
def test_with_all_that_a_gpu_runs_nothing_forbids_it() -> None:
    """The counts of images that see a Gaussian, boxes, vetoes and the order of morton_order are part of it."""
    device, names = torch.device("cuda"), ("fused_interp", "collect_once", "no_sync", "morton_order")
    stages = build_stages({name: parameters_of(name) for name in names}, base_stages("native", device))
    own = CapturedRelocation(stages.update.rearrange, lambda: True)
    stages, state = stages.replaced(rearrange=own), store(device)
    for stage in stages.changes.capturable:
        stage.graph_key(state.scene)
    torch.cuda.synchronize()
    moved(stages, state, 8)
    assert own.launched >= 4 and not own._off
    assert all(value.isfinite().all() for value in state.scene.parameters().values())


@pytest.mark.gpu
def test_what_a_step_left_outlasts_a_relocation() -> None:
    """It is recorded before that step, and launched behind it, before anybody has read the step's report."""
    device = torch.device("cuda")
    (stages, recorded), state = stages_for(device), store(device)
    moved(stages, state, 4)
    work: Recorder = Recorder(device)
    left = [work.record(partial(torch.arange, n, device=device), ()) for n in (3, 1000, 100_000)]
    result = [recording.launch() for recording in left]
    moved(stages, state, 1)
    assert recorded.launched >= 2
    for values in result:
        assert torch.equal(values, torch.arange(len(values), device=device))
