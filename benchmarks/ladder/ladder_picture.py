# SPDX-License-Identifier: Apache-2.0
"""The waterfall of benchmarks/ladder/ladder.py: a bar a rung, and next to it the gain over the rung above."""

import math
from typing import Any

import numpy as np

from benchmarks.ladder.ladder_results import Row, how
from nurec_lite.profiling.draw.canvas import FAINT, INK, Canvas

_WIDTH, _LEFT, _RIGHT, _TOP, _ROW, _FOOT, _MARGIN = 960, 190, 230, 84, 40, 62, 16  # units of the canvas
_BAR, _SAVED, _LOST, _FAILED = (38, 99, 158), (176, 207, 232), (226, 160, 96), (176, 42, 48)
_STEPS = {
    1: 5,
    1.5: 3,
    2: 4,
    2.5: 5,
    3: 3,
    4: 4,
    5: 5,
    6: 3,
    8: 4,
}  # round numbers, and into how many parts an axis divides them
_LEGEND = {"median step, with quartiles": _BAR, "saved against the row above": _SAVED, "lost against it": _LOST}


def waterfall(
    rows: list[Row],
    conditions: dict[str, Any],  # conditions, of benchmarks/ladder/ladder.py
) -> np.ndarray:  # [h, w, 3] uint8
    page = Canvas(_WIDTH, _TOP + _ROW * len(rows) + _FOOT)
    page.text(_MARGIN, 24, "Time of a training step, option by option", size=18)
    page.legend(_MARGIN, 52, _LEGEND, _WIDTH - 2 * _MARGIN)
    top = ceiling(max((row.step_ms_q3 for row in rows if row.step_ms_q3 is not None), default=1.0))
    _axis(page, top, len(rows))
    before = None
    for k, row in enumerate(rows):
        _rung(page, _TOP + _ROW * (k + 0.5), row, before, top)
        before = row.step_ms if row.step_ms is not None else before
    bottom = _TOP + _ROW * len(rows) + 34
    for k, words in enumerate(_lines(how(conditions))):
        page.text(_MARGIN, bottom + 15 * k, words, 11, FAINT, width=_WIDTH - 2 * _MARGIN)
    return np.asarray(page.image)


def _lines(words: str) -> list[str]:
    """The conditions in two lines."""
    parts = words.split("; ")
    return ["; ".join(parts[:2]), "; ".join(parts[2:])]


def _axis(page: Canvas, top: float, n: int) -> None:
    for tick in np.linspace(0, top, _STEPS[mantissa(top)] + 1):
        x = _x(tick, top)
        page.line(x, _TOP - 4, x, _TOP + _ROW * n)
        page.text(x, _TOP - 12, f"{tick:g}" + (" ms" if tick == top else ""), 11, FAINT, "m")


def _rung(
    page: Canvas,
    y: float,  # of its middle
    row: Row,
    before: float | None,  # ms of the rung above
    top: float,  # ms at the end of the axis
) -> None:
    page.text(_LEFT - 10, y, row.rung, anchor="r", width=_LEFT - _MARGIN - 10)
    if row.error is not None or row.step_ms is None or row.step_ms_q1 is None or row.step_ms_q3 is None:
        page.text(_LEFT + 6, y, f"failed: {row.error}", 12, _FAILED, width=_WIDTH - _LEFT - _MARGIN - 6)
        return
    now = row.step_ms
    page.box(_x(0, top), y - 13, _x(now, top), y + 13, _BAR)
    if before is not None:
        low, high = sorted((now, before))
        page.box(_x(low, top), y - 13, _x(high, top), y + 13, _SAVED if now < before else _LOST)
    page.line(_x(row.step_ms_q1, top), y, _x(row.step_ms_q3, top), y, INK)
    for end in (row.step_ms_q1, row.step_ms_q3):
        page.line(_x(end, top), y - 5, _x(end, top), y + 5, INK)
    _figures(page, y, row)


def _figures(page: Canvas, y: float, row: Row) -> None:
    """The text next to a bar: time, speedup, and quality if measured."""
    words = f"{row.step_ms:.1f} ms"
    if row.speedup is not None:
        words += f"   {row.speedup:.2f}x"
    if row.psnr is not None:
        words += f"   {row.psnr:.2f} dB"
    page.text(_WIDTH - _RIGHT + 18, y, words)


def _x(ms: float, top: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * ms / top


def ceiling(value: float) -> float:
    """The next round number: one of _STEPS times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(round_ * power for round_ in (*_STEPS, 10) if round_ * power >= value * (1 - 1e-12))


def mantissa(top: float) -> float:
    """The mantissa of a round number."""
    return round(top / 10.0 ** math.floor(math.log10(top) + 1e-9), 6)
