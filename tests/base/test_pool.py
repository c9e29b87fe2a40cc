# SPDX-License-Identifier: Apache-2.0
"""Work on all threads at once: order, results in memory, errors, and torch's number of threads before, inside and after."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest
import torch
from tiny_capture import tiny_capture, tiny_config

from nurec_lite.base.pool import Begun, Together, in_parallel, in_threads
from nurec_lite.scene.init import make_scene


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_come_in_order_whichever_ends_first(threads: int) -> None:
    def slow(n: int) -> int:
        time.sleep(0.003 * (5 - n % 5))
        return n * n

    assert list(in_threads(slow, range(20))) == [n * n for n in range(20)]
    assert list(in_threads(slow, [])) == []


def test_each_works_with_one_thread_and_all_come_back(threads: int) -> None:
    names, inside = set(), set()

    def noted(n: int) -> None:
        names.add(threading.current_thread().name)
        inside.add(torch.get_num_threads())
        time.sleep(0.01)

    list(in_threads(noted, range(12)))
    assert len(names) == threads and inside == {1} and torch.get_num_threads() == threads
    later: list[int] = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert later == [threads]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_gpu_gets_its_work_from_the_caller_s_thread(threads: int, device: str) -> None:
    def name(n: int) -> str:
        return threading.current_thread().name

    here = set(in_parallel(name, range(6), torch.device(device))) == {threading.current_thread().name}
    assert here == (device == "cuda")


def test_no_more_is_held_than_twice_the_threads(threads: int) -> None:
    begun: list[int] = []
    results = in_threads(begun.append, range(40))
    for n in range(10):
        next(results)
        time.sleep(0.005)
        assert len(begun) <= n + 2 * threads
    results.close()
    assert len(begun) < 40 and torch.get_num_threads() == threads


def test_an_error_is_raised_where_its_result_would_be(threads: int) -> None:
    def odd(n: int) -> int:
        if n == 4:
            raise ValueError("the fourth")
        return n

    results = in_threads(odd, range(9))
    assert [next(results) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="the fourth"):
        next(results)
    assert torch.get_num_threads() == threads


def test_a_scene_is_the_same_whatever_the_number_of_threads() -> None:
    before, scenes = torch.get_num_threads(), []
    try:
        for n in (1, 3):
            torch.set_num_threads(n)
            scenes.append(make_scene(tiny_capture(), tiny_config().model, 0, "cpu"))
    finally:
        torch.set_num_threads(before)
    one, three = (scene.parameters() | {"node": scene.gaussians.node} for scene in scenes)
    assert all(torch.equal(one[name], three[name]) for name in one)


# Together


def test_requests_during_a_call_make_up_the_next_one() -> None:
    calls, begun, go = [], threading.Event(), threading.Event()

    def squares(numbers: Sequence[int]) -> list[int]:
        calls.append(list(numbers))
        begun.set()
        assert go.wait(60)
        return [n * n for n in numbers]

    together = Together(squares)
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(together, 0)
        assert begun.wait(60)
        others = [pool.submit(together, n) for n in range(1, 5)]
        while len(together._waiting) < 4:
            time.sleep(0.001)
        go.set()
        assert [f.result() for f in (first, *others)] == [0, 1, 4, 9, 16]
    assert calls[0] == [0] and sorted(calls[1]) == [1, 2, 3, 4] and len(calls) == 2


def test_an_error_is_one_of_all_that_the_call_was_to_do_and_of_none_after_it() -> None:
    def picky(numbers: Sequence[int]) -> Sequence[int]:
        if 5 in numbers:
            raise ValueError("not five")
        return numbers

    together = Together(picky)
    assert together(4) == 4
    with pytest.raises(ValueError, match="not five"):
        together(5)
    assert together(6) == 6


# Begun


def test_results_are_there_by_their_items_whenever_one_asks(threads: int) -> None:
    begun = Begun(lambda n: n * n, range(20))
    assert [begun.of(n) for n in (19, 0, 7, 7)] == [361, 0, 49, 49]
    begun.close()
    assert [begun.of(n) for n in range(20)] == [n * n for n in range(20)]


def test_the_caller_goes_on_and_the_first_is_there_before_the_last(threads: int) -> None:
    go = threading.Event()
    begun = Begun(lambda n: n if n < 9 else go.wait(60) and n, range(10))
    assert begun.of(0) == 0
    go.set()
    assert begun.of(9) == 9
    begun.close()


def test_work_goes_no_further_ahead_of_the_first_requests_than_allowed(threads: int) -> None:
    made: list[int] = []

    def work(n: int) -> int:
        made.append(n)
        return n

    begun = Begun(work, range(40), ahead=8)
    for asked, all_made in ((None, 8), (0, 9), (5, 14), (3, 14), (6, 15), (7, 40)):
        assert asked is None or begun.of(asked) == asked
        end = time.monotonic() + 60
        while len(made) < all_made and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.05)  # time to go too far
        assert sorted(made) == list(range(all_made))
    begun.close()


def test_closing_ends_work_that_waits_for_requests(threads: int) -> None:
    begun = Begun(lambda n: n, range(20), ahead=2)
    begun.close()
    with pytest.raises(CancelledError):
        begun.of(19)


def test_asking_for_a_failed_result_or_a_later_one_raises(threads: int) -> None:
    def picky(n: int) -> int:
        if n == 5:
            raise ValueError("not five")
        return n

    begun = Begun(picky, range(20))
    assert [begun.of(n) for n in range(5)] == list(range(5))
    for n in (5, 19):
        with pytest.raises(ValueError, match="not five"):
            begun.of(n)
    begun.close()


def test_closing_ends_the_work_and_gives_torch_its_threads_back(threads: int) -> None:
    done, before = [], set(threading.enumerate())
    begun = Begun(lambda n: (time.sleep(0.01), done.append(n)), range(1000))
    begun.close()
    assert len(done) < 1000 and set(threading.enumerate()) <= before and torch.get_num_threads() == threads
    with pytest.raises(CancelledError):
        begun.of(999)
