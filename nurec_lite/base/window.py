# SPDX-License-Identifier: Apache-2.0
"""Results that steps need, in memory with a bound: of those that do not fit, the ones that are needed last are made again."""

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
AHEAD = 0.0625  # share of the bound for results that no step has used yet, once the window is full


@dataclass(frozen=True)
class Needs(Generic[K]):
    """Keys that steps need."""

    of: Callable[[int], Sequence[K]]  # a step's
    horizon: int  # steps to look ahead, in which each key comes at least once


@dataclass(frozen=True)
class Bound(Generic[K]):
    """Memory of a window."""

    most: int  # bytes of all results, also of those that threads are making
    size: Callable[[K], int]  # bytes of a result before it is made, about
    in_use: int  # steps after its use in which a result keeps its memory


@dataclass
class _Held(Generic[R]):
    """A result, or the work on it."""

    result: Future[R]
    bytes: int
    used: float = -inf  # last step with it


class Window(Generic[K, R]):
    """Results by key. Threads make them in the order of need, ahead of the steps. If memory lacks, the result that is needed last
    is dropped (Belady, A study of replacement algorithms for a virtual-storage computer, 1966). The later a result is given up, the more
    have become the better choice by their use, so a small share of the window works ahead. All methods are for one thread."""

    def __init__(
        self,
        work: Callable[[K], R],
        needs: Needs[K],
        bound: Bound[K],
        measure: Callable[[R], int],  # bytes of a result
        drop: Callable[[R], None],  # called before a result is given up
    ) -> None:
        self._work, self._needs, self._bound, self._measure, self._drop = work, needs, bound, measure, drop
        self.bytes = self.made = 0
        self._unused = 0  # bytes of results that no step has used yet
        self._held: dict[K, _Held[R]] = {}
        self._sizes: dict[K, int] = {}  # of results made before
        self._unweighed: set[K] = set()  # results with the bytes that were expected
        self._uses: dict[K, deque[int]] = {}  # steps of the horizon, by key
        self._last: list[tuple[float, int, K]] = []  # heap of results out of use: the one that is needed last first
        self._pushed = 0
        self._step = self._ahead = -2  # the present step; the first one that lacks a result
        self._open = ExitStack()
        self._pool = self._open.enter_context(thread_pool())

    def at(self, step: int) -> None:
        """Moves to a step: gives up results and begins others."""
        if step == self._step:
            return
        if step == self._step + 1:
            self._follow(step)
        else:
            self._restart(step)
        self._shrink()
        self._fill()

    def of(self, key: K) -> R:
        """Returns a result that the present step needs; an error of the work is raised here."""
        if key not in self._held:
            return self._work(key)
        held = self._held[key]
        result = held.result.result()
        self._weigh(key, held)
        self._unused -= held.bytes if held.used == -inf else 0
        held.used = self._step
        return result

    def close(self) -> None:
        """Ends the threads and gives up all results."""
        for held in self._held.values():
            held.result.cancel()
        self._open.close()
        self._held.clear()

    def _restart(self, step: int) -> None:
        self._step = self._ahead = step
        self._uses = {}
        for later in range(step, step + self._needs.horizon):
            self._note(later)
        self._last = []
        for key, held in self._held.items():
            held.used = min(held.used, step - self._bound.in_use - 1)
            self._push(key)

    def _follow(self, step: int) -> None:
        self._step, self._ahead = step, max(self._ahead, step)
        self._note(step + self._needs.horizon - 1)
        for key in self._needs.of(step - 1):
            self._uses[key].popleft()
        free = step - self._bound.in_use - 1
        for key in self._needs.of(free) if free >= 0 else ():
            if key in self._held:
                self._push(key)

    def _note(self, step: int) -> None:
        for key in self._needs.of(step):
            self._uses.setdefault(key, deque()).append(step)

    def _push(self, key: K) -> None:
        self._pushed += 1
        heapq.heappush(self._last, (-self._next(key), self._pushed, key))

    def _next(self, key: K) -> float:
        """Next step with the key, also the present one."""
        uses = self._uses.get(key)
        return uses[0] if uses else inf

    def _weigh(self, key: K, held: _Held[R]) -> None:
        """Puts the bytes of a result in the place of those that were expected."""
        if key in self._unweighed:
            self._unweighed.remove(key)
            before, held.bytes = held.bytes, self._measure(held.result.result())
            self._sizes[key] = held.bytes
            self.bytes += held.bytes - before
            self._unused += held.bytes - before

    def _shrink(self) -> None:
        """Gives up results, the one that is needed last first, if they are larger than expected and exceed the bound."""
        for key in [key for key in self._unweighed if self._held[key].result.done()]:
            if self._held[key].result.exception() is None:
                self._weigh(key, self._held[key])
            self._unweighed.discard(key)
        while self.bytes > self._bound.most:
            rest = [key for key, held in self._held.items() if held.used < self._step - self._bound.in_use]
            if not rest:
                return
            last = max(rest, key=self._next)
            self._give_up(last, self._held[last])
            self._ahead = self._step

    def _fill(self) -> None:
        while self._ahead < self._step + self._needs.horizon:
            for key in self._needs.of(self._ahead):
                size = self._sizes.get(key) or self._bound.size(key)
                if key in self._held:
                    continue
                if not self._has_room(size):
                    return
                self._held[key] = _Held(self._pool.submit(self._work, key), size)
                self._unweighed.add(key)
                self.bytes, self._unused, self.made = self.bytes + size, self._unused + size, self.made + 1
            self._ahead += 1

    def _has_room(self, size: int) -> bool:
        """Drops results that are needed later than the missing one, until so many bytes are free."""
        while self.bytes + size > self._bound.most:
            early = self._unused + size > AHEAD * self._bound.most and self._ahead > self._step + 1
            if early or not self._last or -self._last[0][0] <= self._ahead:
                return False
            later, _, key = heapq.heappop(self._last)
            held = self._held.get(key)
            out_of_use = held is not None and held.used < self._step - self._bound.in_use
            if held is not None and out_of_use and -later == self._next(key):
                self._give_up(key, held)
        return True

    def _give_up(self, key: K, held: _Held[R]) -> None:
        del self._held[key]
        self._unweighed.discard(key)
        self.bytes -= held.bytes
        self._unused -= held.bytes if held.used == -inf else 0
        if not held.result.cancel() and held.result.exception() is None:
            self._drop(held.result.result())
