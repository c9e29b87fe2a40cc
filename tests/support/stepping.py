# SPDX-License-Identifier: Apache-2.0
"""Steps as the loop takes them, all that they change, and lists that overflow within them."""

import pytest
import torch
from torch import Tensor

from nurec_lite.opt.post.no_sync import NoSync
from nurec_lite.training.loop import one_step
from nurec_lite.training.shots import Shots
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import StepResult, TrainState


def steps(stages: Stages, state: TrainState, n: int) -> None:
    for _ in range(n):
        state.progress = state.step / 20
        one_step(stages, state, 0.0)
    stages.update.synchronize(stages, state)


def everything(state: TrainState) -> dict[str, Tensor]:
    """All that training changes."""
    moments = {
        f"{group['name']} {key}": value
        for group in state.optimizer.param_groups
        for key, value in state.optimizer.state[group["params"][0]].items()
    }
    return state.scene.parameters() | moments | {"node": state.scene.gaussians.node, "rng": state.generator.get_state()}


def assert_close(a: TrainState, b: TrainState, rtol: float = 0, atol: float = 0) -> None:
    """Compares all tensors that training changes."""
    mine, other = everything(a), everything(b)
    assert mine.keys() == other.keys()
    for name in mine:
        torch.testing.assert_close(
            mine[name], other[name], rtol=rtol, atol=atol, msg=lambda m, name=name: f"{name}: {m}"
        )


def no_sync_of(stages: Stages) -> NoSync:
    """The object behind the stages."""
    found = stages.update.synchronize.__self__  # type: ignore[attr-defined]
    assert isinstance(found, NoSync)
    return found


def cramped(stages: Stages, at: set[int], kinds: str = "", entries: int = 3) -> Stages:
    """Gives views and messages a capacity of few entries at the first try of the given steps, those whose kinds begin with these words."""
    option, left = no_sync_of(stages), set(at)
    start, known = option._start, option.capacities.of

    def narrow(stages: Stages, state: TrainState, shots: Shots) -> StepResult:
        if state.step not in left:
            return start(stages, state, shots)
        left.discard(state.step)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(option.capacities, "of", lambda view: entries if view.kind.startswith(kinds) else known(view))
            return start(stages, state, shots)

    option._start = narrow  # type: ignore[method-assign]
    return stages
