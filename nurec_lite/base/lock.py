# SPDX-License-Identifier: Apache-2.0
"""A folder that belongs to one process at a time. The lock is the kernel's: it ends with its process, in any case."""

import fcntl
import logging
import os
import re
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nurec_lite.base.errors import FolderError, unwritable
from nurec_lite.base.folders import ANOTHER, LOCK

_HOLDER = re.compile(r"(process [0-9]{1,10} on [^\n]*)?")  # the text of a lock of ours
_held: set[int] = set()  # descriptors of this process
log = logging.getLogger("nurec_lite")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Makes the folder if it is not there; FolderError if another process has it. If nothing was written, nothing stays."""
    made = _make(folder)
    descriptor = _take(folder / LOCK)
    _held.add(descriptor)
    try:
        yield
    finally:
        (folder / LOCK).unlink(missing_ok=True)  # before it is free: a waiting process checks whether it still exists
        _held.discard(descriptor)
        os.close(descriptor)
        _remove_empty(made)


def _make(folder: Path) -> list[Path]:
    """The folders that were not there, the innermost first."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    return missing


def _take(file: Path) -> int:
    while True:
        descriptor, holder = _opened(file)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise FolderError(
                f"{file.parent} is in use by {holder or 'another process'}; wait for its end, or {ANOTHER}"
            ) from error
        except OSError as error:  # some network file systems know no locks
            log.warning("%s cannot be locked (%s): see to it that no other run writes there", file.parent, error)
        if _same(descriptor, file):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
            return descriptor
        os.close(descriptor)  # its holder ended and removed it meanwhile


def _opened(file: Path) -> tuple[int, str]:
    """The descriptor, and the holder that the file names. FolderError if the file is not a lock of ours: it is emptied then."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if os.path.lexists(file):
            raise _not_ours(file) from error
        raise unwritable(file.parent, error) from error
    found = os.fstat(descriptor)
    plain = stat.S_ISREG(found.st_mode) and found.st_nlink < 2
    holder = os.pread(descriptor, 200, 0).decode(errors="replace") if plain else ""
    if not plain or not _HOLDER.fullmatch(holder):
        os.close(descriptor)
        raise _not_ours(file)
    return descriptor, holder


def _not_ours(file: Path) -> FolderError:
    return FolderError(f"{file} is not a lock of nurec_lite that this process can use; remove it, or {ANOTHER}")


def _same(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(file))
    except OSError:
        return False


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return


def _leave_to_the_parent() -> None:
    """Closes the locks in a child: a loader process that outlives a run for a moment must not keep its folder."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_the_parent)
