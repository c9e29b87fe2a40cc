# SPDX-License-Identifier: Apache-2.0
"""Whether a process runs. The system reuses process numbers, so a process is known by its number and its start time."""

import os
import signal
import threading
import time
from pathlib import Path

PARENT = "NUREC_LITE_PARENT"  # variable of the environment: the process that this one must not outlive
LOOK = 0.5  # seconds between two looks at it


def started(process: int) -> int | None:
    """Start of the process, in ticks since the machine's start; None if the system does not say."""
    found = _state(process)
    return None if found is None else found[1]


def alive(process: int, start: int) -> bool:
    """Whether a process runs; one that has ended does not, although its parent has not asked for it yet."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # another user's
        pass
    found = _state(process)
    return found is None or (found[0] not in "ZX" and found[1] == start)


def _state(process: int) -> tuple[str, int] | None:  # a letter, see proc(5), and the start
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def as_parent() -> dict[str, str]:
    """The environment of a process that ends with this one, though another program may stand between them."""
    return {PARENT: f"{os.getpid()} {started(os.getpid()) or 0}"}


def end_with_parent() -> None:
    """Kills this process soon after the process that the environment names has ended."""
    process, _, start = os.environ.get(PARENT, "").partition(" ")
    if process.isdecimal() and start.isdecimal():
        threading.Thread(target=_watch, args=(int(process), int(start)), daemon=True).start()


def _watch(process: int, start: int) -> None:
    while alive(process, start):
        time.sleep(LOOK)
    os.kill(os.getpid(), signal.SIGKILL)
