# SPDX-License-Identifier: Apache-2.0
"""The result of one check of a capture."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import Enum

from nurec_lite.base.left_out import failure
from nurec_lite.capture.types import Capture

log = logging.getLogger(__name__)


class Level(Enum):
    """Certainty of a check."""

    RIGHT = "right"  # the sensors agree with the drive
    UNKNOWN = "unknown"  # the drive holds too little to tell
    LIKELY = "likely wrong"  # a finding: the run goes on and the report shows it
    CERTAIN = "wrong"  # an error: the run ends with exit status 2 unless data.trust=true
    FAILED = "failed"  # the check itself raised an error; the run goes on and the report shows it


@dataclass(frozen=True)
class Verdict:
    """The result of one check about one sensor, one file or the whole drive."""

    check: str  # the compared data, such as `poses and sweeps`
    subject: str  # name of the sensor, track or file; the capture's name for the whole drive
    level: Level
    sentence: str  # result first, with its figures, for example: "Neighbouring sweeps lie 0.02 m apart."
    remedy: str | None = None  # a key or command that exists, for example: "give data.poses.convention=camera"
    figures: dict[str, float] = field(default_factory=dict)  # measured numbers by name, with the unit in the name
    corrected: Callable[[Capture], Capture] | None = field(default=None, compare=False, repr=False)
    # the capture as it is with the remedy, where one fits: `inspect` draws the map and the overlays before and after

    @property
    def text(self) -> str:
        """The sentence and its remedy."""
        return self.sentence if self.remedy is None else f"{self.sentence.removesuffix('.')}; {self.remedy}."

    def plain(self) -> dict[str, object]:
        """Fields for JSON: all but the corrected capture."""
        kept = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "corrected"}
        return kept | {"level": self.level.name}


def failed(
    part: str,  # of the checks, at the beginning of a sentence
    check: str,
    subject: str,
    error: Exception,
) -> Verdict:
    log.debug("%s failed", part, exc_info=error)
    return Verdict(check, subject, Level.FAILED, failure(part, error))
