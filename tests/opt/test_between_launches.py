# SPDX-License-Identifier: Apache-2.0
"""The option `cuda_graph`: a launch's results are kept from the next launch, and the inputs of the next lie at their places."""

import pytest
import torch
from graph_steps import gpu_state, own, stages_of
from recorder_standin import install
from stepping import no_sync_of
from tiny_capture import tiny_config, tiny_state
from torch import Tensor

from nurec_lite.base.transfer import HostFuture
from nurec_lite.config import DensityConfig
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import StepResult, TrainState
from nurec_lite.training.step import step


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


def results_of(stages: Stages, state: TrainState, n: int) -> list[tuple[StepResult, Tensor, list[float]]]:
    """Results of each of n steps, and copies of its figures and its report that were taken before the next."""
    found = []
    for _ in range(n):
        result = step(stages, state)
        found.append((result, result.figures.values.clone(), numbers_of(result.report)))
        state.step += 1
    return found


def numbers_of(report: Tensor | HostFuture | None) -> list[float]:
    assert report is not None
    return report.result() if isinstance(report, HostFuture) else report.tolist()


@pytest.mark.usefixtures("stand_in")
def test_what_a_launch_tells_is_not_written_over_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    state = tiny_state(tiny_config(density=DensityConfig(every=1000, start=0.0, stop=1.0)))
    stages = stages_of("cuda_graph")
    monkeypatch.setattr(no_sync_of(stages).capacities, "of", lambda view: 4096)
    found = results_of(stages, state, 20)
    assert own(stages).launched >= 4 and len({tuple(figures.tolist()) for _, figures, _ in found}) == 20
    for result, figures, report in found:
        assert torch.equal(result.figures.values, figures) and numbers_of(result.report) == report


@pytest.mark.usefixtures("stand_in")
def test_rates_of_each_step_lie_where_the_recorded_one_reads_them() -> None:
    state = tiny_state(tiny_config(density=DensityConfig(every=1000, start=0.0, stop=1.0)))
    stages, known = stages_of("cuda_graph"), set()
    for state.step in range(20):
        state.progress, before = state.step / 20, own(stages).launched
        step(stages, state)
        assert state.lr_and_noise is not None
        if own(stages).launched > before:
            assert torch.equal(own(stages)._lr_and_noise, state.lr_and_noise)
            known.add(state.lr_and_noise[0].item())
    assert len(known) == own(stages).launched >= 4


@pytest.mark.gpu
def test_launches_under_way_keep_what_each_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host is ahead by several of them, and reads the reports when all are done; later ones do not change them."""
    state, stages = gpu_state(every=1000), stages_of("cuda_graph", device=torch.device("cuda"))
    monkeypatch.setattr(no_sync_of(stages).capacities, "of", lambda view: 8192)
    results = []
    for _ in range(24):
        torch.cuda._sleep(20_000_000)  # so that the host is ahead by several
        results.append(step(stages, state))
        state.step += 1
    assert own(stages).launched >= 4
    first = [(result.figures.values.tolist(), numbers_of(result.report)) for result in results]
    assert len({tuple(figures) for figures, _ in first}) == 24
    for _, figures, report in results_of(stages, state, 4):
        assert figures.isfinite().all() and len(report) > 1 and report[-1] == 0
    assert first == [(result.figures.values.tolist(), numbers_of(result.report)) for result in results]
