# SPDX-License-Identifier: Apache-2.0
"""The seconds of a run, from the start of the process to the report: its ranges outside of steps, by the host's clock."""

import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from nurec_lite.base.bytecode import compiled_anew
from nurec_lite.base.progress import seconds_since_start
from nurec_lite.base.ranges import switch

DEPTH = 2  # levels of the table
log = logging.getLogger("nurec_lite")


@dataclass(frozen=True)
class Phase:
    """A range of the run, in seconds since the process began."""

    path: str
    begin: float
    end: float


@dataclass
class Phases:
    """A recorder of ranges (`nurec_lite.base.ranges.switch`). Ranges come from several threads, so they may overlap."""

    found: list[Phase] = field(default_factory=list)

    def begin(self, path: str) -> float:
        return seconds_since_start()

    def end(self, path: str, begun: float) -> None:
        self.found.append(Phase(path, begun, seconds_since_start()))

    def table(self) -> str:
        """Table for people, by begin; inner phases are indented, and those of one name are added up."""
        first: dict[str, float] = {}
        seconds: defaultdict[str, float] = defaultdict(float)
        for phase in self.found:
            if phase.path.count("/") < DEPTH:
                first[phase.path] = min(phase.begin, first.get(phase.path, phase.begin))
                seconds[phase.path] += phase.end - phase.begin
        order = sorted(first, key=lambda path: (first[path.partition("/")[0]], first[path], path))
        lines = [_line(path, first[path], seconds[path]) for path in order]
        return "\n".join([f"{'phase':30} {'begins at':>10} {'seconds':>9}", *lines])


def _line(path: str, begin: float, seconds: float) -> str:
    *outer, name = path.split("/")
    return f"{'  ' * len(outer) + name:30} {begin:10.2f} {seconds:9.2f}"


@contextmanager
def phases(wanted: bool) -> Iterator[None]:
    """Records the phases of the run within the block, if wanted, and prints them once at its end, with a remedy for slow imports."""
    if not wanted:
        yield
        return
    recorder = Phases([Phase("imports and configuration", 0.0, seconds_since_start())])
    try:
        with switch(timing=recorder):
            yield
    finally:
        log.info("train.timing: seconds of the run since the process began\n%s", recorder.table())
        slower = compiled_anew()
        if slower is not None:
            log.info("%s", slower)
