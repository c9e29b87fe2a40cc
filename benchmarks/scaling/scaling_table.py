# SPDX-License-Identifier: Apache-2.0
"""Table and picture of benchmarks/scaling/bench_scaling.py: each measure over each axis, with the exponent of a fit."""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, NamedTuple

Rows = Sequence[dict[str, Any]]


class Measure(NamedTuple):
    """A column of the table."""

    key: str
    label: str
    form: str
    factor: float


MEASURES = (
    Measure("step_ms", "a step", "{:.2f} ms", 1.0),
    Measure("start_s", "start and checkpoint", "{:.1f} s", 1.0),
    Measure("peak_bytes", "memory", "{:.0f} MB", 1e-6),
)
SIZES: dict[str, tuple[str, Callable[[dict[str, Any]], float], str]] = {  # label, unit of the axis, and its format
    "frames": ("frames", lambda row: row["value"], "{:.0f}"),
    "pixels": ("pixels, share of all", lambda row: 1 / row["value"] ** 2, "{:.3g}"),
    "rays": ("rays a step", lambda row: row["value"], "{:,.0f}"),
    "gaussians": ("Gaussians", lambda row: row["gaussians"], "{:,.0f}"),
    "gpus": ("GPUs", lambda row: row["value"], "{:.0f}"),
}
WIDTH, PANEL, MARGIN = 640, 200, 14
COLOURS = ("#26639e", "#c46a1b", "#3a9658", "#96488e", "#777777")


def along(rows: Rows, axis: str) -> list[dict[str, Any]]:
    """The rows of an axis, by size."""
    return sorted((row for row in rows if row["axis"] == axis), key=SIZES[axis][1])


def exponent(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The slope p of the least-squares line through the logarithms: y grows as x to the power p."""
    a, b = [math.log(x) for x in xs], [math.log(y) for y in ys]
    centre, level = sum(a) / len(a), sum(b) / len(b)
    spread = sum((x - centre) ** 2 for x in a)
    return sum((x - centre) * (y - level) for x, y in zip(a, b, strict=True)) / spread if spread else 0.0


def table(rows: Rows) -> str:
    """Markdown: an axis a line, each measure from the smallest size to the largest, with its exponent."""
    head = "".join(f"{measure.label}|exponent|" for measure in MEASURES)
    lines = [f"|over|sizes|{head}", f"|---|---|{len(MEASURES) * '---|---:|'}"]
    for axis in dict.fromkeys(row["axis"] for row in rows):
        found = along(rows, axis)
        label, size, form = SIZES[axis]
        xs = [size(row) for row in found]
        cells = [label, ", ".join(form.format(x) for x in xs)]
        for measure in MEASURES:
            ys = [row[measure.key] * measure.factor for row in found]
            unit = measure.form.partition("} ")[2]
            numbers = [measure.form.format(y).removesuffix(f" {unit}") for y in ys]
            cells += [f"{', '.join(numbers)} {unit}", f"{exponent(xs, ys):.2f}"]
        lines.append(f"|{'|'.join(cells)}|")
    return "\n".join(lines)


def picture(rows: Rows) -> str:
    """SVG: a panel a measure, relative to the smallest size of each axis, both axes logarithmic."""
    axes = list(dict.fromkeys(row["axis"] for row in rows))
    panel = (WIDTH - MARGIN) / len(MEASURES) - MARGIN
    body = [
        f'<text x="{MARGIN + 120 * k}" y="20" font-size="12" fill="{COLOURS[k]}">{escape(SIZES[axis][0])}</text>'
        for k, axis in enumerate(axes)
    ]
    for m, measure in enumerate(MEASURES):
        body += _panel(rows, axes, measure, MARGIN + m * (panel + MARGIN), panel)
    height = PANEL + 70
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>', *body, "</svg>", ""])


def _panel(rows: Rows, axes: Sequence[str], measure: Measure, left: float, width: float) -> list[str]:
    """The curves of a measure; the dashed line is growth in proportion."""
    curves = [_curve(along(rows, axis), axis, measure) for axis in axes]
    top = max(max(value for curve in curves for point in curve for value in point), 0.1)
    scale, bottom = (width / top, (PANEL - 40) / top), PANEL + 20

    def at(point: tuple[float, float]) -> str:
        return f"{left + point[0] * scale[0]:.1f},{bottom - point[1] * scale[1]:.1f}"

    body = [
        f'<text x="{left:.1f}" y="46" font-size="12" fill="#222222">{escape(measure.label)}</text>',
        f'<polyline points="{at((0, 0))} {at((top, top))}" fill="none" stroke="#bbbbbb" stroke-dasharray="4 4"/>',
        f'<polyline points="{at((0, top))} {at((0, 0))} {at((top, 0))}" fill="none" stroke="#777777"/>',
        f'<text x="{left:.1f}" y="{bottom + 16}" font-size="11" fill="#777777">size, to {math.exp(top):.3g} times the smallest</text>',
    ]
    for k, curve in enumerate(curves):
        places = " ".join(at((x, max(y, 0.0))) for x, y in curve)
        body.append(f'<polyline points="{places}" fill="none" stroke="{COLOURS[k]}" stroke-width="2"/>')
    return body


def _curve(found: Rows, axis: str, measure: Measure) -> list[tuple[float, float]]:
    """Logarithms of size and measure, relative to the smallest size."""
    size = SIZES[axis][1]
    first = found[0]
    return [(math.log(size(row) / size(first)), math.log(row[measure.key] / first[measure.key])) for row in found]
