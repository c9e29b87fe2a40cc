# SPDX-License-Identifier: Apache-2.0
"""Results of many jobs, in order, from processes that leave large arrays in memory which they share with this one.

Threads that decode hold Python's lock for a part of their time, and a training step asks for it at every operator: with 16 of them a step
took 75 instead of 4 ms. Processes have locks of their own, and a pipe carries a few hundred bytes of a result.
"""

import mmap
import pickle
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

import numpy as np

from nurec_lite.base.pickled import dumps
from nurec_lite.base.processes import LOADERS, Ahead
from nurec_lite.base.transfer import page_locked

AHEAD = 2  # jobs of a process: one is done while the other one's result waits
ALIGNED = 64  # bytes
R = TypeVar("R")
Sent = tuple[bytes, list[slice]]  # a pickled value, and where in the shared memory its arrays stand


class _InOrder(Ahead):
    """Results in the order of the jobs, up to the last one."""

    def __init__(self, work: Callable[[int], Sent], jobs: int, count: int) -> None:
        self._jobs = jobs
        super().__init__(work, 0, count, AHEAD, LOADERS)

    def _more(self, n: int) -> bool:
        return self._next < self._jobs and super()._more(n)


def shared_results(
    jobs: Sequence[Callable[[], R]],
    processes: int,
    most: int,  # room in bytes for the arrays of a result; larger ones go through a pipe
    for_gpu: bool = False,  # whether results are copied to a GPU
) -> Generator[R, None, None]:
    """The results, or the error of a job where its result would be. Arrays of a result are valid until the next one is asked for."""
    if not jobs:
        return
    count = min(processes, len(jobs))
    room = (1 + most // mmap.PAGESIZE) * mmap.PAGESIZE
    shared = np.frombuffer(mmap.mmap(-1, AHEAD * count * room), np.uint8)

    def work(n: int) -> Sent:
        return _sent(jobs[n](), shared, n % (AHEAD * count) * room, room)

    done = _InOrder(work, len(jobs), count)
    try:
        done.begin()
        with page_locked(shared, for_gpu):
            for n in range(len(jobs)):
                text, places = done.result(n)
                yield pickle.loads(text, buffers=[shared[place] for place in places])
    finally:
        done.close()


def _sent(value: Any, shared: np.ndarray[Any, Any], at: int, room: int) -> Sent:
    """Writes the arrays of a value into its room. Arrays without room stay in the text."""
    places: list[slice] = []

    def kept(buffer: pickle.PickleBuffer) -> bool:
        raw = np.frombuffer(buffer.raw(), np.uint8)
        begin = places[-1].stop if places else at
        begin += -begin % ALIGNED
        if begin + len(raw) > at + room:
            return True  # in the text
        places.append(slice(begin, begin + len(raw)))
        shared[places[-1]] = raw
        return False

    return dumps(value, kept), places
