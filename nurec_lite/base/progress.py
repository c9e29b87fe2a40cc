# SPDX-License-Identifier: Apache-2.0
"""Progress of a run: the progress bar, the wish to stop, and the time since the process began."""

import atexit
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from nurec_lite.base.meter import Meter, rounded

_IMPORTED = time.monotonic()
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PAIR_S = 1.0  # timeout(1) sends SIGTERM to the process and to its group, a closed terminal SIGHUP twice: one wish each
_run: dict[str, float] = {}  # when the present run began, if others went before it in this process


def restart_clock() -> None:
    """Starts the clock of another run in this process."""
    _run["start"] = time.monotonic()


def seconds_since_start() -> float:
    """Returns the seconds since the process began, interpreter and imports included (Linux); elsewhere since the import of this module."""
    if _run:
        return time.monotonic() - _run["start"]
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return time.monotonic() - _IMPORTED


class Bar:
    """Progress of the budget, with running PSNR and range error."""

    def __init__(self, steps: int | None, seconds: float | None) -> None:
        self.by_steps = seconds is None
        total = (steps if self.by_steps else seconds) or 0
        self.meter = Meter(total, "steps" if self.by_steps else "s", "training")
        self.texts = ("", "")

    def show(
        self,
        row: dict[str, float] | None,  # of `history.History`; None: nothing new
    ) -> None:
        if row is None:
            return
        step = "" if self.by_steps else f"step {row['step']:.0f}, "
        psnr = row.get("psnr")  # after a step without images there is none
        figures = [] if psnr is None else [("PSNR ", f"{psnr:.2f} dB")]
        figures.append(("range ", f"{row.get('range', 0):.2f} m"))
        short, long = (", ".join(name * words + value for name, value in figures) for words in (0, 1))
        count = rounded(row["gaussians"])
        self.texts = f"{step}{short}, {count}", f"{step}{long}, {count} Gaussians"
        self.meter.to(row["step"] if self.by_steps else min(row["seconds"], self.meter.total), *self.texts)

    def close(self, complete: bool = True) -> None:
        if complete:
            self.meter.to(self.meter.total, *self.texts)
        self.meter.close()


def interrupted() -> NoReturn:
    raise KeyboardInterrupt


class StopWish:
    """Block that catches the first Ctrl-C (or SIGTERM, or SIGHUP) and sets `asked`, so that a loop ends between two steps; a
    second one interrupts at once. Only the main thread can listen; elsewhere `asked` stays False."""

    def __init__(self, interrupt: Callable[[], NoReturn] = interrupted) -> None:
        self.asked, self._interrupt = False, interrupt
        self._asked_at = 0.0
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopWish":
        try:
            self._previous = {s: signal.signal(s, self._ask) for s in _SIGNALS if heeded(s)}
        except ValueError:
            self._previous = {}
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if not self.asked:
            self.asked, self._asked_at = True, time.monotonic()
        elif number == signal.SIGINT or time.monotonic() - self._asked_at > _PAIR_S:
            self._interrupt()

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)


def heeded(number: signal.Signals) -> bool:
    """Whether a signal ends the run: SIGHUP does not if it is ignored, as nohup asks."""
    return number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN


def interrupt_on_signals() -> None:
    """Turns signals that ask the program to end into KeyboardInterrupt. A program that ends already is left alone, so
    that its status stays."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if heeded(number):
            signal.signal(number, interrupt)
    atexit.unregister(_ignore_signals)
    atexit.register(_ignore_signals)


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
