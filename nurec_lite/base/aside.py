# SPDX-License-Identifier: Apache-2.0
"""Work in a thread of its own while the main thread does something else, ended cleanly where that fails or is interrupted."""

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from threading import Thread, current_thread
from types import TracebackType
from typing import Generic, TypeVar

R = TypeVar("R")


class Aside(Generic[R]):
    """A block with a function that runs in a thread meanwhile. A block that ends without the result, by an error or by Ctrl-C, waits until
    the function reaches its next `go_on()`: no thread computes while a process ends."""

    def __init__(self, function: Callable[[], R]) -> None:
        self._function = function
        self._result: Future[R] = Future()
        self._thread = _Wanted(self._work)

    def __enter__(self) -> "Aside[R]":
        self._thread.start()
        return self

    def result(self) -> R:
        """The result of the function; an error of it is raised here."""
        return self._result.result()

    def wait(self) -> None:
        """Waits for the end of the function, however it ends."""
        self._thread.join()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.wanted = False
        self._thread.join()

    def _work(self) -> None:
        try:
            self._result.set_result(self._function())
        except BaseException as error:
            self._result.set_exception(error)


class _Wanted(Thread):
    wanted = True

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(target=work, name="aside")


def go_on() -> None:
    """Raises CancelledError in background work with a result that is no longer needed; long work calls it between its parts."""
    thread = current_thread()
    if isinstance(thread, _Wanted) and not thread.wanted:
        raise CancelledError
