# SPDX-License-Identifier: Apache-2.0
"""One thread that renders for all browsers: the newest request of each wins, and no browser waits longer than the others take."""

import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import Condition, Thread

Key = tuple[Hashable, str]  # a browser, and its kind of picture
log = logging.getLogger("nurec_lite")


@dataclass
class Job:
    due: float  # seconds of the monotonic clock
    work: Callable[[], None]


class Worker:
    """Runs jobs one after another, the longest due first."""

    def __init__(self, idle: Callable[[], None], every: float) -> None:
        """`idle` is done between jobs, as often as every so many seconds."""
        self._jobs: dict[Key, Job] = {}
        self._held: set[Key] = set()
        self._changed = Condition()
        self._ended = False
        self._idle, self._every, self._next = idle, every, time.monotonic() + every
        self._thread = Thread(target=self._run, name="render", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the job at work has ended."""
        with self._changed:
            self._ended = True
            self._jobs.clear()
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def ask(self, key: Key, work: Callable[[], None], delay: float = 0.0, yields: bool = False) -> None:
        """Puts a job in the place of the one with the same key, which keeps its turn. One that yields is dropped if another waits."""
        with self._changed:
            known, due = self._jobs.get(key), time.monotonic() + delay
            if self._ended or (known is not None and yields):
                return
            self._jobs[key] = Job(due if known is None else min(due, known.due), work)
            self._changed.notify_all()

    def hold(self, key: Key, held: bool) -> None:
        """Holds a job back, even in its turn, until it is no longer held."""
        with self._changed:
            (self._held.add if held else self._held.discard)(key)
            self._changed.notify_all()

    def forget(self, browser: Hashable) -> None:
        with self._changed:
            for key in [key for key in self._jobs if key[0] == browser]:
                del self._jobs[key]
            self._held = {key for key in self._held if key[0] != browser}

    def _run(self) -> None:
        while (work := self._chosen()) is not None:
            try:
                work()
            except Exception:
                log.exception("a picture could not be drawn")

    def _chosen(self) -> Callable[[], None] | None:
        """The next job, once it is due; None at the end."""
        with self._changed:
            while not self._ended:
                now = time.monotonic()
                free = self._jobs.keys() - self._held
                key = min(free, key=lambda key: self._jobs[key].due, default=None)
                due = self._next if key is None else self._jobs[key].due
                if now >= self._next:
                    self._next = now + self._every
                    return self._idle
                if key is not None and due <= now:
                    return self._jobs.pop(key).work
                self._changed.wait(min(due, self._next) - now)
        return None
