# SPDX-License-Identifier: Apache-2.0
"""Processes that work ahead, and that may die: another one takes over the work of a dead one; if none is left, the work is done here.

They share nothing that a dead one could hold: each has a pipe of its own, and a thread that reads it. torch's DataLoader raises from a
signal handler, anywhere in a step, when one of its processes is killed, and waits for ever for one that is stopped.
"""

import atexit
import ctypes
import logging
import multiprocessing
import os
import pickle
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from nurec_lite.base.aside import go_on
from nurec_lite.base.errors import UserError
from nurec_lite.base.left_out import cause_of
from nurec_lite.base.pickled import dumps

WAIT = 1.0  # seconds between two checks of a process whose result is needed now
PATIENCE = 30  # looks until a silent process is given up; a loaded machine decodes an image in a fraction of this
STOPPED = 3  # looks until a stopped process is given up
OVERTAKEN = 5  # looks until a process is given up that still works while most others have nothing to do
MOST = 10  # processes that are replaced at most; a machine that ends more lacks memory for them
_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
_KEPT = 1 << 26  # bytes: more than an image of 1920x1080 needs during its decoding
R = TypeVar("R")
_ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
log = logging.getLogger("nurec_lite")


@dataclass(frozen=True)
class Kind:
    """Processes of one purpose."""

    name: str  # of one of them
    replaced: int = MOST  # how many are replaced
    patience: int = PATIENCE  # looks
    parents: bool = False  # whether they start processes of their own
    alike: bool = False  # whether all works take about as long, so that OVERTAKEN holds


LOADERS = Kind("a loader process", alike=True)


class _Process:
    """One process, its open work, and the thread that receives its answers."""

    def __init__(
        self,
        work: Callable[[int], Any],
        answers: "queue.SimpleQueue[tuple[_Process, bytes | None]]",
        parent: bool,  # whether it starts processes of its own
    ) -> None:
        context = multiprocessing.get_context("fork")
        self.owes: set[int] = set()
        self._connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work, os.getpid()), daemon=not parent)
        with _held_back(_ALL):
            self.process.start()
        theirs.close()
        self._thread = threading.Thread(target=self._receive, args=(answers,), daemon=True)
        self._thread.start()

    def _receive(self, answers: "queue.SimpleQueue[tuple[_Process, bytes | None]]") -> None:
        try:
            while True:
                answers.put((self, self._connection.recv_bytes()))
        except (EOFError, OSError):
            answers.put((self, None))

    def ask(self, n: int) -> None:
        self.owes.add(n)
        try:
            self._connection.send(n)
        except OSError:  # it is dead, which the thread tells
            return

    def stopped(self) -> bool:
        try:
            return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
        except OSError:
            return False

    def end(self) -> None:
        """Ends the process at any point of its work: it holds nothing of value. Its memory takes the system 0.1 s to free."""
        self.process.kill()
        self.process.join()
        self._thread.join()
        self._connection.close()


