# SPDX-License-Identifier: Apache-2.0
"""A run that has turned wrong: it stops, keeps the last checkpoint that was right, and says what it had learned from last."""

import json
import logging
from pathlib import Path
from typing import Any

from nurec_lite.base.errors import UserError
from nurec_lite.base.files import OutputError, write_text
from nurec_lite.capture.types import Frame, ImageFrame, SweepFrame
from nurec_lite.training.shots import ShotPlan
from nurec_lite.training.state import TrainState
from nurec_lite.training.watch import EVERY

DUMP = "broken.json"
log = logging.getLogger("nurec_lite")


class BrokenError(UserError):
    """What was learned is of no use; the message says since when, and where the last good state is."""


def check(state: TrainState, checkpoint: Path, now: bool = False) -> None:
    """BrokenError once a loss, a parameter or a moment is known not to be finite, or the scene to fall apart. `now`: waits for the
    device and leaves no doubt."""
    found = state.history.trouble()
    if found is None:
        found = state.watch.trouble_now(state.step, state.optimizer) if now else state.watch.trouble()
        steps = EVERY
    else:
        steps = 1
    if found is not None:
        raise _broken(state, checkpoint, *found, steps)


def _broken(state: TrainState, checkpoint: Path, step: int, wrong: str, steps: int) -> BrokenError:
    frames = [frame for n in range(max(0, step - steps), step) for frame in seen(state.plan, n)]
    told = {"step": step, "wrong": wrong, "learned from": frames}
    dump = checkpoint.with_name(DUMP)
    try:
        write_text(dump, json.dumps(told, indent=1) + "\n")
    except OutputError as error:
        log.warning("%s", error)
    last = ", ".join(f"{frame['sensor']} {frame['frame']}" for frame in seen(state.plan, step - 1))
    kept = "the checkpoint before it is kept" if checkpoint.exists() else "there is no checkpoint yet"
    return BrokenError(
        f"training went wrong at step {step}: {wrong} (it learned from {last}; {dump} has more); {kept}: {checkpoint}; smaller lr.* or "
        "loss.* may mend it, with train.resume=auto from there"
    )


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
