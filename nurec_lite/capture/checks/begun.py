# SPDX-License-Identifier: Apache-2.0
"""Checks of a capture while a run begins: kernels are compiled and loaded, and the first scene is made, at the same time.

With some cores to spare the process that waits for the capture checks, and shares the work with others.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Thread

from nurec_lite.base.errors import UserError
from nurec_lite.base.processes import Kind
from nurec_lite.base.threads import cores
from nurec_lite.base.waiting import begin, take
from nurec_lite.capture.checks.doubts import log_doubts
from nurec_lite.capture.checks.starts import Start, starts_of
from nurec_lite.capture.checks.verdict import Verdict, failed
from nurec_lite.capture.types import Capture

Result = tuple[list[Verdict], dict[str, Start]]
CHECKER = Kind("the process that checks the capture", replaced=0, patience=120, parents=True)
MOST, PART = 12, 5  # processes at most, and eighths of the cores that have one
ALL, CORRECTIONS = "all checks", "first corrections"


class BegunChecks:
    """Verdicts of the sensors about a capture, and the start of its cameras' corrections. Checks that fail are a verdict that says why."""

    def __init__(
        self,
        check: Callable[[], Result],
        said: bool = False,  # the doubts stand in the log already
        close: Callable[[], None] | None = None,  # ends the work
        at_once: bool = True,  # False: begins with the first block or question, as a search for tracks holds the memory until then
    ) -> None:
        self._result: Future[Result] = Future()
        self._said, self._close = said, close
        self._thread: Thread | None = Thread(target=self._work, args=(check,), daemon=True)
        if at_once:
            self._begin()

    def _begin(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.start()

    def _work(self, check: Callable[[], Result]) -> None:
        try:
            self._result.set_result(check())
        except (UserError, CancelledError) as error:  # raised where the result is asked for
            self._result.set_exception(error)
        except Exception as error:
            self._result.set_result(([failed("The checks of the capture", ALL, "", error)], {}))
        except BaseException as error:
            self._result.set_exception(error)

    @contextmanager
    def first(self) -> Iterator[None]:
        """Block that runs at the same time, unless the checks have failed already. If both fail, the error of the checks is raised: it may
        explain the other."""
        self._begin()
        if self._result.done():
            self._result.result()
        try:
            yield
        except Exception:
            self._result.result()
            raise

    def ended(self) -> bool:
        """Whether the checks have ended: `doubts` and `starts` do not wait then."""
        return self._result.done()

    def close(self) -> None:
        """Ends the work where another process does it, and nobody waits for it any more."""
        if self._close is not None:
            self._close()

    def doubts(self) -> list[Verdict]:
        """Returns the doubts, and logs them once. Waits. CaptureError with all that is certain, unless the user trusts the capture."""
        self._begin()
        doubts, _ = self._result.result()
        log_doubts([] if self._said else doubts)
        self._said = True
        return doubts

    def starts(self) -> dict[str, Start]:
        """Returns the starts by the names of cameras. Waits, and raises as `doubts` does."""
        self._begin()
        return self._result.result()[1]


def begin_checker() -> None:
    """Starts the process that will check a capture."""
    begin(CHECKER, _load_checks)


def _load_checks() -> None:
    import scipy.spatial  # noqa: F401

    import nurec_lite.capture.checks.trust  # noqa: F401


def begin_checks(
    capture: Capture,
    source: str,  # file or folder, for the message
    trust: bool,  # the user's data.trust
    apart: bool = False,  # whether the process that waits, if there is one, can read its frames
) -> BegunChecks:
    here = partial(_checked, capture, source, trust, 1)
    helper = take(CHECKER) if apart else None
    if helper is None:
        return BegunChecks(here, at_once=False)
    call = partial(_checked, capture, source, trust, _processes())

    def check() -> Result:
        try:
            return helper.result(call, here)
        finally:
            helper.close()

    return BegunChecks(check, close=helper.close)


def _processes() -> int:
    """Processes that share the checks: the first scene, which is made meanwhile, takes as long with the other cores."""
    return max(1, min(MOST, PART * cores() // 8))


def _checked(capture: Capture, source: str, trust: bool, processes: int) -> Result:
    from nurec_lite.capture.checks.sample import Sample
    from nurec_lite.capture.checks.trust import found_doubts

    sample = Sample(capture, processes=processes)
    doubts = [replace(verdict, corrected=None) for verdict in found_doubts(sample, source, trust)]
    try:
        return doubts, starts_of(sample)
    except Exception as error:
        return [*doubts, failed("The first corrections of cameras", CORRECTIONS, capture.name, error)], {}


def known_checks(doubts: Sequence[Verdict]) -> BegunChecks:
    """The checks of a run that goes on."""
    return BegunChecks(lambda: (list(doubts), {}), said=True)
