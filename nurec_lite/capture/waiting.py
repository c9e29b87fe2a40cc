# SPDX-License-Identifier: Apache-2.0
"""Processes that wait for the capture of a command: one searches it for tracks, one checks it.

Threads of the first process would wait for each other, and for the kernels and the first scene: all of them queue small operators, and one
at a time holds Python's lock.
"""

from collections.abc import Callable
from functools import partial
from threading import enumerate as enumerate_threads
from typing import TypeVar

from nurec_lite.base.helper import Helper
from nurec_lite.base.pool import with_workers
from nurec_lite.base.processes import Kind
from nurec_lite.base.threads import cores

R = TypeVar("R")
EARLY = "early "  # how the names of a command's first threads begin
ENOUGH, MOST = 4, 8  # least cores for the processes, and the most threads or processes that one of them uses
SEARCHER = Kind("the process that searches the capture", replaced=0, patience=600)
CHECKER = Kind("the process that checks the capture", replaced=0, patience=120, parents=True)

_waiting: dict[Kind, Helper] = {}


def begin_helpers() -> None:
    """Starts the processes, where there are enough cores. No other thread may compute meanwhile, as a process would wait for ever for a
    lock of that thread; the threads that began with the command end first."""
    if cores() < ENOUGH:
        return
    for thread in enumerate_threads():
        if thread.name.startswith(EARLY):
            thread.join()
    for kind, load in ((SEARCHER, _load_search), (CHECKER, _load_checks)):
        if kind not in _waiting:
            _waiting[kind] = Helper(kind, load)


def take_checker() -> Helper | None:
    """The process that checks, if one waits. The caller closes it."""
    return _waiting.pop(CHECKER, None)


def search_apart(
    search: "partial[R]",  # is pickled
) -> R:
    """The result of a search of the capture, by the process if one waits."""
    helper = _waiting.pop(SEARCHER, None)
    if helper is None:
        return search()
    try:
        return helper.result(partial(_in_threads, search, workers()), search)
    finally:
        helper.close()


def end_search() -> None:
    """Ends the process that searches, if it still waits: a capture with tracks needs no search."""
    helper = _waiting.pop(SEARCHER, None)
    if helper is not None:
        helper.close()


def workers() -> int:
    return max(1, min(MOST, cores() // 2 - 1))


def _in_threads(search: Callable[[], R], threads: int) -> R:
    with with_workers(threads):
        return search()


def _load_search() -> None:
    import scipy.ndimage
    import scipy.optimize
    import scipy.sparse.csgraph
    import scipy.spatial  # noqa: F401  where the search imports them, all others wait

    import nurec_lite.capture.tracking.found  # noqa: F401


def _load_checks() -> None:
    import scipy.spatial  # noqa: F401

    import nurec_lite.capture.checks.trust  # noqa: F401
