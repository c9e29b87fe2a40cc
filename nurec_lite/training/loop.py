# SPDX-License-Identifier: Apache-2.0
"""The loop: steps until the budget is spent, checkpoints on the way and at the end, however it ends."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from nurec_lite.base.errors import StoppedError, UserError
from nurec_lite.base.files import OutputError, at_once, patiently
from nurec_lite.base.key_values import assigned
from nurec_lite.base.progress import Bar, StopWish
from nurec_lite.base.ranges import STEP, span
from nurec_lite.base.ranks import RankError, Ranks, present
from nurec_lite.base.timing import timed
from nurec_lite.config import TrainConfig
from nurec_lite.training.broken import BrokenError, check, mend_few
from nurec_lite.training.history import Row
from nurec_lite.training.memory import OutOfMemoryError, out_of_memory
from nurec_lite.training.saving import write_checkpoint
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState
from nurec_lite.training.step import step

log = logging.getLogger("nurec_lite")
UNCHECKED = 200  # steps before a capture has passed its checks, which take 0.7 to 1 s on KITTI 0009


def train(
    stages: Stages,
    state: TrainState,
    checkpoint: Path,
    stepped: Callable[[], None] = lambda: None,  # called after the last step, before the checkpoint is written
) -> None:
    """Trains until the budget is spent; saves now and then and at the end, also if it ends otherwise. Checks of the capture go on
    meanwhile. A budget of steps waits for them after UNCHECKED steps, so that a seed gives the same scene. A budget of seconds takes their
    verdict when it is there."""
    budget, ranks = state.config.train, present()
    bar = Bar(budget.steps, budget.seconds)
    with StopWish() as stop, timed(budget.timing and ranks.first, state.device, checkpoint.parent):
        begun = state.step
        try:
            with ranks.with_others():
                _until_spent(stages, state, checkpoint, bar, stop)
            if not stop.asked:
                stepped()
            bar.show(state.history.read())
            save(state, checkpoint, patiently)
        except (KeyboardInterrupt, Exception) as error:
            bar.close(complete=False)
            _rescue(stages, state, checkpoint, begun, error)
            raise
        bar.close(complete=not stop.asked)
    if stop.asked:
        raise StoppedError(f"stopped after step {state.step}; go on with {assigned('train.resume', str(checkpoint))}")


def _until_spent(stages: Stages, state: TrainState, checkpoint: Path, bar: Bar, stop: StopWish) -> None:
    ranks, begin = present(), time.monotonic() - state.seconds
    saved, saved_step = time.monotonic(), state.step
    ranks.remedy = lambda: _way_on(checkpoint)
    state.watch.look(state.step, state.optimizer)
    while True:
        unsaved = time.monotonic() - saved if state.step > saved_step else 0.0
        progress, stopped, due, judged = ranks.agree(*_wishes(state, ranks, stop, unsaved))
        stop.asked = stop.asked or bool(stopped)
        if state.accept is not None and (judged or progress >= 1 or stopped or due):
            _judge(stages, state)
        if due:
            complete_steps(stages, state)
            _save_or_later(state, checkpoint)
            saved, saved_step = time.monotonic(), state.step
        if progress >= 1 or stopped:
            break
        state.progress = progress
        bar.show(_stepped(stages, state, begin))
        check(state, checkpoint)
    complete_steps(stages, state)


def _awaits_checks(state: TrainState) -> bool:
    """Whether the run takes the verdict of the checks now, and waits for it if they have not ended."""
    if state.accept is None:
        return False
    return state.checked() if state.config.train.steps is None else state.step >= UNCHECKED


def _judge(stages: Stages, state: TrainState) -> None:
    """Takes the verdict. The first rank checks for all: the others take over the corrections of cameras that it has found."""
    complete_steps(stages, state)
    state.end_checks()
    if state.scene.calibration is not None:
        present().broadcast(p.detach() for p in state.scene.calibration.parameters().values())


def _wishes(
    state: TrainState,
    ranks: Ranks,
    stop: StopWish,
    unsaved: float,  # seconds since the last checkpoint; 0 without a step since then
) -> tuple[float, float, float, float]:
    """Wishes of a rank for the next step: its progress, and whether to stop, to save, and to take the verdict of the checks. The first
    rank's clock and checks count, and any rank can stop all of them."""
    stopped = float(stop.asked or ranks.orphaned)
    if not ranks.first:
        return 0.0, stopped, 0.0, 0.0
    budget = state.config.train
    due, judged = unsaved > budget.checkpoint_seconds, _awaits_checks(state)
    return spent(budget, state.step, state.seconds), stopped, float(due), float(judged)


