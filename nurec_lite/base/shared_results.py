# SPDX-License-Identifier: Apache-2.0
"""Results of many jobs, in order, from processes that leave large arrays in memory which they share with this one.

Threads that decode hold Python's lock for a part of their time, and a training step asks for it at every operator: with 16 of them a step
took 75 instead of 4 ms. Processes have locks of their own, and a pipe carries a few hundred bytes of a result.
"""

import logging
import mmap
import pickle
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from nurec_lite.base.fork_server import LEAD, Numbered, take_server
from nurec_lite.base.pickled import dumps
from nurec_lite.base.processes import LOADERS, Ahead
from nurec_lite.base.shared_memory import Memory, mapped
from nurec_lite.base.transfer import page_locked

AHEAD = 2  # jobs of a process: one is done while the other one's result waits
ALIGNED = 64  # bytes
R = TypeVar("R")
Sent = tuple[bytes, list[slice]]  # a pickled value, and where in the shared memory its arrays stand
log = logging.getLogger(__name__)


class _InOrder(Ahead):
    """Results in the order of the jobs, up to the last one."""

    def __init__(self, work: Callable[[int], Sent], jobs: int, count: int, at_once: bool) -> None:
        self._jobs = jobs
        super().__init__(work, 0, count, AHEAD, LOADERS, at_once)

    def _more(self, n: int) -> bool:
        return self._next < self._jobs and super()._more(n)


@dataclass(frozen=True)
class _Jobs:
    """Jobs, and the size of the memory for their results."""

    jobs: Sequence[Callable[[], Any]]
    processes: int
    room: int  # bytes for a result

    @property
    def rooms(self) -> int:
        """Results that may stand in the memory at a time."""
        return AHEAD * self.processes + LEAD

    @property
    def size(self) -> int:
        """Bytes of the memory."""
        return self.rooms * self.room

    def begun_in(self, shared: Memory, at_once: bool = True) -> Ahead:
        """Starts processes that do the jobs."""

        def work(n: int) -> Sent:
            return _sent(self.jobs[n](), shared, n % self.rooms * self.room, self.room)

        return _InOrder(work, len(self.jobs), self.processes, at_once)

    def begun_in_file(self, number: int) -> Ahead:
        """Does the same with the memory in an open file, which it closes. The first result does not wait for the start of all processes,
        10 ms each."""
        with open(number, "r+b") as file:
            return self.begun_in(mapped(file.fileno(), self.size), at_once=False)


Begun = tuple[Numbered, Memory]


def shared_results(
    jobs: Sequence[Callable[[], R]],
    processes: int,
    most: int,  # room in bytes for the arrays of a result; larger ones go through a pipe
    for_gpu: bool = False,  # whether results are copied to a GPU
) -> Generator[R, None, None]:
    """The results, or the error of a job where its result would be. Arrays of a result are valid until the next one is asked for. A fork
    server starts the processes if one waits and the jobs can be pickled, else this process does."""
    if jobs:
        work = _work_of(jobs, processes, most)
        yield from _results(work, _begun_elsewhere(work, for_gpu), for_gpu)


class EarlyResults(Generic[R]):
    """Results as by `shared_results` that a fork server has begun already."""

    def __init__(self, work: _Jobs, begun: Begun, for_gpu: bool) -> None:
        self._done, self.jobs = begun[0], work.jobs
        self.results: Generator[R, None, None] = _results(work, begun, for_gpu)

    @classmethod
    def begun(
        cls, jobs: Sequence[Callable[[], R]], processes: int, most: int, for_gpu: bool = False
    ) -> "EarlyResults[R] | None":
        """Begins the jobs. None where no fork server can do it."""
        work = _work_of(jobs, processes, most)
        begun = _begun_elsewhere(work, for_gpu) if jobs else None
        return None if begun is None else cls(work, begun, for_gpu)

    def close(self) -> None:
        self.results.close()
        self._done.close()  # of results that nobody has asked for


def _work_of(jobs: Sequence[Callable[[], Any]], processes: int, most: int) -> _Jobs:
    return _Jobs(jobs, min(processes, len(jobs)), (1 + most // mmap.PAGESIZE) * mmap.PAGESIZE)


def _results(work: _Jobs, begun: Begun | None, for_gpu: bool) -> Generator[Any, None, None]:
    """The results of a server as far as they come, and those of this process for the rest."""
    came = 0
    if begun is not None:
        with closing(_values(*begun, len(work.jobs))) as values:
            for value in values:
                came += 1
                yield value
    rest = work.jobs[came:]
    if rest:
        here = replace(work, jobs=rest, processes=min(work.processes, len(rest)))
        done, shared = _begun_here(here)
        with page_locked(shared, for_gpu):
            yield from _values(done, shared, len(rest))


def _values(done: Numbered, shared: Memory, count: int) -> Generator[Any, None, None]:
    """The results, up to the first one that cannot be made so."""
    with closing(done):
        for n in range(count):
            sent = done.result(n)
            if sent is None:
                return
            text, places = sent
            yield pickle.loads(text, buffers=[shared[place] for place in places])


def _begun_here(work: _Jobs) -> Begun:
    shared = np.frombuffer(mmap.mmap(-1, work.size), np.uint8)
    return work.begun_in(shared), shared


def _begun_elsewhere(work: _Jobs, for_gpu: bool) -> Begun | None:
    """Lets a server start the processes. None if there is none, or the jobs cannot be sent."""
    server = take_server()
    if server is None:
        return None
    try:
        memory = server.memory(work.size)
        done = server.begin(work.begun_in_file, len(work.jobs), [memory.file])
        if for_gpu:
            memory.lock()  # while they begin
        return done, memory.array
    except Exception as error:
        log.debug("this process forks others itself", exc_info=error)
        server.close()
        return None


def _sent(value: Any, shared: Memory, at: int, room: int) -> Sent:
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
