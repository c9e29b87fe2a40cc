# SPDX-License-Identifier: Apache-2.0
"""Runs of nurec_lite.train for scripts/faults.py, each in a session of its own, as in a terminal of its own.

They are forked from a process that has imported everything and computed nothing, which saves the seconds of the imports; from the
arguments on they run `python -m nurec_lite.train`, its end included.
"""

import atexit
import multiprocessing.util
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from nurec_lite.cli.command import command
from nurec_lite.train import HELP, main


@dataclass
class Child:
    """A run under way, or ended."""

    pid: int
    log: Path  # its stdout and stderr
    code: int | None = None  # negative: the signal that ended it

    def running(self) -> bool:
        if self.code is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if found else None
        return self.code is None

    def wait(self, seconds: float = 120) -> int:
        """The code; AssertionError if it takes too long."""
        end = time.monotonic() + seconds
        while self.running():
            if time.monotonic() > end:
                os.killpg(self.pid, signal.SIGKILL)
                raise AssertionError(f"it did not end within {seconds:g} s: {self.said()}")
            time.sleep(0.01)
        assert self.code is not None
        return self.code

    def said(self) -> str:
        """Its last line."""
        lines = self.log.read_text(errors="replace").replace("\r", "\n").strip().splitlines()
        return lines[-1] if lines else ""

    def traced(self) -> bool:
        return "Traceback" in self.log.read_text(errors="replace")

    def workers(self) -> list[int]:
        """The other processes of its session that still run."""
        return [pid for pid in session(self.pid) if pid != self.pid]

    def signal(self, number: int, group: bool = False) -> None:
        try:
            (os.killpg if group else os.kill)(self.pid, number)
        except ProcessLookupError:
            return


def session(leader: int) -> list[int]:
    """Processes of a session that are no zombies."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def start(arguments: list[str], log: Path, output: int | None = None) -> Child:
    """`output`: a descriptor that takes the place of the log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            _become(arguments, file.fileno() if output is None else output)
    return Child(pid, log)


def _become(arguments: list[str], output: int) -> None:
    """Does not return."""
    os.setsid()
    for number in (1, 2):
        os.dup2(output, number)
    os.closerange(3, 1024)  # other runs' pipes
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
    torch.set_num_threads(1)
    atexit._clear()
    atexit.register(multiprocessing.util._exit_function)
    sys.argv = ["nurec_lite.train", *arguments]
    os._exit(_ended(lambda: command("train", HELP, lambda given: main())))


def _ended(work: Callable[[], None]) -> int:
    """Exit status as from the interpreter."""
    code = 0
    try:
        work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code
