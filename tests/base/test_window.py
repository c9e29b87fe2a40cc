# SPDX-License-Identifier: Apache-2.0
"""A window keeps to its bound, and makes hardly more results than any strategy with that bound must."""

import threading
from collections.abc import Callable

import pytest

from nurec_lite.base.window import Budget, Schedule, Window
from nurec_lite.training.order import Order

N = 12


def order(seed: int, n: int = N) -> Callable[[int], tuple[int, ...]]:
    return Order(tuple(range(n)), tuple(range(n)), seed, 1).of


class Memory:
    """Results of 10 bytes each, counted while they live."""

    def __init__(self) -> None:
        self.lock, self.live, self.most = threading.Lock(), 0, 0

    def make(self, key: int) -> int:
        with self.lock:
            self.live += 1
            self.most = max(self.most, self.live)
        return key

    def drop(self, key: int) -> None:
        with self.lock:
            self.live -= 1


def window_of(memory: Memory, needs: Callable[[int], tuple[int, ...]], most: int, in_use: int = 0) -> Window[int, int]:
    budget: Budget[int] = Budget(10 * most, lambda key: 10, in_use)
    return Window(memory.make, Schedule(needs, 2 * N), budget, lambda result: 10, memory.drop)


def fewest(needs: Callable[[int], tuple[int, ...]], steps: int, most: int) -> int:
    """Results that a window of so many must make, by Belady's rule, written plainly."""
    held: set[int] = set()
    made = 0
    for step in range(steps):
        (key,) = needs(step)
        if key not in held:
            made += 1
            if len(held) == most:
                held.remove(max(held, key=lambda k: next(s for s in range(step, 9**9) if k in needs(s))))
            held.add(key)
    return made


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("most", [2, 5, 8, N])
def test_results_never_exceed_the_bound_and_few_are_made(most: int, seed: int) -> None:
    memory, needs, steps = Memory(), order(seed), 5 * N
    window = window_of(memory, needs, most)
    for step in range(steps):
        window.at(step)
        assert [window.of(key) for key in needs(step)] == list(needs(step))
        assert window.bytes <= 10 * most
    window.close()
    assert memory.most <= most
    # the next result is made while the present one is in use, and up to `most` are made for later steps
    assert fewest(needs, steps, most) <= window.made <= fewest(needs, steps, most - 1) + most


@pytest.mark.parametrize("in_use", [1, 3])
def test_a_result_keeps_its_memory_for_some_steps(in_use: int) -> None:
    memory, needs = Memory(), order(4)
    window = window_of(memory, needs, in_use + 3, in_use)
    used: dict[int, int] = {}
    dropped: list[tuple[int, int]] = []  # key and step
    window._drop = lambda key: (dropped.append((key, step)), memory.drop(key))  # type: ignore[assignment,func-returns-value]
    for step in range(6 * N):
        window.at(step)
        for key, when in dropped:
            assert when - used[key] > in_use
        dropped.clear()
        for key in needs(step):
            used[key] = step
            assert window.of(key) == key
    window.close()
    assert memory.most <= in_use + 3


def test_a_jump_to_any_step_finds_its_results() -> None:
    memory, needs = Memory(), order(5)
    window = window_of(memory, needs, 4, in_use=1)
    for step in (0, 1, 40, 41, 7, 8, 8, 9, 1000, 3):
        window.at(step)
        assert [window.of(key) for key in needs(step)] == list(needs(step))
        assert window.bytes <= 40
    window.close()


def test_results_larger_than_expected_free_memory_before_the_next() -> None:
    needs = order(6)
    window = Window(
        lambda key: key, Schedule(needs, 2 * N), Budget(60, lambda key: 5, 0), lambda result: 10, lambda key: None
    )
    for step in range(6 * N):
        window.at(step)
        assert window.of(needs(step)[0]) == needs(step)[0]
    assert window.bytes <= 60
    window.close()


def test_an_error_is_raised_where_its_result_is_needed() -> None:
    needs = order(7)

    def work(key: int) -> int:
        if key == needs(3)[0]:
            raise ValueError("damaged")
        return key

    window = Window(work, Schedule(needs, 2 * N), Budget(60, lambda key: 10, 0), lambda result: 10, lambda key: None)
    for step in range(3):
        window.at(step)
        window.of(needs(step)[0])
    window.at(3)
    with pytest.raises(ValueError, match="damaged"):
        window.of(needs(3)[0])
    window.close()
