# SPDX-License-Identifier: Apache-2.0
"""Work that a process that waited shares out to processes of its own."""

import os
from functools import partial

import pytest

from nurec_lite.base import waiting
from nurec_lite.base.processes import Kind
from nurec_lite.base.waiting import FEW, begin, done_apart, shared_out

WAITER, SHARER = Kind("a test's process", replaced=0, parents=True), Kind("a process of a test's process")


def squares(count: int) -> tuple[int, list[int], int]:
    """The process, the squares, and the number of processes that made them."""
    made = list(shared_out(lambda n: (n * n, os.getpid()), range(count), SHARER))
    return os.getpid(), [square for square, _ in made], len({process for _, process in made} - {os.getpid()})


def nothing() -> None:
    pass


@pytest.mark.parametrize(("cores", "apart"), [(1, False), (16, True)])
def test_a_process_that_waited_shares_its_work_out(monkeypatch: pytest.MonkeyPatch, cores: int, apart: bool) -> None:
    monkeypatch.setattr(waiting, "cores", lambda: cores)
    begin(WAITER, nothing)
    process, found, others = done_apart(WAITER, partial(squares, 3 * FEW))
    assert (process != os.getpid()) == apart and (others > 1) == apart
    assert found == [n * n for n in range(3 * FEW)]


def test_few_items_are_not_worth_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "cores", lambda: 16)
    begin(WAITER, nothing)
    process, found, others = done_apart(WAITER, partial(squares, FEW - 1))
    assert process != os.getpid() and others == 0 and found == [n * n for n in range(FEW - 1)]


def test_this_process_makes_its_results_itself() -> None:
    assert squares(3 * FEW) == (os.getpid(), [n * n for n in range(3 * FEW)], 0)


def failing(_: int) -> None:
    raise ValueError("as it is")


@pytest.mark.parametrize("count", [1, 3 * FEW])
def test_an_error_of_the_function_is_raised_where_its_result_would_be(count: int) -> None:
    with pytest.raises(ValueError, match="as it is"):
        list(shared_out(failing, range(count), SHARER))
