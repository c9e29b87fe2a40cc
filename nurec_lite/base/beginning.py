# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a command still imports its modules, which takes seconds: a sentence and the status 130 instead of a trace."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def end_quietly() -> None:
    """Handles the signal until `command` takes over. A process that ignores it, such as a background job, goes on ignoring it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def begun() -> None:
    """Lets Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Ends at once: an error raised within an import may be taken for a missing module."""
    print("error: interrupted while it started; nothing was written", file=sys.stderr, flush=True)
    os._exit(130)
