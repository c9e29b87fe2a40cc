# SPDX-License-Identifier: Apache-2.0
"""Loader processes may be killed, stopped or broken: the numbers that they owe come all the same."""

import ctypes
import os
import resource
import signal
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from functools import partial
from multiprocessing import Pipe
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from nurec_lite.base import processes
from nurec_lite.base.errors import UserError
from nurec_lite.base.processes import Ahead, Kind, in_processes


def square(n: int) -> int:
    if n == 13:
        raise UserError("13 cannot be squared; choose another number")
    if n == 17:
        raise UnpicklableError(n, "17")
    return n * n


GROUP = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]  # that a terminal or a scheduler sends to all processes of a run


class UnpicklableError(Exception):
    def __init__(self, n: int, text: str) -> None:
        super().__init__(text)


@pytest.fixture(params=[True, False], ids=["at once", "one by one"])
def ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ahead]:
    monkeypatch.setattr(processes, "WAIT", 0.05)
    found = Ahead(square, 0, count=2, ahead=2, at_once=request.param)
    yield found
    found.close()


def send(ahead: Ahead, number: signal.Signals) -> None:
    """Sends a signal to each of the workers."""
    for member in ahead.members:
        assert member.process.pid is not None
        os.kill(member.process.pid, number)


def test_results_come_in_any_pace(ahead: Ahead) -> None:
    assert [ahead.result(n) for n in range(12)] == [n * n for n in range(12)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_dead_are_replaced(ahead: Ahead, number: signal.Signals) -> None:
    for n in range(6):
        send(ahead, number)
        assert ahead.result(n) == n * n


@pytest.mark.parametrize(("hung", "given_up"), [(1, True), (2, False)])
def test_one_that_hangs_is_given_up_once_most_have_done_their_work(
    hung: int, given_up: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One of three hangs, and the others have overtaken it. Two may be slow, so they are waited for."""
    monkeypatch.setattr(processes, "WAIT", 0.1)

    def work(n: int) -> int:
        if n < hung and not (tmp_path / str(n)).exists():
            (tmp_path / str(n)).touch()
            time.sleep(3600 if given_up else 1.5)
        return n

    ahead = Ahead(work, 0, count=3, ahead=1)
    try:
        before = {member.process.pid for member in ahead.members}
        assert [ahead.result(n) for n in range(3)] == [0, 1, 2]
        assert (before != {member.process.pid for member in ahead.members}) == given_up
    finally:
        ahead.close()


def test_when_too_many_died_the_work_is_done_here() -> None:
    ahead = Ahead(square, 0, count=2, ahead=2, kind=Kind("a process", replaced=0))
    for member in ahead.members:
        member.process.kill()
    assert [ahead.result(n) for n in range(12)] == [n * n for n in range(12)]
    assert ahead.members == []


def test_jobs_are_done_in_order_by_processes_that_are_free() -> None:
    jobs = [partial(square, n) for n in (3, 13, 5, 4)]
    results = in_processes(jobs, 3, Kind("a process"))
    assert next(results)() == 9
    with pytest.raises(UserError, match="13 cannot"):
        next(results)()
    assert [result() for result in results] == [25, 16]
    assert list(in_processes([], 3, Kind("a process"))) == []


def test_a_result_that_is_waited_for_is_cancelled_by_the_end() -> None:
    ahead = Ahead(lambda n: signal.pause(), 0, count=1, ahead=1)
    waiting: Future[object] = Future()

    def wait() -> None:
        try:
            ahead.result(0)
        except CancelledError as error:
            waiting.set_exception(error)

    thread = Thread(target=wait)
    thread.start()
    while not ahead.members[0].owes:
        time.sleep(0.01)
    ahead.close()
    thread.join()
    assert isinstance(waiting.exception(), CancelledError) and ahead.members == []


@pytest.mark.parametrize("number", GROUP)
def test_signals_to_the_group_are_left_to_the_parent(ahead: Ahead, number: signal.Signals) -> None:
    assert ahead.result(0) == 0
    send(ahead, number)
    before = [member.process.pid for member in ahead.members]
    assert [ahead.result(n) for n in range(8)][-1] == 49
    assert [member.process.pid for member in ahead.members] == before


@pytest.mark.parametrize("number", GROUP)
def test_a_signal_during_the_first_instructions_of_a_worker_is_left_to_the_parent(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    begun, serve = Pipe(), processes._serve

    def late(*call: Any) -> None:
        begun[1].send(os.getpid())
        os.kill(os.getpid(), number)  # before anything of `_serve` has run
        serve(*call)

    monkeypatch.setattr(processes, "_serve", late)
    ahead = Ahead(square, 0, count=2, ahead=2)
    try:
        assert [ahead.result(n) for n in range(4)] == [0, 1, 4, 9]
        assert begun[0].poll(60)
        assert {begun[0].recv(), begun[0].recv()} == {member.process.pid for member in ahead.members}
    finally:
        ahead.close()


@pytest.mark.parametrize("number", GROUP)
def test_the_parent_gets_a_signal_that_came_while_it_started_a_worker(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    came: list[int] = []
    before = signal.signal(number, lambda given, _: came.append(given))
    start = BaseProcess.start

    def signalled(process: BaseProcess) -> None:
        os.kill(os.getpid(), number)
        start(process)

    monkeypatch.setattr(BaseProcess, "start", signalled)
    try:
        Ahead(square, 0, count=1, ahead=1).close()
        assert came == [number]
        assert number not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    finally:
        signal.signal(number, before)


def test_errors_come_where_the_result_would(ahead: Ahead) -> None:
    assert ahead.result(12) == 144
    with pytest.raises(UserError, match=r"^13 cannot be squared; choose another number$") as raised:
        ahead.result(13)
    assert not hasattr(raised.value, "__notes__"), "no trace of another process for the one that can mend it"
    with pytest.raises(RuntimeError, match="UnpicklableError: 17"):
        ahead.result(17)


def test_a_parent_that_is_killed_leaves_nobody() -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        found = Ahead(square, 0, count=2, ahead=2)
        os.write(writer, " ".join(str(member.process.pid) for member in found.members).encode())
        signal.pause()
    workers = [int(pid) for pid in os.read(reader, 100).split()]
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    end = time.monotonic() + 60
    while any(os.path.exists(f"/proc/{pid}") and not zombie(pid) for pid in workers):
        assert time.monotonic() < end
        time.sleep(0.02)
    os.close(reader)
    os.close(writer)


def test_jobs_end_their_processes_without_a_wait() -> None:
    pids = [result() for result in in_processes([os.getpid] * 6, 3, Kind("a process"))]
    end = time.monotonic() + 60
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):  # no zombie stays
        assert time.monotonic() < end
        time.sleep(0.02)


def test_processes_work_while_others_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    owed: list[list[int]] = []
    start = Ahead._start

    def watched(ahead: Ahead) -> bool:
        owed.append([len(member.owes) for member in ahead.members])
        return start(ahead)

    monkeypatch.setattr(Ahead, "_start", watched)
    ahead = Ahead(square, 5, count=3, ahead=2)
    try:
        assert owed == [[], [2], [2, 2]]
        assert [ahead.result(n) for n in range(5, 12)] == [n * n for n in range(5, 12)]
    finally:
        ahead.close()


def test_a_first_result_waits_for_one_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Ahead._start

    def slow(ahead: Ahead) -> bool:
        time.sleep(0.2 if ahead.members else 0)
        return start(ahead)

    monkeypatch.setattr(Ahead, "_start", slow)
    ahead = Ahead(square, 0, count=100, ahead=2, at_once=False)
    try:
        assert ahead.result(0) == 0 and len(ahead.members) < 50
    finally:
        ahead.close()


def test_all_processes_begin_while_results_are_awaited() -> None:
    def work(n: int) -> int:
        time.sleep(0.3)
        return os.getpid()

    ahead = Ahead(work, 0, count=3, ahead=2, at_once=False)
    try:
        found = [ahead.result(n) for n in range(6)]
        assert set(found) == {member.process.pid for member in ahead.members} and len(set(found)) == 3
    finally:
        ahead.close()


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("most", [0, 1, 2])
def test_a_system_without_further_processes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, most: int, at_once: bool
) -> None:
    process = processes._Process

    def made(*given: Any) -> processes._Process:
        if len(begun) == most:
            raise BlockingIOError("Resource temporarily unavailable")
        begun.append(process(*given))
        return begun[-1]

    begun: list[processes._Process] = []
    monkeypatch.setattr(processes, "_Process", made)
    results = Ahead(square, 0, count=4, ahead=2, at_once=at_once)
    try:
        assert [results.result(n) for n in range(12)] == [n * n for n in range(12)]
        assert len(results.members) == most
        said = f"{most} go on" if most else "this process does their work from now on"
        assert said in caplog.text and caplog.text.count("cannot be started") == 1
    finally:
        results.close()


def zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def faults(n: int) -> int:
    """Page faults so far, after work with some large arrays."""
    for _ in range(20):
        np.ones(1 << 24, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not the C library of GNU")
def test_freed_memory_is_used_again() -> None:
    """Without it each of the 20 arrays would take 4096 new pages."""
    ahead = Ahead(faults, 0, count=1, ahead=1)
    try:
        ahead.result(0)
        assert ahead.result(2) - ahead.result(1) < 4096
    finally:
        ahead.close()
