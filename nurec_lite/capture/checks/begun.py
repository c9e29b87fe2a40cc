# SPDX-License-Identifier: Apache-2.0
"""Checks of a capture while a run begins: kernels are compiled and loaded, and the first scene is made, at the same time."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread

from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.starts import Start, starts_of
from nurec_lite.capture.checks.trust import found_doubts, log_doubts
from nurec_lite.capture.checks.verdict import Verdict
from nurec_lite.capture.types import Capture

Result = tuple[list[Verdict], dict[str, Start]]


class BegunChecks:
    """Verdicts of the sensors about a capture, and the start of its cameras' corrections."""

    def __init__(
        self,
        check: Callable[[], Result],
        said: bool = False,  # the doubts stand in the log already
    ) -> None:
        self._result: Future[Result] = Future()
        self._said = said
        Thread(target=self._work, args=(check,), daemon=True).start()

    def _work(self, check: Callable[[], Result]) -> None:
        try:
            self._result.set_result(check())
        except BaseException as error:  # raised where the result is asked for
            self._result.set_exception(error)

    @contextmanager
    def first(self) -> Iterator[None]:
        """Block that runs at the same time, unless the checks have failed already. If both fail, the error of the checks is raised: it may
        explain the other."""
        if self._result.done():
            self._result.result()
        try:
            yield
        except Exception:
            self._result.result()
            raise

    def doubts(self) -> list[Verdict]:
        """Waits, and logs them once. CaptureError with all that is certain, unless the user trusts the capture."""
        doubts, _ = self._result.result()
        log_doubts([] if self._said else doubts)
        self._said = True
        return doubts

    def starts(self) -> dict[str, Start]:
        """Waits, and raises the same. By the names of cameras."""
        return self._result.result()[1]


def begin_checks(
    capture: Capture,
    source: str,  # file or folder, for the message
    trust: bool,  # the user's data.trust
) -> BegunChecks:
    def check() -> Result:
        sample = Sample(capture)
        return found_doubts(sample, source, trust), starts_of(sample)

    return BegunChecks(check)


def known_checks(doubts: Sequence[Verdict]) -> BegunChecks:
    """The checks of a run that goes on."""
    return BegunChecks(lambda: (list(doubts), {}), said=True)
