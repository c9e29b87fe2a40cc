# SPDX-License-Identifier: Apache-2.0
"""Imports of a command take seconds: Ctrl-C is a sentence and the status 130 meanwhile, and so is a current folder that was deleted,
with the status 2.
"""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def end_quietly() -> None:
    """Handles the signal until `command` takes over. A process that ignores it, such as a background job, goes on ignoring it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def check_folder() -> None:
    """Ends the process where the current folder was deleted: libraries of torch fail there, each in its own way."""
    try:
        os.getcwd()
    except FileNotFoundError:
        print("error: the current folder was deleted or renamed; change to another one", file=sys.stderr, flush=True)
        os._exit(2)


def begun() -> None:
    """Lets Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Ends at once: an error raised within an import may be taken for a missing module."""
    print("error: interrupted while it started; nothing was written", file=sys.stderr, flush=True)
    os._exit(130)
