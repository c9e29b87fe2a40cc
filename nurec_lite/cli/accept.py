# SPDX-License-Identifier: Apache-2.0
"""A run takes the result of its capture's checks: before the first step, or on one GPU after a few steps."""

import logging
from pathlib import Path

from nurec_lite.base.files import write_text
from nurec_lite.base.ranges import span
from nurec_lite.base.ranks import present
from nurec_lite.capture.checks.begun import BegunChecks
from nurec_lite.capture.checks.doubts import write_doubts
from nurec_lite.capture.checks.verdict import Verdict
from nurec_lite.cli.multirun import is_new_folder
from nurec_lite.config import Config, to_yaml
from nurec_lite.scene.calibration import add_starts
from nurec_lite.training.folder import CHECKPOINT, CONFIG, DOUBTS, clear
from nurec_lite.training.state import TrainState

log = logging.getLogger("nurec_lite")


def begins_unchecked(state: TrainState) -> bool:
    """Whether training begins while the checks go on. A run that replaces or continues another one waits for them."""
    anew = state.config.train.resume is None and not state.config.train.overwrite
    return anew and state.device.type == "cuda"


def accept(state: TrainState, checks: BegunChecks) -> None:
    """Waits for the checks. CaptureError if the capture is certainly wrong; else the folder becomes the run's."""
    with span("checks"):
        doubts = checks.doubts()
    if state.scene.calibration is not None and state.config.train.resume is None:
        add_starts(state.scene.calibration, checks.starts())
    if present().first:
        _own(state.config, doubts)


def _own(config: Config, doubts: list[Verdict]) -> None:
    """Makes the folder this run's. One that goes on there keeps its results until there is more."""
    out = Path(config.out)
    if is_new_folder():  # else the first line said it
        log.info("results go to %s", out)
    if config.train.overwrite:
        clear(out)
    write_doubts(out / DOUBTS, doubts)
    if not (out / CHECKPOINT).exists():
        write_text(out / CONFIG, to_yaml(config))
