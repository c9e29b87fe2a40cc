# SPDX-License-Identifier: Apache-2.0
"""Checks in processes have the findings of checks in threads, and their process may die, fail or be given up."""

import os
import signal
from collections.abc import Iterator
from functools import partial

import pytest

from nurec_lite.base import waiting
from nurec_lite.capture.checks import begun, run, trust
from nurec_lite.capture.checks.begun import BegunChecks, begin_checks
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.together import Found, done_together
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.config import DataConfig
from nurec_lite.readers import open_capture

SAID = Verdict("rays", "lidar", Level.CERTAIN, "Rays are wrong.", corrected=lambda capture: capture)


@pytest.fixture(scope="module")
def street() -> Capture:
    return open_capture(DataConfig(frames=[0, 6]))


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(waiting, "cores", lambda: 6)
    yield
    waiting.end(begun.CHECKER)


def checks_apart(capture: Capture) -> BegunChecks:
    begun.begin_checker()
    return begin_checks(capture, "street", False, apart=True)


def words(checks: BegunChecks) -> list[str]:
    return [verdict.text for verdict in checks.doubts()]


def test_processes_find_what_threads_find(street: Capture) -> None:
    there = checks_apart(street)
    here = begin_checks(street, "street", False)
    assert words(here) == words(there) and here.starts() == there.starts()


def test_a_process_may_begin_before_the_capture_is_known(street: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    begun.begin_checker()
    monkeypatch.setattr(begun, "_checked", checked_here)
    assert words(begin_checks(street, "street", False)) == [str(os.getpid())], "in a thread"
    (child,) = words(begin_checks(street, "street", False, apart=True))
    assert child not in ("", str(os.getpid())) and not waiting._waiting
    assert words(begin_checks(street, "street", False, apart=True)) == [str(os.getpid())], "no process waits"


def checked_here(capture: Capture, source: str, trust: bool, processes: int) -> begun.Result:
    assert capture.name == "street_0" and processes in (1, 2)
    return [Verdict("process", "", Level.LIKELY, str(os.getpid()))], {}


def test_a_process_that_dies_costs_no_verdict(street: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = os.getpid()

    def checked(*given: object) -> begun.Result:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return [SAID], {}

    monkeypatch.setattr(begun, "_checked", checked)
    assert words(checks_apart(street)) == ["Rays are wrong."]


@pytest.mark.parametrize("apart", [False, True], ids=["threads", "processes"])
@pytest.mark.parametrize(
    "place, sentence",
    [
        ("alignment.image_edges", "The check of cameras and sweeps failed: RuntimeError: a fault on purpose."),
        ("works.spread", ""),  # the works of a wave cannot be named: the checks do them
        ("begun.starts_of", "The first corrections of cameras failed: RuntimeError: a fault on purpose."),
        ("trust.verdicts", "The checks of the capture failed: RuntimeError: a fault on purpose."),
    ],
)
def test_a_part_that_fails_says_so_and_costs_no_other(
    place: str, sentence: str, apart: bool, street: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: object, **keys: object) -> object:
        raise RuntimeError("a fault on purpose")

    real = place.startswith(("alignment", "works"))  # not the verdicts that this process remembers
    monkeypatch.setattr(trust, "verdicts", run.verdicts if real else lambda sample: [])
    monkeypatch.setattr(f"nurec_lite.capture.checks.{place}", fails)
    checks = checks_apart(street) if apart else begin_checks(street, "street", False)
    with checks.first():
        starts = checks.starts()
    found = [verdict.text for verdict in checks.doubts() if verdict.level is Level.FAILED]
    assert found == [sentence][: len(sentence)] and bool(starts) == (sentence == "")


def test_no_process_can_be_started(street: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError("no process is left")

    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr(begun, "_checked", checked_here)
    assert words(checks_apart(street)) == [str(os.getpid())]


def test_what_is_certain_is_raised_in_its_own_words(street: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(*given: object) -> begun.Result:
        raise CaptureError("street: rays are wrong")

    monkeypatch.setattr(begun, "_checked", checked)
    checks = checks_apart(street)
    with pytest.raises(CaptureError, match=r"^street: rays are wrong$"):
        checks.starts()


def test_checks_that_nobody_waits_for_end(street: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(begun, "_checked", lambda *given: signal.pause())
    checks = checks_apart(street)
    checks.close()
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def job(sample: Sample, k: int) -> Found:
    sample.kept(k, lambda: (lambda: k) if k == 2 else k)  # a function cannot be sent
    return {"rays": [SAID]} if k == 1 else {}


def test_a_sample_learns_what_jobs_make() -> None:
    def learned(processes: int) -> Iterator[object]:
        sample = Sample(None, processes=processes)  # type: ignore[arg-type]
        yield from done_together(sample, [partial(job, sample, k) for k in range(4)])
        yield sorted(sample.made(), key=str), [sample.made()[k] for k in (0, 1, 3)]

    assert list(learned(1)) == list(learned(2))
