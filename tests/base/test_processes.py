# SPDX-License-Identifier: Apache-2.0
"""Loader processes may be killed, stopped or broken: the numbers that they owe come all the same."""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from nurec_lite.base import processes
from nurec_lite.base.errors import UserError
from nurec_lite.base.processes import Ahead


def square(n: int) -> int:
    if n == 13:
        raise UserError("13 cannot be squared; choose another number")
    if n == 17:
        raise UnpicklableError(n, "17")
    return n * n


class UnpicklableError(Exception):
    def __init__(self, n: int, text: str) -> None:
        super().__init__(text)


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ahead]:
    monkeypatch.setattr(processes, "WAIT", 0.05)
    found = Ahead(square, 0, count=2, ahead=2)
    yield found
    found.close()


def test_results_come_in_any_pace(ahead: Ahead) -> None:
    assert [ahead.result(n) for n in range(12)] == [n * n for n in range(12)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_dead_are_replaced(ahead: Ahead, number: signal.Signals) -> None:
    for n in range(6):
        for member in ahead.members:
            assert member.process.pid is not None
            os.kill(member.process.pid, number)
        assert ahead.result(n) == n * n


def test_when_too_many_died_the_work_is_done_here(ahead: Ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MOST", 0)
    for member in ahead.members:
        member.process.kill()
    assert [ahead.result(n) for n in range(12)] == [n * n for n in range(12)]
    assert ahead.members == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_to_the_group_are_left_to_the_parent(ahead: Ahead, number: signal.Signals) -> None:
    assert ahead.result(0) == 0  # they have begun
    before = [member.process.pid for member in ahead.members]
    for member in ahead.members:
        assert member.process.pid is not None
        os.kill(member.process.pid, number)
    assert [ahead.result(n) for n in range(8)][-1] == 49
    assert [member.process.pid for member in ahead.members] == before


def test_errors_come_where_the_result_would(ahead: Ahead) -> None:
    assert ahead.result(12) == 144
    with pytest.raises(UserError, match=r"^13 cannot be squared; choose another number$") as raised:
        ahead.result(13)
    assert not hasattr(raised.value, "__notes__"), "no trace of another process for who can mend it"
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
    time.sleep(0.3)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    end = time.monotonic() + 5
    while any(os.path.exists(f"/proc/{pid}") and not zombie(pid) for pid in workers):
        assert time.monotonic() < end
        time.sleep(0.02)
    os.close(reader)
    os.close(writer)


def zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
