# SPDX-License-Identifier: Apache-2.0
"""Table and picture of benchmarks/step/bench_budgets.py: images and ranges over seconds, a curve a set of arguments."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from nurec_lite.profiling.draw.canvas import FAINT, PALETTE, Canvas, Colour
from nurec_lite.report.charts import nice_ticks

Row = dict[str, Any]
PANELS = (("psnr", "PSNR of held-out images, dB"), ("lidar_median_abs_m", "lidar error, median, m"))
_WIDTH, _HEIGHT, _LEFT, _TOP, _WIDE, _HIGH, _GAP = 960, 430, 62, 96, 380, 260, 90  # units of the canvas


def table(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        head = f"{row['set']:>16} {row['budget']:6d} steps, seed {row['seed']}: "
        if "error" in row:
            lines.append(f"{head}failed: {row['error']}")
            continue
        lidar = f", lidar {row['lidar_median_abs_m']:.3f} m" if "lidar_median_abs_m" in row else ""
        lines.append(f"{head}{row['psnr']:.2f} dB{lidar}, {row['seconds_total']:.1f} s")
    return "\n".join(lines)


def points_of(rows: Sequence[Row], name: str, key: str) -> list[tuple[float, float]]:
    """Seconds and figure of each budget, medians over seeds, by seconds."""
    own = [row for row in rows if row["set"] == name and _drawn(row, key)]
    budgets = sorted({row["budget"] for row in own})
    groups = [[row for row in own if row["budget"] == budget] for budget in budgets]
    return sorted((median(r["seconds_total"] for r in group), median(r[key] for r in group)) for group in groups)


def _drawn(row: Row, key: str) -> bool:
    return row.get(key) is not None and math.isfinite(row[key]) and row.get("seconds_total", 0) > 0


def curves(report: dict[str, Any]) -> np.ndarray:  # [h, w, 3] uint8
    rows = report["rows"]
    names = list(dict.fromkeys(row["set"] for row in rows))
    colours = {name: PALETTE[k % len(PALETTE)] for k, name in enumerate(names)}
    page = Canvas(_WIDTH, _HEIGHT)
    page.text(16, 24, "Quality over seconds, from the start of the process to the checkpoint", size=18)
    page.legend(16, 52, colours, _WIDTH - 32)
    for k, (key, title) in enumerate(PANELS):
        _panel(page, _LEFT + k * (_WIDE + _GAP), rows, key, title, colours)
    machine = report.get("environment", {})
    page.text(
        16,
        _HEIGHT - 14,
        f"{machine.get('device', '')}, torch {machine.get('torch', '')}, commit {machine.get('commit', '')}",
        11,
        FAINT,
    )
    return np.asarray(page.image)


def _panel(page: Canvas, left: float, rows: Sequence[Row], key: str, title: str, colours: dict[str, Colour]) -> None:
    own = [row for row in rows if _drawn(row, key)]
    page.text(left, _TOP - 18, title, 13)
    if not own:
        page.text(left + 8, _TOP + 20, "no run measured it", 12, FAINT)
        return
    x = _seconds(page, left, [row["seconds_total"] for row in own])
    y = _figures(page, left, [row[key] for row in own])
    for name, colour in colours.items():
        points = [(x(a), y(b)) for a, b in points_of(rows, name, key)]
        for (x0, y0), (x1, y1) in pairwise(points):
            page.draw.line([(2 * x0, 2 * y0), (2 * x1, 2 * y1)], colour, 4)
        for row in own:
            if row["set"] == name:
                _dot(page, x(row["seconds_total"]), y(row[key]), colour)


def _seconds(page: Canvas, left: float, values: Sequence[float]) -> Callable[[float], float]:
    """A logarithmic axis: twice as long is as far everywhere."""
    low, high = math.log2(min(values)) - 0.2, math.log2(max(values)) + 0.2
    at = lambda v: left + _WIDE * (math.log2(v) - low) / (high - low)  # noqa: E731
    for exponent in range(math.ceil(low), math.floor(high) + 1):
        page.line(at(2.0**exponent), _TOP, at(2.0**exponent), _TOP + _HIGH)
        page.text(at(2.0**exponent), _TOP + _HIGH + 14, f"{2.0**exponent:g} s", 11, FAINT, "m")
    return at


def _figures(page: Canvas, left: float, values: Sequence[float]) -> Callable[[float], float]:
    ticks = nice_ticks(min(values), max(values), 5)
    at = lambda v: _TOP + _HIGH - _HIGH * (v - ticks[0]) / (ticks[-1] - ticks[0])  # noqa: E731
    for tick in ticks:
        page.line(left, at(tick), left + _WIDE, at(tick))
        page.text(left - 8, at(tick), f"{tick:g}", 11, FAINT, "r")
    return at


def _dot(page: Canvas, x: float, y: float, colour: Colour) -> None:
    page.draw.ellipse([2 * x - 6, 2 * y - 6, 2 * x + 6, 2 * y + 6], colour)
