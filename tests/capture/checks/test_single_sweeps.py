# SPDX-License-Identifier: Apache-2.0
"""One sweep of a drive that is wrong: its scale, its rings, its units. The same is found through the loaders of a training."""

from dataclasses import replace

import pytest
import torch
from street_sweeps import Change, doubts, street, with_sweeps

from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.turned_sweeps import turned_sweeps
from nurec_lite.capture.checks.verdict import Level
from nurec_lite.capture.plausible import in_time
from nurec_lite.capture.types import CaptureError, Marked, Returning
from nurec_lite.geometry.lidar import Sweep


def scaled(factor: float) -> Change:
    return lambda sweep: replace(sweep, ranges=factor * sweep.ranges)


def with_rings(sweep: Sweep) -> Sweep:
    return replace(sweep, rings=sweep.rings[torch.randperm(len(sweep), generator=torch.Generator().manual_seed(0))])


def without_numbers(sweep: Sweep) -> Sweep:
    return replace(sweep, ranges=torch.where(torch.arange(len(sweep)) % 100 == 0, torch.nan, sweep.ranges))


@pytest.mark.parametrize(
    ("change", "level", "sentence"),
    [
        (scaled(0.9), Level.LIKELY, "Ranges of sweep 23 of lidar are 0.90 times as long as those of the sweeps before and after it."),
        (with_rings, Level.CERTAIN, "Rays lie far from the beams of their rings in sweep 23 of lidar."),
        (without_numbers, Level.CERTAIN, "rays hold values that are no numbers in sweep 23 of lidar."),
        (lambda s: replace(s, intensities=255 * s.intensities), Level.CERTAIN, "between 0 and 1 in sweep 23 of lidar."),
    ],
)  # fmt: skip
def test_one_sweep_that_is_wrong_is_named(change: Change, level: Level, sentence: str) -> None:
    (found,) = doubts(with_sweeps(change, 23))
    assert (
        found.level is level
        and found.sentence.endswith(sentence)
        and "or leave the frame out by 'data.without=[lidar/23]'" in found.text
    )


def test_another_scale_from_a_sweep_on_is_named() -> None:
    (found,) = doubts(with_sweeps(scaled(0.9), *range(25, 50)))
    assert found.sentence == "From sweep 25 on, ranges of lidar are 0.90 times as long as before."


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_right_sweeps_are_not_doubted(count: int) -> None:
    assert doubts(replace(street(), sweeps=street().sweeps[:count])) == []


def test_the_loaders_of_a_training_can_do_the_same() -> None:
    """They refuse rays of other times. Checks of sweeps in another place, and of repeated ones, looked at none of them."""
    checked = in_time(street(), "street")
    assert all(isinstance(f.load, Marked) and isinstance(f.load, Returning) for f in checked.sweeps)
    files = {f.index: f.load for f in street().sweeps}
    again = tuple(replace(f, load=files[24]) if f.index == 25 else f for f in street().sweeps)
    (found,) = doubts(in_time(replace(street(), sweeps=again), "street"))
    assert "1 of 50 sweeps of lidar repeat the sweep before" in found.sentence


def test_a_sweep_that_cannot_be_loaded_names_the_key_that_leaves_it_out() -> None:
    """Its own loader, or rays of another time."""

    def broken() -> Sweep:
        raise CaptureError("0000000007.bin ends within a point; restore the file")

    one = street().sweeps[7]
    late = replace(one, load=lambda: replace(one.load(), times=one.load().times + 60))
    for frame, words in (
        (replace(one, load=broken), "ends within a point; restore the file"),
        (late, "street: sweep 7 of lidar"),
    ):
        (checked,) = in_time(replace(street(), sweeps=(frame,)), "street").sweeps
        with pytest.raises(CaptureError, match=rf"{words}.*, or leave the frame out by 'data.without=\[lidar/7\]'$"):
            checked.load()


def test_every_so_many_points_are_read_alone() -> None:
    load = street().sweeps[0].load
    assert isinstance(load, Returning)
    points, times = load.returns(7)
    assert torch.equal(points, load.returns()[0][::7]) and torch.equal(times, load.returns()[1][::7])


def test_a_sweep_that_is_turned_a_little_is_named() -> None:
    angle = torch.deg2rad(torch.tensor(12.0))
    R = torch.tensor([[angle.cos(), -angle.sin(), 0], [angle.sin(), angle.cos(), 0], [0, 0, 1]])
    odd = with_sweeps(lambda sweep: replace(sweep, directions=sweep.directions @ R.T), 23)
    (found,) = turned_sweeps(Sample(odd), odd.sweeps, "rays")
    assert found.level is Level.LIKELY
    assert found.sentence == "Sweep 23 of lidar is turned by about 12° against those before and after it."
    right = street()
    assert not list(turned_sweeps(Sample(right), right.sweeps, "rays"))
    assert not list(turned_sweeps(Sample(right), right.sweeps[:2], "rays"))
    assert not list(turned_sweeps(Sample(right), (), "rays"))
