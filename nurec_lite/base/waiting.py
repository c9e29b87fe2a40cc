# SPDX-License-Identifier: Apache-2.0
"""Processes that a command starts early, one of a kind, for work that comes later.

Threads would wait for each other, and for the kernels and the first scene: all of them queue small operators, and one at a time holds
Python's lock.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import enumerate as enumerate_threads
from typing import TypeVar

from nurec_lite.base.helper import Helper
from nurec_lite.base.pool import in_threads, with_workers
from nurec_lite.base.processes import Kind, in_processes
from nurec_lite.base.threads import cores

T = TypeVar("T")
R = TypeVar("R")
EARLY = "early "  # how the names of a command's first threads begin
ENOUGH, MOST = 4, 8  # least cores for such processes, and the most threads or processes that one of them uses
FEW = 8  # items that are not worth a process

_waiting: dict[Kind, Helper] = {}
_sharing: list[int] = []  # processes that this process may use: only in one that waited, where no other thread computes


def begin(
    kind: Kind,
    load: Callable[[], None],  # done by the process while it waits, such as imports
) -> None:
    """Starts a process, where there are enough cores. No other thread may compute meanwhile, as the process would wait for ever for a lock
    of that thread; the threads that began with the command end first."""
    if cores() < ENOUGH or kind in _waiting:
        return
    await_first_threads()
    _waiting[kind] = Helper(kind, load)


def await_first_threads() -> None:
    """Waits for the threads that began with the command."""
    for thread in enumerate_threads():
        if thread.name.startswith(EARLY):
            thread.join()


def take(kind: Kind) -> Helper | None:
    """The process, if one waits. The caller closes it."""
    return _waiting.pop(kind, None)


def end(kind: Kind) -> None:
    """Ends the process, if one still waits."""
    helper = take(kind)
    if helper is not None:
        helper.close()


def done_apart(
    kind: Kind,
    work: "partial[R]",  # is pickled
) -> R:
    """The result of the work, by the process if one waits."""
    helper = take(kind)
    if helper is None:
        return work()
    try:
        return helper.result(partial(_in_threads, work, _workers()), work)
    finally:
        helper.close()


def _workers() -> int:
    """Threads or processes that one of them may use."""
    return max(1, min(MOST, cores() // 2 - 1))


def shared_out(function: Callable[[T], R], items: Sequence[T], kind: Kind, few: int = FEW) -> Iterator[R]:
    """Results of the function for each item, in order: by processes of a process that waited, which need no lock of Python's for their
    small operators; elsewhere in threads. Results, though not items, are pickled."""
    if not _sharing or _sharing[-1] == 1 or len(items) < few:
        yield from in_threads(function, items)
    else:
        for result in in_processes([partial(function, item) for item in items], _sharing[-1], kind):
            yield result()


def _in_threads(work: Callable[[], R], threads: int) -> R:
    with with_workers(threads), _shares(threads):
        return work()


@contextmanager
def _shares(processes: int) -> Iterator[None]:
    _sharing.append(processes)
    try:
        yield
    finally:
        _sharing.pop()
