# SPDX-License-Identifier: Apache-2.0
"""A run that goes wrong. A few Gaussians that left the scene cost nothing: they count as dead. If learning diverges the run ends with a
checkpoint that can be looked at, and with the names of the frames that it learned from last."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nurec_lite.base.errors import UserError
from nurec_lite.base.files import OutputError, write_text
from nurec_lite.base.folders import discard
from nurec_lite.base.ranks import present
from nurec_lite.capture.types import Frame, ImageFrame, SweepFrame
from nurec_lite.training.checkpoint import load_checkpoint
from nurec_lite.training.gone import SHARE, Gone, bury, find_gone
from nurec_lite.training.saving import write_checkpoint
from nurec_lite.training.shots import ShotPlan
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState
from nurec_lite.training.watch import EVERY

DUMP = "broken.json"
log = logging.getLogger("nurec_lite")


class BrokenError(UserError):
    """Learning diverges; the message says since when, and where a checkpoint is."""


def check(state: TrainState, checkpoint: Path, now: bool = False) -> None:
    """Raises BrokenError once learning is known to diverge. `now`: waits for the device and leaves no doubt. Ranks decide together, in some
    steps alone."""
    ranks = present()
    if ranks.size > 1 and not now and state.step % EVERY:
        return
    found, steps = state.history.trouble(), 1
    of_figures, worse = float(found is not None), float(state.history.worse)
    if found is None:
        found = state.watch.trouble_now(state.step, state.optimizer) if now else state.watch.trouble()
        steps = EVERY
    any_found, of_figures, worse = ranks.agree(float(found is not None), of_figures, worse)
    if not any_found:
        return
    found = found or (state.step, "another rank has figures that are not finite, or much worse")
    gone = find_gone(state.optimizer, len(state.scene.gaussians), state.watch.edge)
    if worse or (of_figures and not gone.count) or not _mended(state, gone):
        raise _broken(state, checkpoint, found, gone, steps)


def mend_few(state: TrainState) -> bool:
    """Whether a step failed because of a few Gaussians that are gone. They are dead now, so that it can be done again."""
    gone = find_gone(state.optimizer, len(state.scene.gaussians), state.watch.edge)
    if not gone.count or not _mended(state, gone):
        return False
    state.optimizer.zero_grad(set_to_none=True)
    state.consistent = True
    return True


def _mended(state: TrainState, gone: Gone) -> bool:
    """Whether all is well once the Gaussians that are gone are dead. They die only if they are few."""
    few = max(1, SHARE * len(state.scene.gaussians))
    if gone.count > few or state.not_finite + gone.not_finite > few:
        return False
    if gone.count:
        bury(state.optimizer, gone.rows)
        state.gone, state.not_finite = state.gone + gone.count, state.not_finite + gone.not_finite
        state.history.forgive(state.step)
        log.info(
            "step %d: Gaussians that left the scene or are not finite, and count as dead: %d", state.step, gone.count
        )
    state.watch.forget()
    return state.watch.trouble_now(state.step, state.optimizer) is None


def _broken(state: TrainState, checkpoint: Path, found: tuple[int, str], gone: Gone, steps: int) -> BrokenError:
    state.end_checks()  # a wrong capture explains it
    step, wrong = found
    if gone.count:
        wrong = f"{wrong}, {gone.count} of {len(state.scene.gaussians)} Gaussians are affected"
    if not present().first:
        return BrokenError(f"training went wrong at step {step}: {wrong}")
    kept = _kept(state, checkpoint)
    frames = [frame for n in range(max(0, step - steps), step) for frame in seen(state.plan, n)]
    described = {"step": step, "wrong": wrong, "learned from": frames}
    dump = checkpoint.with_name(DUMP)
    try:
        write_text(dump, json.dumps(described, indent=1) + "\n")
    except OutputError as error:
        log.warning("%s", error)
    last = ", ".join(f"{frame['sensor']} {frame['frame']}" for frame in seen(state.plan, step - 1))
    return BrokenError(
        f"training went wrong at step {step}: {wrong} (it learned from {last}; {dump} has more); {kept}; "
        "smaller lr.* or loss.* may mend it"
    )


def _kept(state: TrainState, checkpoint: Path) -> str:
    """Makes sure that there is a checkpoint to inspect, and says its content and how to go on."""
    if checkpoint.exists():
        return f"the checkpoint before it is kept: {checkpoint}, and train.resume=auto goes on from there"
    if _written(lambda: state, checkpoint):
        return f"{checkpoint} holds the scene as it is now, to be looked at; train.overwrite=true begins anew"
    if _written(lambda: _first(state), checkpoint):
        return f"{checkpoint} holds the scene as it was before the first step, and train.resume=auto goes on from there"
    return "there is no checkpoint, since none could be written"


def _first(state: TrainState) -> TrainState:
    """Makes the first state anew: to keep it from the start would cost every run memory or time."""
    return make_state(state.config, state.plan.capture, state.device)


def _written(make: Callable[[], TrainState], checkpoint: Path) -> bool:
    """Whether there is a checkpoint now, which can be read."""
    try:
        write_checkpoint(make(), checkpoint)
        load_checkpoint(checkpoint, "cpu")
        return True
    except (
        Exception
    ) as error:  # no memory, a GPU that has failed, values that no checkpoint may hold: the run ends in any case
        log.debug("no checkpoint of a run that went wrong: %s", error)
        discard([checkpoint])
        return False


def seen(plan: ShotPlan, step: int) -> list[dict[str, Any]]:
    """The frames of a step, without decoding them."""
    images, sweeps = plan.chosen(step)
    return [
        *(_described(step, i, plan.capture.images[i]) for i in images),
        *(_described(step, i, plan.capture.sweeps[i]) for i in sweeps),
    ]


def _described(step: int, index: int, frame: Frame) -> dict[str, Any]:
    assert isinstance(frame, ImageFrame | SweepFrame)
    load = getattr(frame.load, "load", frame.load)  # a sweep's is within one that looks at its times
    source = next((str(v) for name in ("member", "path") if (v := getattr(load, name, None))), None)
    return {"step": step, "index": index, "sensor": frame.sensor, "frame": frame.index, "file": source}
