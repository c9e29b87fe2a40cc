# SPDX-License-Identifier: Apache-2.0
"""Temporary files: their names say which process made them, so that a file is only removed after its maker has ended.

A name is .FILE.nurec_lite-HOST-BOOT-NAMESPACE-PROCESS-START-RANDOM.tmp. Processes differ by their number, the namespace of that
number (two containers may both be process 1) and their start. The maker also holds a lock of the kernel on its file. Another container
of the same machine sees that lock; another host may not, so its files are left alone.
"""

import fcntl
import hashlib
import os
import platform
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from nurec_lite.base.alive import alive, started

SHOWN = 120  # bytes of the file's own name within the temporary one, which may have 255
_MARK = r"\.nurec_lite-([0-9a-f]{8})-([0-9a-f]{8})-([0-9]{1,20})-([0-9]{1,10})-([0-9]{1,20})-[0-9a-f]{16}\.tmp"
_NAME = re.compile(rf"\..*{_MARK}", re.DOTALL)


@contextmanager
def temporary_file(target: Path) -> Iterator[BinaryIO]:
    """A new file next to `target`, open for writing and locked. Its `name` is its path; unless it is renamed, it goes with the block."""
    file = _created(target)
    try:
        with file:
            yield file
    finally:
        with suppress(OSError):
            os.unlink(file.name)


def _created(target: Path) -> BinaryIO:
    """Returns a new locked file beside the target. A process of another container may remove it before its lock is held; then a next
    file is made."""
    while True:
        path = target.with_name(_name(target))
        file: BinaryIO = open(path, "xb", opener=lambda p, flags: os.open(p, flags | os.O_NOFOLLOW, 0o666))  # noqa: SIM115
        with suppress(OSError):  # some network file systems know no locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()


def _name(target: Path) -> str:
    shown = target.name.encode(errors="replace")[:SHOWN].decode(errors="ignore")
    process = os.getpid()
    return f".{shown}.nurec_lite-{'-'.join(_machine())}-{process}-{started(process) or 0}-{secrets.token_hex(8)}.tmp"


@lru_cache(maxsize=1)
def _machine() -> tuple[str, str, str]:
    """Digests of host and boot, and the namespace of process numbers; a random one for each that the system does not tell."""
    host = platform.node() + _text("/etc/machine-id")
    boot = _text("/proc/sys/kernel/random/boot_id") or secrets.token_hex(16)
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        namespace = secrets.randbits(60)
    return _digest(host), _digest(boot), str(namespace)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def remove_leftovers(folder: Path) -> None:
    """Removes temporary files in `folder` if the process that made them is gone."""
    try:
        names = [entry.name for entry in os.scandir(folder)]
    except OSError:  # it is not there
        return
    for name in names:
        found = _NAME.fullmatch(name)
        if found and _gone(folder / name, *found.groups()):
            with suppress(OSError):
                os.unlink(folder / name)


def is_temporary(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def _gone(path: Path, host: str, boot: str, namespace: str, process: str, start: str) -> bool:
    own_host, own_boot, own_namespace = _machine()
    if boot != own_boot:
        return host == own_host and _unlocked(path, before=time.time() - time.clock_gettime(time.CLOCK_BOOTTIME))
    if namespace == own_namespace:
        return not alive(int(process), int(start))
    return _unlocked(path)


def _unlocked(path: Path, before: float = float("inf")) -> bool:
    """Whether it is a regular file, last written `before` that time, and not locked."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        found = os.fstat(descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return stat.S_ISREG(found.st_mode) and found.st_mtime < before
    except OSError:
        return False
    finally:
        os.close(descriptor)
