# SPDX-License-Identifier: Apache-2.0
"""Standard streams that a program outlives: a closed pipe must not end a run before it has saved."""

import errno
import io
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from nurec_lite.base.texts import displayed

_GONE = (errno.EPIPE, errno.EIO, errno.EBADF)  # the reader ended, the terminal closed


class Enduring:
    """A text stream that ignores failures: once its reader is gone, output is dropped. Characters that a
    terminal obeys, as names of files may hold them, are written as text."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(displayed(text))
        except OSError as error:
            self._lost(error)
        except ValueError:
            if not self._stream.closed:  # an encoding, say
                raise
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._lost(error)
        except ValueError:
            if not self._stream.closed:
                raise

    def _lost(self, error: OSError) -> None:
        """The descriptor itself leads nowhere from now on, also for libraries and for the interpreter's last flush."""
        if error.errno not in _GONE:  # a full disk may have room again
            return
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, self._stream.fileno())
        except (OSError, ValueError):  # it has no descriptor
            self._stream = _nowhere()
        finally:
            os.close(null)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def endure() -> None:
    """Keeps everything from failing because of stdout or stderr; closed ones are opened on nothing, so that no file of
    ours gets their number and the output of libraries. Characters that their encoding lacks appear as Python writes them."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or _nowhere()
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        if not isinstance(stream, Enduring):
            setattr(sys, name, Enduring(stream))


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w")