class Ahead:
    """Results of `work` for the numbers from `first` on, computed ahead in processes."""

    def __init__(
        self,
        work: Callable[[int], Any],
        first: int,
        count: int,
        ahead: int,  # numbers for each process
        kind: Kind = LOADERS,
        # all processes begin now, as a fork wants no thread that computes; False: one does, and others while a result is awaited
        at_once: bool = True,
    ) -> None:
        self._work, self._next, self._kind = work, first, kind
        self._answers: queue.SimpleQueue[tuple[_Process, bytes | None]] = queue.SimpleQueue()
        self._ready: dict[int, bytes] = {}
        self._lost, self._closed = 0, False
        self.members: list[_Process] = []
        atexit.register(self.close)  # before multiprocessing waits for one that is stopped
        self._ahead, self._most = 0, count * ahead
        self._to_start, self._each = count, ahead if at_once else 1
        while self._to_start > (0 if at_once else count - 1):
            self._start_another(first)

    def result(self, n: int) -> Any:
        """Returns a result; raises the error of its work, or CancelledError if another thread closes all meanwhile, or
        wants no result any more."""
        self._fill(n)
        silent = 0
        while n not in self._ready:
            go_on()
            if self._closed:
                raise CancelledError
            if self._to_start and self.members:
                self._start_another(n)
                self._take(0)
                continue
            owing = next((member for member in self.members if n in member.owes), None)
            if owing is None:
                return self._work(n)
            silent = 0 if self._take(WAIT) else silent + 1
            if self._gives_up(owing, silent):
                owing.process.kill()
            self._fill(n)
        value, error = pickle.loads(self._ready.pop(n))
        if error is not None:
            raise error
        return value

    def _gives_up(self, owing: _Process, silent: int) -> bool:
        """Whether a process is given up, after so many looks without any answer."""
        if silent >= self._kind.patience or (silent >= STOPPED and owing.stopped()):
            return True
        idle = sum(not member.owes for member in self.members)
        return self._kind.alike and silent >= OVERTAKEN and 2 * idle > len(self.members)

    def _start_another(self, n: int) -> None:
        """Starts one more process, which works on numbers from `n` on while the next one starts. Where the system has none left, it is the
        last one."""
        self._to_start = self._to_start - 1 if self._start() else 0
        self._ahead = self._ahead + self._each if self._to_start else self._most
        self._fill(n)

    def _start(self) -> bool:
        """Starts a process; returns whether the system had one left."""
        try:
            self.members.append(_Process(self._work, self._answers, self._kind.parents))
        except (OSError, RuntimeError) as error:  # of a process, a pipe or a thread
            log.warning("%s cannot be started (%s); %s", self._kind.name, cause_of(error), self._rest())
            return False
        return True

    def _rest(self) -> str:
        return f"{len(self.members)} go on" if self.members else "this process does their work from now on"

    def _fill(self, n: int) -> None:
        while self._more(n):
            self._give([self._next])
            self._next += 1

    def _more(self, n: int) -> bool:
        return self._next < n + self._ahead

    def _give(self, numbers: list[int]) -> None:
        for n in numbers if self.members else ():
            min(self.members, key=lambda member: len(member.owes)).ask(n)

    def _take(self, wait: float) -> bool:
        """Takes in an answer; returns whether one came within so many seconds."""
        try:
            member, answer = self._answers.get(timeout=wait)
        except queue.Empty:
            return False
        if answer is None:
            self._replace(member)
        else:
            n = int.from_bytes(answer[:8], "little")
            member.owes.discard(n)
            self._ready[n] = answer[8:]
        return True

    def _replace(self, member: _Process) -> None:
        if self._closed:
            return
        member.end()
        self.members.remove(member)
        self._lost += 1
        if self._lost <= self._kind.replaced:
            self._start()
        log.warning("%s ended (%s); %s", self._kind.name, _end_of(member.process.exitcode), self._rest())
        self._give(sorted(member.owes))

    def close(self) -> None:
        """Ends the processes, and waits for their end."""
        _end(self._killed())

    def leave(self) -> None:
        """Ends the processes. A thread waits for their end."""
        members = self._killed()
        try:
            threading.Thread(target=_end, args=(members,), daemon=True).start()
        except RuntimeError:  # the system has no thread left
            _end(members)

    def _killed(self) -> list[_Process]:
        """The processes, all killed, so that the system frees the memory of all at a time."""
        atexit.unregister(self.close)
        self._closed = True
        members, self.members = self.members, []
        for member in members:
            member.process.kill()
        return members


def _end(members: Iterable[_Process]) -> None:
    for member in members:
        member.end()


class _Jobs(Ahead):
    """Jobs for processes: each process gets another job when it has done one."""

    def __init__(self, jobs: Sequence[Callable[[], Any]], count: int, kind: Kind) -> None:
        self._count = len(jobs)
        super().__init__(lambda n: jobs[n](), 0, min(count, len(jobs)), 1, kind)

    def _more(self, n: int) -> bool:
        return self._next < self._count and any(not member.owes for member in self.members)


def in_processes(jobs: Sequence[Callable[[], R]], count: int, kind: Kind) -> Iterator[Callable[[], R]]:
    """Calls, in the order of the jobs, that return their results or raise their errors. The jobs are done by so many processes."""
    done = _Jobs(jobs, count, kind)
    try:
        for n in range(len(jobs)):
            yield partial(done.result, n)
    finally:
        done.leave()  # the next ones need not wait for the memory of these


@contextmanager
def _held_back(numbers: Iterable[signal.Signals]) -> Iterator[None]:
    """Block that holds signals back until its end. A process that is forked in it begins with them held back, too."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_of(code: int | None) -> str:
    return f"code {code}" if code is None or code >= 0 else f"by {signal.Signals(-code).name}"


def _serve(connection: Any, work: Callable[[int], Any], parent: int) -> None:
    """Answers the parent until the parent ends this process or dies. Signals to the whole group are for the parent: they wait from the
    first instruction of this process on, and are dropped here."""
    for number in _ALL:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ALL)
    library = ctypes.CDLL(None)
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _keep_freed_memory(library)
    torch.set_num_threads(1)  # those of the parent do not exist here
    try:
        while os.getppid() == parent:
            n = connection.recv()
            connection.send_bytes(n.to_bytes(8, "little") + _answer(work, n))
    except (EOFError, OSError):
        return


def _keep_freed_memory(library: ctypes.CDLL) -> None:
    """Uses freed memory again. glibc gives large blocks back to the system, and page faults then take a third of a frame's decoding."""
    if hasattr(library, "mallopt"):
        for option in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            library.mallopt(option, _KEPT)


def _answer(work: Callable[[int], Any], n: int) -> bytes:
    """Pickled (value, None) or (None, error); errors that a user can mend have no trace."""
    try:
        return dumps((work(n), None))
    except Exception as error:
        if not isinstance(error, UserError):
            error.add_note(f"in another process:\n{traceback.format_exc()}")
        return _pickled(error)


def _pickled(error: Exception) -> bytes:
    """Returns the error in bytes; a RuntimeError with its trace if it cannot be pickled and made again."""
    try:
        data = pickle.dumps((None, error), protocol=5)
        pickle.loads(data)
        return data
    except Exception:
        return pickle.dumps((None, RuntimeError("".join(traceback.format_exception(error)))))
