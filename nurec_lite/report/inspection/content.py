# SPDX-License-Identifier: Apache-2.0
"""The content of the page, and the guard around its parts."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from nurec_lite.base.errors import UserError
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Verdict
from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.types import Capture, SweepFrame
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.report.parts import escaped

LONGEST_ID, SHORT_ID = 12, 8  # characters in a picture
log = logging.getLogger("nurec_lite")


@dataclass(frozen=True)
class Inspection:
    """A capture with the verdicts of its checks."""

    capture: Capture
    verdicts: Sequence[Verdict]
    sample: Sample  # decodes the frames of the pictures
    command: str  # the command line that makes the page again

    @property
    def start(self) -> float:
        """Begin of the first frame in seconds; charts count from there."""
        return min((f.time_start for f in (*self.capture.images, *self.capture.sweeps)), default=0.0)


def guarded(what: str, make: Callable[[], str]) -> str:
    """HTML of a part, or a sentence that says why it is missing."""
    try:
        return make()
    except UserError as error:
        reason = f"{error}."
    except Exception as error:
        log.debug("%s failed", what, exc_info=True)
        reason = f"{type(error).__name__}: {error}."
    log.warning("%s is missing on the page: %s", what, reason)
    return f'<p class="missing">{escaped(what)} is missing: {escaped(reason)}</p>'


def short(name: str) -> str:
    """A track's id, shortened for a picture; the beginning distinguishes long ones."""
    return name if len(name) <= LONGEST_ID else name[:SHORT_ID]


def returned_points(
    sample: Sample, capture: Capture, frame: SweepFrame
) -> tuple[Sweep, torch.Tensor]:  # rays that returned, and their points [n, 3] in metres, world
    sweep = sample.sweep(frame)
    sweep = sweep.select(sweep.returned)
    return sweep, world_points(frame, sweep, capture.lidar(frame.sensor))
