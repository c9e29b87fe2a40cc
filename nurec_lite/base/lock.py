# SPDX-License-Identifier: Apache-2.0
"""A folder that belongs to one process at a time. The lock is the kernel's, so that no process leaves it behind however it ends."""

import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nurec_lite.base.errors import UserError
from nurec_lite.base.files import unwritable

LOCK = ".lock"
_held: set[int] = set()  # descriptors of this process
log = logging.getLogger("nurec_lite")


class FolderError(UserError):
    """The folder is not free for what is to be written there; the message says why and what may be done."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Makes the folder if it is not there; FolderError if another process has it. If nothing was written, nothing stays."""
    made = _make(folder)
    descriptor = _take(folder / LOCK)
    _held.add(descriptor)
    try:
        yield
    finally:
        (folder / LOCK).unlink(missing_ok=True)  # before it is free: who waits for it looks whether it is still there
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
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise unwritable(file.parent, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(descriptor, 200).decode(errors="replace") or "another process"
            os.close(descriptor)
            raise FolderError(
                f"{file.parent} is in use by {holder}; wait for its end, or give another folder by out=FOLDER"
            ) from error
        except OSError as error:  # some network file systems know no locks
            log.warning("%s cannot be locked (%s): see to it that no other run writes there", file.parent, error)
        if _same(descriptor, file):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
            return descriptor
        os.close(descriptor)  # its holder ended and removed it meanwhile


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
    """A loader process that outlives a run for a moment must not keep its folder."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_the_parent)
