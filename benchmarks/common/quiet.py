# SPDX-License-Identifier: Apache-2.0
"""Load of other programs during a measurement: a time says little if they took its cores."""

import os
import resource
import time
from pathlib import Path

_STAT = Path("/proc/stat")  # Linux


class Others:
    """Counts the cores that other programs use from its making on."""

    def __init__(self) -> None:
        self.start, self.own, self.all = time.monotonic(), own_seconds(), busy_seconds()

    def cores(self) -> float | None:  # busy with other programs, on average; None if unknown
        now = busy_seconds()
        if self.all is None or now is None:
            return None
        others = (now - self.all) - (own_seconds() - self.own)
        return max(0.0, others / (time.monotonic() - self.start))


def own_seconds() -> float:
    """CPU seconds of this process and of its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def busy_seconds() -> float | None:
    """CPU seconds of all cores since the machine started."""
    if not _STAT.exists():
        return None
    user, nice, system, _, _, irq, softirq, steal, *_ = map(int, _STAT.read_text().split("\n")[0].split()[1:])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
