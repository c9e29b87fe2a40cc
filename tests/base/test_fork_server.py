# SPDX-License-Identifier: Apache-2.0
"""A fork server may be killed, stopped, or unable to do a work: the results come all the same, and no process stays."""

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import pytest

from nurec_lite.base import fork_server, processes
from nurec_lite.base.errors import UserError
from nurec_lite.base.fork_server import ForkServer, begin_forks, end_forks, take_server
from nurec_lite.base.shared_results import shared_results


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    monkeypatch.setattr(fork_server, "cores", lambda: 8)
    monkeypatch.setattr(processes, "WAIT", 0.05)
    before = set(active_children())
    begin_forks()
    yield fork_server._waiting[-1]
    end_forks()
    assert set(active_children()) <= before, "a process stayed"


def made(n: int) -> tuple[int, int, np.ndarray]:
    """The processes that made it, and an array that only the right one has."""
    return os.getppid(), os.getpid(), np.full(1000 + n, n, np.int32)


def ended_by(pid: int, n: int) -> int:
    if n == 3 and os.getpid() != pid and os.getppid() != pid:
        os.kill(os.getppid(), signal.SIGKILL)
    return n


def picky(n: int) -> int:
    if n == 4:
        raise UserError("the fifth is damaged")
    return n


def dies_once(mark: Path, n: int) -> int:
    if n == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return n


def results(count: int = 40, processes: int = 3) -> list[tuple[int, int]]:
    """Asserts the arrays of many rounds of the memory, and returns the processes."""
    found = []
    for n, (parent, process, array) in enumerate(
        shared_results([partial(made, n) for n in range(count)], processes, 4096)
    ):
        assert len(array) == 1000 + n and (array == n).all()
        found.append((parent, process))
    assert len(found) == count
    return found


def server_of(server: ForkServer) -> int:
    pid = server.process.members[0].process.pid
    assert pid is not None
    return pid


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: set[int]) -> None:
    end = time.monotonic() + 60
    while any(runs(pid) for pid in pids):
        assert time.monotonic() < end, "a process stayed"
        time.sleep(0.02)


def test_works_come_from_processes_of_the_server_one_after_another(server: ForkServer) -> None:
    first, second = results(), results(7, 2)
    assert {parent for parent, _ in first + second} == {server_of(server)}
    assert len({process for _, process in second}) == 2
    assert not {process for _, process in first} & {process for _, process in second}
    gone({process for _, process in first})
    last = {server_of(server), *(process for _, process in second)}
    end_forks()
    gone(last)


def test_two_works_at_a_time_need_no_second_server(server: ForkServer) -> None:
    values = shared_results([partial(made, n) for n in range(8)], 2, 8192)
    assert next(values)[0] == server_of(server) and not fork_server._waiting
    assert {parent for parent, _ in results()} == {os.getpid()}
    assert [array[0] for _, _, array in values] == list(range(1, 8))
    assert fork_server._waiting == [server]


def test_the_last_result_stays_until_its_work_is_closed_and_frees_the_server(server: ForkServer) -> None:
    values = shared_results([partial(made, n) for n in range(3)], 2, 8192)
    last = [next(values) for _ in range(3)][-1]
    assert {parent for parent, _ in results()} == {os.getpid()}
    assert (last[2] == 2).all()
    values.close()
    assert {parent for parent, _ in results()} == {server_of(server)}


def test_works_leave_their_results_in_the_same_memory_unless_one_needs_more(server: ForkServer) -> None:
    results(9, 2)
    memory = server.memory(1)
    results(7, 2)
    assert server.memory(1) is memory and os.fstat(memory.file).st_size == len(memory.array)
    larger = server.memory(len(memory.array) + 1)
    assert len(larger.array) > len(memory.array) and server.memory(1) is larger and results(9, 2)


def test_jobs_that_cannot_be_pickled_are_done_by_forks_of_this_process(server: ForkServer) -> None:
    parents = {parent for parent in shared_results([lambda: os.getppid()] * 5, 2, 0)}
    assert parents == {os.getpid()}
    assert results()


def test_jobs_of_parts_that_the_server_does_not_know_are_done_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def late() -> int:
        return os.getppid()

    late.__qualname__ = late.__name__ = "late"
    monkeypatch.setattr(fork_server, "late", late, raising=False)
    late.__module__ = fork_server.__name__
    assert list(shared_results([late] * 3, 2, 0)) == [os.getpid()] * 3


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("after", [0, 5])
def test_a_server_that_dies_or_stops_costs_no_result(server: ForkServer, number: signal.Signals, after: int) -> None:
    if not after:
        os.kill(server_of(server), number)
    seen = []
    for n, (_, _, array) in enumerate(shared_results([partial(made, n) for n in range(30)], 3, 8192)):
        seen.append(int(array[0]))
        if n + 1 == after:
            os.kill(server_of(server), number)
    assert seen == list(range(30)) and not fork_server._waiting


def test_a_server_that_its_own_child_kills_costs_no_result() -> None:
    assert list(shared_results([partial(ended_by, os.getpid(), n) for n in range(9)], 2, 0)) == list(range(9))


def test_the_server_replaces_its_processes(server: ForkServer, tmp_path: Path) -> None:
    assert list(shared_results([partial(dies_once, tmp_path / "died", n) for n in range(9)], 2, 0)) == list(range(9))
    assert fork_server._waiting == [server]


def test_an_error_stands_where_its_result_would() -> None:
    seen: list[int] = []
    with pytest.raises(UserError, match=r"^the fifth is damaged$"):
        seen.extend(iter(shared_results([partial(picky, n) for n in range(9)], 2, 0)))
    assert seen == [0, 1, 2, 3] and not fork_server._waiting
    assert results()


def test_a_work_that_is_left_ends_its_processes(server: ForkServer) -> None:
    values = shared_results([partial(made, n) for n in range(30)], 3, 8192)
    parent, process, _ = next(values)
    values.close()
    gone({parent, process})
    assert results()


def test_no_jobs_leave_the_server_alone(server: ForkServer) -> None:
    assert list(shared_results([], 3, 100)) == []
    assert fork_server._waiting == [server]


def test_a_machine_of_few_cores_has_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    end_forks()
    monkeypatch.setattr(fork_server, "cores", lambda: 2)
    begin_forks()
    assert take_server() is None


def test_a_parent_that_is_killed_leaves_nobody() -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        found = ForkServer()
        fork_server._waiting[:] = [found]
        values = shared_results([partial(made, n) for n in range(30)], 2, 8192)
        started = [server_of(found), *(next(values)[1] for _ in range(6))]
        os.write(writer, " ".join(map(str, started)).encode())
        signal.pause()
    pids = {int(pid) for pid in os.read(reader, 100).split()}
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    gone(pids)
    os.close(reader)
    os.close(writer)
