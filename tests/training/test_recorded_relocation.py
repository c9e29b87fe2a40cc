# SPDX-License-Identifier: Apache-2.0
"""Relocations that are recorded: those without a recording, wherever the store keeps its place and its number, whatever they are given."""

from functools import partial
from typing import Any

import pytest
import torch
from parity import DEVICES
from recorder_standin import StandIn
from tiny_capture import tiny_config, tiny_state
from torch import Tensor

from nurec_lite.base.graphs import Recorder
from nurec_lite.base.recordable import Findings
from nurec_lite.training import recorded_relocation
from nurec_lite.training.checkpoint import scene_to
from nurec_lite.training.density import Relocation, by_node, relocate, relocate_masked
from nurec_lite.training.optim import make_optimizer, overwrite_gaussians
from nurec_lite.training.recorded_relocation import RecordedRelocation


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    if request.param == "cpu":
        monkeypatch.setattr(recorded_relocation, "Recorder", StandIn)
    return torch.device(request.param)


@pytest.fixture
def safe(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU everything is the host's, so nothing is unsafe."""
    if device.type == "cpu":
        monkeypatch.setattr(Findings, "__torch_dispatch__", lambda s, f, t, a=(), k=None: f(*a, **(k or {})))


class Store:
    """A tenth of its Gaussians is dead."""

    def __init__(self, device: torch.device) -> None:
        state = tiny_state()
        with torch.no_grad():
            state.scene.gaussians.opacity_logits[::10] = state.scene.gaussians.lidar_logits[::10, 2:] = -9
        self.scene, self.generator = scene_to(state.scene, device), torch.Generator(device).manual_seed(1)
        self.optimizer = make_optimizer(self.scene, tiny_config().lr)

    def move(self, stage: Any, k: int = 0, n_new: int = 0, jitter: float = 0.3) -> Relocation | None:
        """Not written into the store yet."""
        g, device = self.scene.gaussians, self.generator.device
        weights = torch.rand(len(g), generator=torch.Generator().manual_seed(k)).to(device)
        lost = (torch.arange(len(g)) % (7 + k) == 0).to(device)
        moved: Relocation | None = stage(g, n_new, self.generator, weights, jitter, lost, by_node)
        return moved

    def moved(self, stage: Any, times: int) -> list[Tensor]:
        """The sources of as many relocations, each of which is written into the store."""
        sources = []
        for k in range(times):
            relocation = self.move(stage, k)
            assert relocation is not None
            sources.append(relocation.source.clone())
            overwrite_gaussians(self.scene, self.optimizer, relocation)
        return sources


def recorded(inner: Any = relocate_masked) -> RecordedRelocation:
    return RecordedRelocation(inner, lambda: True)


@pytest.mark.usefixtures("safe")
def test_they_are_those_without_a_recording(device: torch.device) -> None:
    own, plain, stage = Store(device), Store(device), recorded()
    sources = own.moved(stage, 6)
    assert stage.launched >= 4
    for found, expected in zip(sources, plain.moved(relocate_masked, 6), strict=True):
        assert torch.equal(found, expected)
    for name, value in plain.scene.parameters().items():
        assert torch.equal(own.scene.parameters()[name], value), name
    assert torch.equal(own.scene.gaussians.node, plain.scene.gaussians.node)
    assert torch.equal(own.generator.get_state(), plain.generator.get_state())


@pytest.mark.usefixtures("safe")
def test_growth_runs_as_it_is_and_another_store_begins_anew(device: torch.device) -> None:
    one, other, stage = Store(device), Store(device), recorded()
    one.moved(stage, 3)
    before = stage.launched
    grown = one.move(stage, n_new=5)
    assert grown is not None and len(grown.source) == len(one.scene.gaussians) + 5 and stage.launched == before
    assert not stage._store  # which keeps no tensors that are replaced
    one.moved(stage, 3)
    assert stage.launched > before
    before = stage.launched
    for store in (other, one):
        store.move(stage)
        assert stage.launched == before and stage._recording is None
    one.move(stage, jitter=0.1)
    assert stage.launched == before and stage._recording is None


def test_nothing_is_recorded_where_it_is_not_wanted() -> None:
    stage = RecordedRelocation(relocate_masked, lambda: False)
    Store(torch.device("cpu")).moved(stage, 4)
    assert stage.launched == 0 and not stage._store


def test_what_waits_stands_aside(device: torch.device, caplog: pytest.LogCaptureFixture) -> None:
    """`relocate` counts the dead: its second time tells. On a CPU all is the host's."""
    stage = recorded(relocate)
    with caplog.at_level("WARNING"):
        Store(device).moved(stage, 4)
    assert stage.launched == 0 and stage._off
    assert "relocations run without a graph, since they cannot be recorded: the host" in caplog.text


@pytest.mark.usefixtures("safe")
def test_a_recording_that_fails_stands_aside(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("operation not permitted\nwhen stream is capturing")

    stage, store = recorded(), Store(device)
    monkeypatch.setattr(StandIn if device.type == "cpu" else Recorder, "record", fails)
    with caplog.at_level("WARNING"):
        assert len(store.moved(stage, 4)) == 4
    assert stage.launched == 0 and caplog.text.count("operation not permitted") == 1


@pytest.mark.gpu
def test_what_a_step_left_outlasts_a_relocation() -> None:
    """Recorded before that step was, and launched behind it, before anybody has read what it left."""
    device = torch.device("cuda")
    stage, store = recorded(), Store(device)
    store.moved(stage, 4)
    work: Recorder = Recorder(device)
    left = [work.record(partial(torch.arange, n, device=device), ()) for n in (3, 1000, 100_000)]
    told = [recording.launch() for recording in left]
    store.moved(stage, 1)
    assert stage.launched >= 3
    for values in told:
        assert torch.equal(values, torch.arange(len(values), device=device))
