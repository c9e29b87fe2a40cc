# SPDX-License-Identifier: Apache-2.0
"""One sweep of a drive that holds its points twice, has times of another turn, is mirrored, or was copied from another moment."""

from dataclasses import replace

import pytest
import torch
from street_sweeps import Change, doubts, street, with_sweeps

from nurec_lite.capture.checks.odd_sweeps import odd_sweeps
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level
from nurec_lite.geometry.lidar import Sweep


def twice(sweep: Sweep) -> Sweep:
    return sweep.select(torch.arange(len(sweep)).repeat(2))


def turned(part: float) -> Change:
    def times(sweep: Sweep) -> Sweep:
        first, last = sweep.times.amin(), sweep.times.amax()
        return replace(sweep, times=first + torch.remainder(sweep.times - first + part * (last - first), last - first))

    return times


def mirrored(sweep: Sweep) -> Sweep:
    return replace(sweep, directions=sweep.directions * torch.tensor([1.0, -1.0, 1.0]))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (twice, "Sweep 23 of lidar holds 2.0 times as many points as those before and after it."),
        (turned(0.5), "Times of rays of sweep 23 of lidar are 0.50 turns"),
        (turned(0.25), "Times of rays of sweep 23 of lidar are 0.25 turns later"),
        (turned(-0.25), "Times of rays of sweep 23 of lidar are 0.25 turns earlier"),
        (mirrored, "The frames before and after show another view than sweep 23 of lidar."),
    ],
)
def test_one_sweep_that_is_odd_is_named(change: Change, sentence: str) -> None:
    (found,) = doubts(with_sweeps(change, 23))
    assert (
        found.level is Level.LIKELY
        and found.sentence.startswith(sentence)
        and "or leave the frame out by 'data.without=[lidar/23]'" in found.text
    )


@pytest.mark.parametrize("back", [2, 5, 20])
def test_a_sweep_of_another_moment_is_named(back: int) -> None:
    loads = {f.index: f.load for f in street().sweeps}
    sweeps = tuple(replace(f, load=loads[25 - back]) if f.index == 25 else f for f in street().sweeps)
    (found,) = doubts(replace(street(), sweeps=sweeps))
    assert found.sentence == (
        f"The content of sweep 25 of lidar is that of sweep {25 - back}, although the vehicle moves."
    )


@pytest.mark.parametrize("change", [twice, turned(0.5)])
@pytest.mark.parametrize("numbers", [range(50), range(25, 50), ()])
def test_many_such_sweeps_are_no_exception(change: Change, numbers: range) -> None:
    odd = with_sweeps(change, *numbers)
    assert list(odd_sweeps(Sample(odd), odd.sweeps, "rays")) == []


@pytest.mark.parametrize("count", [0, 1, 2, 6])
def test_few_sweeps_tell_nothing(count: int) -> None:
    odd = with_sweeps(twice, 1)
    assert list(odd_sweeps(Sample(odd), odd.sweeps[:count], "rays")) == []


def test_sweeps_without_points_tell_nothing() -> None:
    empty = with_sweeps(lambda sweep: sweep.select(slice(0, 0)), *range(50))
    assert list(odd_sweeps(Sample(empty), empty.sweeps, "rays")) == []
