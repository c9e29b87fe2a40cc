# SPDX-License-Identifier: Apache-2.0
"""Files that appear whole or not at all."""

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import BinaryIO

from nurec_lite.base.errors import OutputError, unwritable
from nurec_lite.base.folders import discard, owner_of
from nurec_lite.base.temporary import temporary_file

WAITS = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # seconds between tries to write a file that would be lost
FLUSHED_S = 0.005  # seconds between flushes of a large file
log = logging.getLogger("nurec_lite")


@contextmanager
def written(
    path: Path,
    stale: Sequence[Path] = (),  # files and folders of ours that must not exist next to the new file
) -> Iterator[BinaryIO]:
    """A file that is written under a temporary name next to `path`, flushed to the disk and renamed when the block ends well.

    A failure before that leaves `path` as it was, and no other file. In a folder of results the file joins the list of our files.
    OutputError if the disk is full, a folder read-only, or `path` is a foreign file.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_file(path) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            discard(stale)
            if owner := owner_of(path):
                owner.record(path)
            Path(file.name).replace(path)
    except OSError as error:
        raise unwritable(path, error) from error


@contextmanager
def flushed_meanwhile(file: BinaryIO) -> Iterator[None]:
    """Lets the disk take bytes of the block while the block goes on: then little is left to wait for at the end. An error of the disk
    is raised when the block ends, since the system tells it only once."""
    done, errors = Event(), list[OSError]()
    thread = Thread(target=_flush, args=(file.fileno(), done, errors), name="flush")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if errors:
        raise errors[0]


def _flush(descriptor: int, done: Event, errors: list[OSError]) -> None:
    try:
        while not done.wait(FLUSHED_S):
            os.fdatasync(descriptor)
    except OSError as error:
        errors.append(error)


def write_text(path: Path, text: str) -> None:
    with written(path) as file:
        file.write(text.encode())


def at_once(write: Callable[[], None]) -> None:
    """Tries once."""
    write()


def patiently(write: Callable[[], None]) -> None:
    """Tries again for a minute while a disk is full."""
    for seconds in WAITS:
        try:
            return write()
        except OutputError as error:
            if not error.passing:
                raise
            log.warning("%s; tried again in %g s", error, seconds)
        time.sleep(seconds)
    write()


def all_tried(*writes: Callable[[], None]) -> None:
    """Writes all outputs, although one may fail; raises the first error when all were tried."""
    errors = []
    for write in writes:
        try:
            write()
        except OutputError as error:
            errors.append(error)
    if errors:
        raise errors[0]
