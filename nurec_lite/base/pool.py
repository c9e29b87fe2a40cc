# SPDX-License-Identifier: Apache-2.0
"""Independent work on all of a process's threads at once."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


def in_threads(function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """What the function makes of each item, in order: as many at a time as torch has threads, with one thread each, so that results
    do not depend on how many there are.

    Operators on a hundred thousand numbers gain little from several threads, but release Python's lock. Twice as many results as
    threads are held at most. An error of the function is raised where its result would be.
    """
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from _in_order(pool, function, items, 2 * threads)
    finally:
        torch.set_num_threads(threads)  # also for threads that begin later, such as autograd's


def _in_order(pool: ThreadPoolExecutor, function: Callable[[T], R], items: Sequence[T], most: int) -> Iterator[R]:
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) == most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
