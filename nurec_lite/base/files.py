# SPDX-License-Identifier: Apache-2.0
"""Files that appear whole or not at all."""

import errno
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from nurec_lite.base.errors import UserError

WAITS = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # seconds between tries to write what would be lost
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ENOMEM)  # what may be over after a while
log = logging.getLogger("nurec_lite")


class OutputError(UserError):
    """A result cannot be written; the message names the file and the remedy."""

    @property
    def passing(self) -> bool:
        """Whether it may be over after a while: a full disk, say."""
        return isinstance(self.__cause__, OSError) and self.__cause__.errno in _PASSING


@contextmanager
def written(
    path: Path,
    stale: Sequence[Path] = (),  # files and folders that must not stand beside the new file
) -> Iterator[BinaryIO]:
    """A file that is written under a temporary name beside `path`, flushed to the disk and renamed when the block ends well.

    Whatever happens before leaves what was at `path`, and nothing else. OutputError if the disk is full, a folder read-only, ...
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        remove(stale)
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        cause = error if isinstance(error, OSError) else error.__context__
        if not isinstance(
            cause, OSError
        ):  # torch.save wraps what the file system says; any other error stays what it is
            raise
        raise unwritable(path, cause) from cause
    finally:
        _unlink(temporary)


def write_text(path: Path, text: str) -> None:
    with written(path) as file:
        file.write(text.encode())


def remove(paths: Sequence[Path]) -> None:
    """Files and folders, as far as they are there, in this order."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Temporary files of processes that ended before they could rename them."""
    for path in folder.glob(".*.*"):
        found = re.fullmatch(r"\..+\.(\d{1,9})", path.name)
        if found and not _alive(int(found[1])):
            _unlink(path)


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
    """One output that fails does not keep the others from being written; the first error is raised when all were tried."""
    errors = []
    for write in writes:
        try:
            write()
        except OutputError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def unwritable(path: Path, cause: OSError) -> OutputError:
    kept = "what was there before is kept" if path.exists() else "nothing was left there"
    return OutputError(
        f"{path} cannot be written ({cause.strerror or cause}); free some space or choose another place ({kept})"
    )


def _alive(process: int) -> bool:
    """Whether another process of this number runs; before this one has written anything, its own number was another's."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return process != os.getpid()


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:  # the folder was never there
        return
