# SPDX-License-Identifier: Apache-2.0
"""Sizes of pictures follow their cost on the machine."""

import pytest

from nurec_lite.viewer.pace import MOVING_S, STILL_S, Pace


def learned(base: float, per_pixel: float, sizes: tuple[int, ...] = (10_000, 60_000, 200_000)) -> Pace:
    pace = Pace()
    for size in sizes:
        pace.learn(size, base + per_pixel * size)
    return pace


@pytest.mark.parametrize(("base", "per_pixel"), [(0.001, 1e-9), (0.01, 1e-6), (0.0, 1e-5), (0.2, 1e-6)])
def test_cost_is_found_from_pictures_of_different_sizes(base: float, per_pixel: float) -> None:
    pace = learned(base, per_pixel)
    assert pace.seconds(1_000_000) == pytest.approx(base + per_pixel * 1_000_000, rel=1e-6)


def test_a_fast_machine_draws_the_full_picture_at_once() -> None:
    assert learned(0.002, 2e-9).heights(1080, 16 / 9) == [1080]


def test_a_slow_machine_draws_a_coarse_picture_and_a_finer_one() -> None:
    pace = learned(0.005, 1e-6)
    coarse, fine = pace.heights(1080, 16 / 9)
    assert 48 <= coarse < fine < 1080
    for height, limit in ((coarse, MOVING_S), (fine, STILL_S)):
        cost = pace.seconds(height * height * 16 / 9)
        assert cost is not None and cost <= limit
    assert pace.heights(1080, 16 / 9, moving=True) == [coarse]


def test_a_picture_is_not_made_tiny_where_that_gains_nothing() -> None:
    """Each picture takes 0.3 s at any size: 0.06 s cannot be had."""
    assert learned(0.3, 1e-9).heights(1080, 16 / 9) == [1080]


def test_the_first_picture_is_coarse() -> None:
    assert Pace().heights(1080, 1.5) == [270, 1080] and Pace().heights(1080, 1.5, moving=True) == [270]
    assert Pace().heights(20, 1.5) == [20]


def test_measurements_of_one_size_are_enough() -> None:
    pace = learned(0.0, 1e-6, (100_000, 100_000, 101_000))
    assert pace.seconds(400_000) == pytest.approx(0.4, rel=0.02)
    assert (pace.seconds(1_000) or 0) >= 0.09  # a smaller picture may take as long
