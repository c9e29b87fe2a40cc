# SPDX-License-Identifier: Apache-2.0
"""A process that is forked early, and that forks others later: the more memory a process has, the longer its forks take.

On a host with a GPU a fork of the process that trains takes 25 ms, and all its threads stand still; one of a small process takes 2 ms.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from socket import socket, socketpair
from typing import Any, Protocol

from nurec_lite.base.handed_over import hand_over, receive
from nurec_lite.base.processes import Ahead, Kind
from nurec_lite.base.shared_memory import SharedMemory
from nurec_lite.base.threads import cores
from nurec_lite.base.waiting import ENOUGH, await_first_threads

LEAD = 4  # results that come before they are asked for
SERVER = Kind("the process that starts loader processes", replaced=0, patience=120, parents=True)


class Numbered(Protocol):
    """Results that are asked for in order."""

    def result(self, n: int) -> Any: ...

    def close(self) -> None: ...


class ForkServer:
    """Does one work after another."""

    def __init__(self) -> None:
        self._next, self.parent = 0, os.getpid()
        theirs, self._line = socketpair()
        self.process = Ahead(_Service(theirs), 0, count=1, ahead=LEAD, kind=SERVER)
        self._memory: SharedMemory | None = None
        theirs.close()

    def memory(self, size: int) -> SharedMemory:
        """Returns memory of at least so many bytes for the results of a work: that of the work before, if it suffices."""
        if self._memory is None or len(self._memory.array) < size:
            before, self._memory = self._memory, SharedMemory(size)
            if before is not None:
                before.close()
        return self._memory

    def begin(
        self,
        make: Callable[..., Ahead],  # gets the files, in the other process; is pickled
        count: int,  # results, at least one
        files: Sequence[int],
    ) -> "_Elsewhere":
        """Begins a work. One that cannot be sent is an error."""
        with suppress(ConnectionError):  # it is dead, which the first result tells
            hand_over(self._line, (make, count), files)
        first, self._next = self._next, self._next + count
        return _Elsewhere(self, first, count)

    def close(self) -> None:
        """Ends the process, and those that it has started."""
        self.process.close()
        self._line.close()
        if self._memory is not None:
            self._memory.close()


class _Service:
    """The work of the process."""

    def __init__(self, line: socket) -> None:
        self._line, self._parent = line, os.getpid()
        self._made: Ahead | None = None
        self._done, self._count = 0, 0

    def __call__(self, _: int) -> Any:
        """The next result; None where this process cannot do the work, or is the parent, as there is no other process left."""
        if os.getpid() == self._parent:
            return None
        if self._done == self._count:
            try:
                self._begin()
            except Exception:  # its parts are unknown here, or the parent has ended
                return None
        assert self._made is not None
        self._done += 1
        return self._made.result(self._done - 1)

    def _begin(self) -> None:
        if self._made is not None:
            self._made.leave()
        self._made = None  # its jobs and their memory are freed while this waits
        (make, count), files = receive(self._line)
        self._made = make(*files)
        self._done, self._count = 0, count


class _Elsewhere:
    """A work that a server does. The server waits again when the work is closed; one that is left before its end costs the server, and so
    does an error."""

    def __init__(self, server: ForkServer, first: int, count: int) -> None:
        self._server, self._first, self._count = server, first, count
        self._ended = self._closed = False

    def result(self, n: int) -> Any:
        """The result; None where the server cannot go on. Raises as the work does."""
        found = self._server.process.result(self._first + n)
        self._ended = found is not None and n == self._count - 1
        return found

    def close(self) -> None:
        """Frees the memory of the results for the next work."""
        if self._closed:
            return
        self._closed = True
        if self._ended:
            _waiting.append(self._server)
        else:
            self._server.close()


_waiting: list[ForkServer] = []


def begin_forks() -> None:
    """Starts a server, where there are enough cores. No other thread may compute meanwhile, as for `waiting.begin`."""
    if cores() < ENOUGH or _waiting:
        return
    await_first_threads()
    _waiting.append(ForkServer())


def take_server() -> ForkServer | None:
    """The server, if one waits."""
    if not _waiting or _waiting[-1].parent != os.getpid():
        return None
    return _waiting.pop()


def end_forks() -> None:
    """Ends the server, if one waits."""
    while _waiting:
        _waiting.pop().close()
