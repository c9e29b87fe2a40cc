# SPDX-License-Identifier: Apache-2.0
"""Cache of compiled kernels. Its files are executed, so only its owner may be able to write it."""

import fcntl
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from nurec_lite.native.compilers import BuildError


def say(text: str) -> None:
    start = "\r" if sys.stderr.isatty() else ""
    print(f"{start}{text}", file=sys.stderr, flush=True)


_say_once = lru_cache(say)  # kernels are looked for before they are loaded


def cache_folder() -> Path:
    """$NUREC_LITE_CACHE, or nurec_lite in the user's cache; among temporary files for a user without a home folder."""
    own = os.environ.get("NUREC_LITE_CACHE")
    if own:
        return Path(own)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nurec_lite"
    except RuntimeError:
        return _elsewhere()


def private_folder(cache: Path, name: str) -> Path:
    """Returns the folder of that name in the cache; elsewhere if others could write there, because its files are executed."""
    for place in (cache, cache / name):
        if flaw := exposed(place):
            cache = _elsewhere()
            _say_once(f"{place} {flaw}, so the compiled kernels are kept in {cache}")
            break
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        (cache / name).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise unkept(cache / name, error) from error
    return cache / name


def exposed(path: Path) -> str | None:
    """Returns the reason why others may write a file or a folder; None: only this user or root can, or it does not exist."""
    if not os.path.lexists(path):
        return None
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):  # it may lead elsewhere the next time
        return "is a link"
    if found.st_uid not in (os.geteuid(), 0):
        return "belongs to another user"
    return "can be written by others" if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else None


def _elsewhere() -> Path:
    """A folder of this user's for temporary files."""
    place = Path(tempfile.gettempdir()) / f"nurec_lite-{os.geteuid()}"
    with suppress(FileExistsError):
        place.mkdir(mode=0o700)
    return place if exposed(place) is None else Path(tempfile.mkdtemp(prefix="nurec_lite-"))


def unkept(folder: Path, error: OSError) -> BuildError:
    return BuildError(
        f"the compiled kernels cannot be kept in {folder} ({error.strerror}): set NUREC_LITE_CACHE to a folder that "
        "can be written, or run with ops=reference"
    )


@contextmanager
def alone(
    path: Path,
    what: str = "the kernels",  # that this block compiles
) -> Iterator[int]:
    """Block that holds the lock, after another process has released it; yields its file descriptor."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process compiles {what}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield file.fileno()
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # also for processes that the compiler may have left running
