# SPDX-License-Identifier: Apache-2.0
"""Curves and bars: axes, places and omissions."""

import math

import numpy as np
import pytest
from html_page import Page
from hypothesis import given
from hypothesis import strategies as st

from nurec_lite.report.charts import HEIGHT, WIDTH, Mark, frame_chart, line_chart, nice_ticks, tick_texts


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.integers(2, 8))
def test_ticks_are_round_and_hold_the_values(low: float, span: float, wanted: int) -> None:
    high = low + span
    ticks = nice_ticks(low, high, wanted)
    steps = np.diff(ticks)
    slack = 1e-6 * max(abs(low), abs(high), 1e-300)
    assert ticks[0] <= low + slack and ticks[-1] >= high - slack and 2 <= len(ticks) <= wanted + 3
    if span > 1e-6 * abs(low):
        assert np.allclose(steps, steps[0], rtol=1e-3) and len(set(tick_texts(ticks))) == len(ticks)
        mantissa = steps[0] / 10.0 ** math.floor(math.log10(steps[0] * 1.0000001))
        assert any(math.isclose(mantissa, m, rel_tol=1e-3) for m in (1, 2, 5))


def test_tick_texts() -> None:
    assert tick_texts([0.0, 0.05, 0.1]) == ["0.00", "0.05", "0.10"]
    assert tick_texts([0.0, 20000.0, 40000.0]) == ["0", "20\u202f000", "40\u202f000"]
    assert tick_texts([0.0, 2e-5, 4e-5]) == ["0", "2e-5", "4e-5"]


def test_curves_and_marks_lie_within_the_axes() -> None:
    xs, ys = [1.0, 2.0, 4.0], [3.0, -2.0, 10.0]
    parsed = Page(line_chart("t", "dB", xs, ys, "s", Mark(5, 12, "held out")))
    points = [tuple(map(float, p.split(","))) for p in (parsed.all("polyline")[0]["points"] or "").split()]
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in points)
    middle, lowest, highest = (y for _, y in points)  # SVG counts from the top
    assert highest < middle < lowest and middle == pytest.approx(lowest + (highest - lowest) * 5 / 12, abs=0.02)
    (circle,) = parsed.all("circle")
    assert float(circle["cx"] or 0) > points[-1][0] and float(circle["cy"] or 0) < points[-1][1]
    assert "held out" in parsed.texts and "training, s" in parsed.texts


def test_bars_are_as_high_as_their_values() -> None:
    parsed = Page(frame_chart("t", "m", [4, 9, 14], [0.1, math.nan, 0.2], 3))
    first, second = (float(a["height"] or 0) for a in parsed.all("rect"))
    assert second == pytest.approx(2 * first, abs=0.02)
    assert "frame 14: 0.200 m" in parsed.texts and "mean 0.150 m" in parsed.texts
    assert frame_chart("t", "m", [4], [math.nan], 3) == ""


def test_many_frames_are_thinned_out() -> None:
    parsed = Page(frame_chart("t", "dB", range(1000), [20.0 + k % 7 for k in range(1000)], 2))
    assert 150 <= len(parsed.all("rect")) <= 300


def test_dots_of_two_sensors_stand_on_one_axis() -> None:
    """The lowest frame of one of them is not lost at the edge of an axis of its own."""
    low, high = (Page(frame_chart("t", "dB", [1, 2], [v, v + 1], 2, (26.0, 31.0))).all("circle") for v in (26.0, 30.0))
    heights = [float(a["cy"] or 0) for a in (*low, *high)]
    assert heights == sorted(heights, reverse=True) and all(0 < y < HEIGHT for y in heights)
