# SPDX-License-Identifier: Apache-2.0
"""Checks go on while a run begins: the raised error, waits, log lines, and the number of decoded frames."""

import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch

from nurec_lite.base.errors import UserError
from nurec_lite.base.pool import in_threads
from nurec_lite.capture.checks import flawed
from nurec_lite.capture.checks.begun import BegunChecks, Result, known_checks
from nurec_lite.capture.checks.run import verdicts
from nurec_lite.capture.checks.sample import IMAGES, SWEEPS, Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.types import Capture, CaptureError, Frame
from nurec_lite.config import DataConfig
from nurec_lite.readers import open_capture

DOUBT = Verdict("test", "drive", Level.LIKELY, "Stamps repeat.")


def certain() -> tuple[list[Verdict], dict[str, object]]:
    raise CaptureError("poses are inverted")


def test_work_goes_on_while_the_capture_is_checked() -> None:
    meanwhile = threading.Event()

    def check() -> tuple[list[Verdict], dict[str, object]]:
        assert meanwhile.wait(30)
        return [DOUBT], {}

    checks = BegunChecks(check)  # type: ignore[arg-type]
    with checks.first():
        meanwhile.set()
    assert checks.doubts() == [DOUBT] and checks.starts() == {}


def test_where_both_fail_the_checks_say_why() -> None:
    with pytest.raises(CaptureError, match="inverted"), BegunChecks(certain).first():  # type: ignore[arg-type]
        raise UserError("no image to train on")
    with pytest.raises(UserError, match="no image"), known_checks([]).first():
        raise UserError("no image to train on")
    with pytest.raises(CaptureError, match="inverted"):
        BegunChecks(certain).starts()  # type: ignore[arg-type]


def test_doubts_are_logged_once_and_those_of_a_run_that_goes_on_never(caplog: pytest.LogCaptureFixture) -> None:
    checks = BegunChecks(lambda: ([DOUBT], {}))
    with caplog.at_level(logging.WARNING):
        assert checks.doubts() == checks.doubts() == known_checks([DOUBT]).doubts() == [DOUBT]
    assert caplog.messages == ["Stamps repeat."]


@dataclass
class Counted:
    """Counts how often a frame is decoded."""

    load: Callable[[], object]
    name: tuple[str, int]
    counts: Counter[tuple[str, int]]

    def __call__(self) -> object:
        self.counts[self.name] += 1
        return self.load()


def counted(capture: Capture) -> tuple[Capture, Counter[tuple[str, int]]]:
    counts = Counter[tuple[str, int]]()

    def of(frame: Frame) -> Frame:
        return replace(frame, load=Counted(frame.load, (frame.sensor, frame.index), counts))  # type: ignore[call-arg]

    some = replace(capture, images=tuple(map(of, capture.images)), sweeps=tuple(map(of, capture.sweeps)))  # type: ignore[arg-type]
    return some, counts


def test_each_frame_is_decoded_once_however_many_threads_there_are() -> None:
    street, counts = counted(open_capture(DataConfig()))
    found = [in_words(street, threads=3)]
    sensors = Counter(sensor for sensor, _ in counts)
    assert set(counts.values()) == {1} and sensors["lidar"] == len(street.sweeps)  # all, since they have few rays
    assert all(sensors[camera.name] == IMAGES for camera in street.cameras)
    found.append(in_words(street, threads=1))
    assert found[0] == found[1] and len(found[0]) > 8


def test_a_bounded_number_of_large_sweeps_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flawed, "RAYS", 0)
    street, counts = counted(open_capture(DataConfig()))
    in_words(street, threads=1)
    sensors = Counter(sensor for sensor, _ in counts)
    assert set(counts.values()) == {1} and SWEEPS // 2 <= sensors["lidar"] <= SWEEPS


def in_words(capture: Capture, threads: int) -> list[tuple[str, str, str]]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return [(v.check, v.subject, v.sentence) for v in verdicts(Sample(capture))]
    finally:
        torch.set_num_threads(before)


def test_pools_in_several_threads_leave_torch_its_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        inside = list(in_threads(lambda _: sum(1 for _ in in_threads(threads_of, range(6))), range(4)))
        others = [threading.Thread(target=lambda: list(in_threads(threads_of, range(50)))) for _ in range(4)]
        for thread in others:
            thread.start()
        for thread in others:
            thread.join()
        later: list[int] = []
        last = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        last.start()
        last.join()
        assert inside == [6] * 4 and later == [torch.get_num_threads()] == [3]
    finally:
        torch.set_num_threads(before)


def threads_of(_: int) -> int:
    return torch.get_num_threads()


def test_checks_of_this_process_may_wait_for_the_first_question() -> None:
    asked: list[int] = []

    def check() -> Result:
        asked.append(1)
        return [DOUBT], {}

    def block(checks: BegunChecks) -> None:
        with checks.first():
            pass

    questions: tuple[Callable[[BegunChecks], object], ...] = (BegunChecks.doubts, BegunChecks.starts, block)
    for question in questions:
        checks = BegunChecks(check, at_once=False)
        assert not asked
        question(checks)
        assert checks.doubts() == [DOUBT] and asked == [1]
        asked.clear()
