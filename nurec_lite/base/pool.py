# SPDX-License-Identifier: Apache-2.0
"""Independent work on all of a process's threads at once."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Condition, Lock, Thread, local
from typing import Generic, TypeVar

import torch

from nurec_lite.base.aside import go_on

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K", bound=Hashable)


def in_threads(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Results of the function for each item, in order: as many at a time as torch has threads, with one thread each, so
    that results do not depend on the number of threads.

    Operators on a hundred thousand numbers gain little from several threads, but release Python's lock. Twice as many results as
    threads are held at most. An error of the function is raised where its result would be.
    """
    with _threads() as threads, ThreadPoolExecutor(threads, initializer=_one_thread) as pool:
        yield from _in_order(pool, function, items, 2 * threads)


@contextmanager
def thread_pool(
    workers: int | None = None,  # None: as many as torch has threads
) -> Iterator[ThreadPoolExecutor]:
    """A pool of workers with one thread each."""
    with _threads() as threads, ThreadPoolExecutor(workers or threads, initializer=_one_thread) as pool:
        yield pool


class _Pools:
    """The pools of this process, and torch's number of threads before the first of them."""

    lock = Lock()
    open = 0
    threads = 1
    workers: int | None = None  # of a pool; None: as many as threads
    inside = local()  # has `worker` in a worker of a pool


@contextmanager
def _threads() -> Iterator[int]:
    """The number of workers of a new pool. A worker sets torch's number to 1, which torch takes over for every thread that begins later.
    The last pool that closes sets it back. A pool inside a worker has one worker."""
    with _Pools.lock:
        if not _Pools.open:
            _Pools.threads = torch.get_num_threads()
        _Pools.open += 1
    try:
        yield 1 if hasattr(_Pools.inside, "worker") else (_Pools.workers or _Pools.threads)
    finally:
        with _Pools.lock:
            _Pools.open -= 1
            if not hasattr(_Pools.inside, "worker"):
                torch.set_num_threads(_Pools.threads)


@contextmanager
def with_workers(number: int) -> Iterator[None]:
    """Block with so many workers in each pool of this process. torch's number of threads stays: a forked process has one."""
    before, _Pools.workers = _Pools.workers, number
    try:
        yield
    finally:
        _Pools.workers = before


def _one_thread() -> None:
    _Pools.inside.worker = True
    torch.set_num_threads(1)


def in_parallel(
    function: Callable[[T], R],
    items: Sequence[T],
    device: torch.device,  # where the function computes
) -> Iterator[R]:
    """Yields results as `in_threads` where the CPU computes. For a GPU one thread queues as fast, and libraries make handles only once."""
    return in_threads(function, items) if device.type == "cpu" else map(function, items)


def _in_order(pool: ThreadPoolExecutor, function: Callable[[T], R], items: Iterable[T], most: int) -> Iterator[R]:
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            go_on()
            waiting.append(pool.submit(function, item))
            if len(waiting) == most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


class Together(Generic[T, R]):
    """Joins calls of several threads into one, for functions that are faster on many items. A call waits while another one runs; all
    waiting calls become the next one, in their order."""

    def __init__(self, function: Callable[[Sequence[T]], Sequence[R]]) -> None:
        self._function = function
        self._waiting: list[tuple[T, Future[R]]] = []
        self._coming, self._working = Lock(), Lock()

    def __call__(self, item: T) -> R:
        """Result of the function for the item; an error of it ends all items of the batch."""
        result: Future[R] = Future()
        with self._coming:
            self._waiting.append((item, result))
        with self._working:
            if not result.done():  # another call has taken it along
                self._work()
        return result.result()

    def _work(self) -> None:
        with self._coming:
            taken, self._waiting = self._waiting, []
        try:
            for (_, future), result in zip(taken, self._function([item for item, _ in taken]), strict=True):
                future.set_result(result)
        except BaseException as error:  # waiting threads get the error
            for _, future in taken:
                future.set_exception(error)


class Begun(Generic[K, R]):
    """Results of threads that work while the caller goes on, kept by their items; an early request waits."""

    def __init__(
        self,
        function: Callable[[K], R],
        items: Sequence[K],
        work: Callable[[Callable[[K], R], list[K]], Iterator[R]] | None = None,  # None: threads
        ahead: int | None = None,  # items past the requested ones, until as many were requested; None: all
    ) -> None:
        self._results: dict[K, Future[R]] = {item: Future() for item in items}
        self._place = {item: place for place, item in enumerate(items)}
        self._ahead, self._wanted, self._closed = len(items) if ahead is None else ahead, 0, False
        self._changed = Condition()
        self._thread = Thread(target=self._work, args=(function, work or in_threads), daemon=True)
        self._thread.start()

    def of(self, item: K) -> R:
        """The result; an error of the function at this item, or at one before it, which ended the work."""
        with self._changed:
            self._wanted = max(self._wanted, self._place[item] + 1)
            self._changed.notify_all()
        return self._results[item].result()

    def close(self) -> None:
        """Ends the work after the items that are under way."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self, function: Callable[[K], R], work: Callable[[Callable[[K], R], list[K]], Iterator[R]]) -> None:
        def unless_closed(item: K) -> R:
            self._wait_for_turn(self._place[item])
            return function(item)

        try:
            for item, result in zip(self._results, work(unless_closed, list(self._results)), strict=True):
                self._results[item].set_result(result)
        except BaseException as error:  # the request gets the error
            for future in (f for f in self._results.values() if not f.done()):
                future.set_exception(error)

    def _wait_for_turn(self, place: int) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._wanted >= self._ahead or place < self._wanted + self._ahead
            )
            if self._closed:
                raise CancelledError