def _way_on(checkpoint: Path) -> str:
    """Says how to go on after a rank has ended."""
    if checkpoint.exists():
        return (
            f"go on from the last checkpoint with {assigned('train.resume', str(checkpoint))}, on any number of ranks"
        )
    return "there is no checkpoint yet, so start again"


def _stepped(stages: Stages, state: TrainState, begin: float) -> Row | None:
    """Takes one step; returns None if it must run again. On a CPU operators refuse values that are not finite, before any update."""
    try:
        return one_step(stages, state, begin)
    except (ValueError, IndexError) as error:
        if isinstance(error, UserError) or present().size > 1 or not mend_few(state):
            raise
        return None


def one_step(
    stages: Stages,
    state: TrainState,
    begin: float,  # of training, by time.monotonic
) -> Row | None:
    """Takes one step; returns its row of the history, if it was read."""
    with span(STEP):
        result = step(stages, state)
        before, state.step, state.seconds = state.seconds, state.step + 1, time.monotonic() - begin
        state.laps.append(state.seconds - before)
        with span("report"):
            n = len(state.scene.gaussians)
            state.watch.look(state.step, state.optimizer)
            return state.history.add(state.step, state.seconds, n, result.figures)


def complete_steps(stages: Stages, state: TrainState) -> None:
    """Waits for all steps, so that the state can be read."""
    state.consistent = False
    stages.update.synchronize(stages, state)
    state.consistent = True


def spent(budget: TrainConfig, step: int, seconds: float) -> float:
    """Share of the budget that is used up, of steps or of seconds, whichever is further."""
    pairs = ((step, budget.steps), (seconds, budget.seconds))
    return max(used / limit if limit else 1.0 for used, limit in pairs if limit is not None)


def save(state: TrainState, path: Path, write: Callable[[Callable[[], None]], None] = at_once) -> None:
    """The checkpoint with its history and its configuration, written by the first rank; BrokenError if learning diverges."""
    state.history.read()
    check(state, path, now=True)
    if present().first:
        write(lambda: write_checkpoint(state, path))


def _save_or_later(state: TrainState, checkpoint: Path) -> None:
    """A full disk may have space again when the next one is due."""
    try:
        save(state, checkpoint)
    except OutputError as error:
        log.warning("%s; the run goes on and tries again", error)


def _rescue(stages: Stages, state: TrainState, checkpoint: Path, begun: int, error: BaseException) -> None:
    """Saves the state, and says so, unless the error came in the middle of an update or from saving itself."""
    alone = present().size == 1
    if alone and isinstance(error, Exception) and not isinstance(error, UserError):
        _explain(state, checkpoint, error)
    if out_of_memory(error):
        raise OutOfMemoryError(state.step, len(state.scene.gaussians)) from error
    if isinstance(error, RankError):
        _rescue_alone(state, checkpoint, begun, error)
    whole = state.consistent and state.accept is None
    if not alone or not whole or state.step == begun or isinstance(error, BrokenError | OutputError):
        return
    try:
        complete_steps(stages, state)
        save(state, checkpoint)
    except Exception as second:  # a GPU that has failed, say: the first error is the one to tell
        log.warning("the last steps could not be saved: %s", second)
        return
    saved = f"saved after step {state.step}; go on with {assigned('train.resume', str(checkpoint))}"
    if isinstance(error, KeyboardInterrupt):
        raise StoppedError(f"stopped; {saved}") from error
    if isinstance(error, UserError):
        raise UserError(f"{error}; {saved}") from error
    log.error("the run is %s", saved)


def _rescue_alone(state: TrainState, checkpoint: Path, begun: int, error: RankError) -> None:
    """Saves the last whole step where another rank has ended. A GPU waits for that rank for ever, so its state cannot be read."""
    if (
        present().first
        and state.consistent
        and state.step > begun
        and state.device.type == "cpu"
        and state.failed is None
    ):
        try:
            write_checkpoint(state, checkpoint)
        except OutputError as second:
            log.warning("%s", second)
    raise RankError(f"{error}; {_way_on(checkpoint)}") from error


def _explain(state: TrainState, checkpoint: Path, error: Exception) -> None:
    """Raises BrokenError if the error came from values that are not finite."""
    try:
        state.history.read()
        check(state, checkpoint, now=True)
    except BrokenError as broken:
        raise broken from error
    except Exception as second:  # of a GPU that has failed, or memory
        log.debug("the state cannot be looked at: %s", second)
