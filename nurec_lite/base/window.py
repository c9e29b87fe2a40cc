# SPDX-License-Identifier: Apache-2.0
"""A cache of results that steps need, in memory with a budget: of those that do not fit, the ones that are needed last are made again."""

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from nurec_lite.base.pool import thread_pool

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")
PREFETCH_SHARE = 0.0625  # share of the budget for results that no step has used yet, once the window is full


@dataclass(frozen=True)
class Schedule(Generic[K]):
    """The keys that each step needs."""

    keys_of: Callable[[int], Sequence[K]]  # a step's
    horizon: int  # steps to look ahead; each key comes at least once in them


@dataclass(frozen=True)
class Budget(Generic[K]):
    """The memory of a window."""

    max_bytes: int  # bytes of all results, also of those that threads are making
    size: Callable[[K], int]  # bytes of a result before it is made, about
    in_use: int  # further steps that a result keeps its memory after its use


@dataclass
class _Entry(Generic[R]):
    """A result, or the work on it, in the cache."""

    result: Future[R]
    bytes: int
    used: float = -inf  # last step with it


class Window(Generic[K, R]):
    """Results by key. Threads make them in the order of need, ahead of the steps. If memory lacks, the result that is needed last
    is dropped (Belady, A study of replacement algorithms for a virtual-storage computer, 1966). The later an eviction
    happens, the better the choice, so only a small share of the window works ahead. All methods are for one thread."""

    def __init__(
        self,
        work: Callable[[K], R],
        schedule: Schedule[K],
        budget: Budget[K],
        measure: Callable[[R], int],  # bytes of a result
        on_evict: Callable[[R], None],  # called before a result is evicted
    ) -> None:
        self._work, self._schedule, self._budget, self._measure, self._on_evict = (
            work,
            schedule,
            budget,
            measure,
            on_evict,
        )
        self.bytes = self.made = 0
        self._unused = 0  # bytes of results that no step has used yet
        self._entries: dict[K, _Entry[R]] = {}
        self._sizes: dict[K, int] = {}  # of results made before
        self._estimated: set[K] = set()  # results with estimated bytes
        self._uses: dict[K, deque[int]] = {}  # steps of the horizon, by key
        self._candidates: list[
            tuple[float, int, K]
        ] = []  # heap of results that may be evicted: the one that is needed last first
        self._pushes = 0
        self._step = self._ahead = -2  # the present step; the first one that lacks a result
        self._open = ExitStack()
        self._pool = self._open.enter_context(thread_pool())

    def at(self, step: int) -> None:
        """Moves to a step: evicts results and begins others."""
        if step == self._step:
            return
        if step == self._step + 1:
            self._advance(step)
        else:
            self._restart(step)
        self._evict_excess()
        self._prefetch()

    def of(self, key: K) -> R:
        """Returns a result that the present step schedule; an error of the work is raised here."""
        if key not in self._entries:
            return self._work(key)
        entry = self._entries[key]
        result = entry.result.result()
        self._replace_estimate(key, entry)
        self._unused -= entry.bytes if entry.used == -inf else 0
        entry.used = self._step
        return result

    def close(self) -> None:
        """Ends the threads and drops all results."""
        for entry in self._entries.values():
            entry.result.cancel()
        self._open.close()
        self._entries.clear()

    def _restart(self, step: int) -> None:
        self._step = self._ahead = step
        self._uses = {}
        for later in range(step, step + self._schedule.horizon):
            self._add_uses(later)
        self._candidates = []
        for key, entry in self._entries.items():
            entry.used = min(entry.used, step - self._budget.in_use - 1)
            self._push(key)

    def _advance(self, step: int) -> None:
        self._step, self._ahead = step, max(self._ahead, step)
        self._add_uses(step + self._schedule.horizon - 1)
        for key in self._schedule.keys_of(step - 1):
            self._uses[key].popleft()
        free = step - self._budget.in_use - 1
        for key in self._schedule.keys_of(free) if free >= 0 else ():
            if key in self._entries:
                self._push(key)

    def _add_uses(self, step: int) -> None:
        for key in self._schedule.keys_of(step):
            self._uses.setdefault(key, deque()).append(step)

    def _push(self, key: K) -> None:
        self._pushes += 1
        heapq.heappush(self._candidates, (-self._next_use(key), self._pushes, key))

    def _next_use(self, key: K) -> float:
        """Next step with the key, also the present one."""
        uses = self._uses.get(key)
        return uses[0] if uses else inf

    def _replace_estimate(self, key: K, entry: _Entry[R]) -> None:
        """Replaces the estimated bytes of a result by its true ones."""
        if key in self._estimated:
            self._estimated.remove(key)
            before, entry.bytes = entry.bytes, self._measure(entry.result.result())
            self._sizes[key] = entry.bytes
            self.bytes += entry.bytes - before
            self._unused += entry.bytes - before

    def _evict_excess(self) -> None:
        """Evicts results, the one that is needed last first, if they are larger than estimated and exceed the budget."""
        for key in [key for key in self._estimated if self._entries[key].result.done()]:
            if self._entries[key].result.exception() is None:
                self._replace_estimate(key, self._entries[key])
            self._estimated.discard(key)
        while self.bytes > self._budget.max_bytes:
            rest = [key for key, entry in self._entries.items() if entry.used < self._step - self._budget.in_use]
            if not rest:
                return
            last = max(rest, key=self._next_use)
            self._evict(last, self._entries[last])
            self._ahead = self._step

    def _prefetch(self) -> None:
        while self._ahead < self._step + self._schedule.horizon:
            for key in self._schedule.keys_of(self._ahead):
                size = self._sizes.get(key) or self._budget.size(key)
                if key in self._entries:
                    continue
                if not self._make_room(size):
                    return
                self._entries[key] = _Entry(self._pool.submit(self._work, key), size)
                self._estimated.add(key)
                self.bytes, self._unused, self.made = self.bytes + size, self._unused + size, self.made + 1
            self._ahead += 1

    def _make_room(self, size: int) -> bool:
        """Evicts results that are needed later than the missing one; returns whether so many bytes are free then."""
        while self.bytes + size > self._budget.max_bytes:
            early = self._unused + size > PREFETCH_SHARE * self._budget.max_bytes and self._ahead > self._step + 1
            if early or not self._candidates or -self._candidates[0][0] <= self._ahead:
                return False
            later, _, key = heapq.heappop(self._candidates)
            entry = self._entries.get(key)
            out_of_use = entry is not None and entry.used < self._step - self._budget.in_use
            if entry is not None and out_of_use and -later == self._next_use(key):
                self._evict(key, entry)
        return True

    def _evict(self, key: K, entry: _Entry[R]) -> None:
        del self._entries[key]
        self._estimated.discard(key)
        self.bytes -= entry.bytes
        self._unused -= entry.bytes if entry.used == -inf else 0
        if not entry.result.cancel() and entry.result.exception() is None:
            self._on_evict(entry.result.result())
