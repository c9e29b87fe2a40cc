# SPDX-License-Identifier: Apache-2.0
"""The loop: steps until the budget is spent, checkpoints on the way and at the end."""

import time
from pathlib import Path

from nurec_lite.base.errors import StoppedError
from nurec_lite.base.files import write_text
from nurec_lite.base.progress import Bar, StopWish
from nurec_lite.base.ranges import STEP, span
from nurec_lite.base.timing import timed
from nurec_lite.config import TrainConfig
from nurec_lite.training.checkpoint import save_checkpoint
from nurec_lite.training.history import Row
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState
from nurec_lite.training.step import step


def train(stages: Stages, state: TrainState, checkpoint: Path) -> None:
    """Steps until the budget is spent; saves now and then and at the end, also if the user asks to stop."""
    budget, begin, saved = state.config.train, time.monotonic() - state.seconds, time.monotonic()
    bar = Bar(budget.steps, budget.seconds)
    with StopWish() as stop, timed(budget.timing, state.device, checkpoint.parent):
        while (progress := spent(budget, state.step, state.seconds)) < 1 and not stop.asked:
            state.progress = progress
            bar.show(one_step(stages, state, begin))
            if time.monotonic() - saved > budget.checkpoint_seconds:
                stages.settle(stages, state)
                save(state, checkpoint)
                saved = time.monotonic()
        stages.settle(stages, state)
        bar.show(state.history.read())
        bar.close(complete=not stop.asked)
        save(state, checkpoint)
    if stop.asked:
        raise StoppedError(f"stopped after step {state.step}; go on with train.resume={checkpoint}")


def one_step(
    stages: Stages,
    state: TrainState,
    begin: float,  # of training, by time.monotonic
) -> Row | None:
    """One step, and what the history says of it, if it was read."""
    with span(STEP):
        result = step(stages, state)
        state.step, state.seconds = state.step + 1, time.monotonic() - begin
        with span("report"):
            n = len(state.scene.gaussians)
            return state.history.add(state.step, state.seconds, n, result.mse, result.terms, result.failed)


def spent(budget: TrainConfig, step: int, seconds: float) -> float:
    """Share of the budget that is used up, of steps or of seconds, whichever is further."""
    pairs = ((step, budget.steps), (seconds, budget.seconds))
    return max(used / limit if limit else 1.0 for used, limit in pairs if limit is not None)


def save(state: TrainState, path: Path) -> None:
    """The checkpoint, and the history as a table beside it."""
    state.history.read()
    counters = {"step": state.step, "seconds": state.seconds}
    save_checkpoint(path, state.scene, state.optimizer, state.generator, state.config, counters, state.history.rows)
    write_text(path.with_name("history.csv"), state.history.to_csv())
