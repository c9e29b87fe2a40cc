# SPDX-License-Identifier: Apache-2.0
"""Curves and bars as SVG. Colours and lines are the style sheet's; script.js shows the values of a curve under the pointer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nurec_lite.report.parts import escaped

WIDTH, HEIGHT = 360, 210  # of a chart, in units that are pixels where its column is that wide
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 12, 12, 40  # margins
COLOURS = 8  # of several curves, in style.css: run0 to run7
_BARS = 300  # of a chart at most; of more frames some are left out, evenly


@dataclass(frozen=True)
class Axis:
    """Ticks at places from `start` to `end` of the drawing. A value beyond the outermost ticks may still be drawn."""

    ticks: list[float]
    label: str
    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


@dataclass(frozen=True)
class Mark:
    """A point of its own, with a label."""

    x: float
    y: float
    label: str


def nice_ticks(
    low: float,
    high: float,
    wanted: int,
) -> list[float]:  # multiples of 1, 2 or 5 times a power of ten; the outermost lie at low and high or beyond
    largest = max(abs(low), abs(high))
    span = high - low if high - low > 1e-9 * largest else largest or 1.0  # equal but for rounding
    power = 10.0 ** math.floor(math.log10(span / wanted))
    step = next(m * power for m in (1, 2, 5, 10) if m * power * wanted >= 0.999 * span)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, max(last, first + 1) + 1)]


def tick_texts(ticks: list[float]) -> list[str]:
    """Texts with as many decimals as the step between them needs; powers of ten for long numbers."""
    largest, step = max(map(abs, ticks)), ticks[1] - ticks[0]
    if not 1e-3 <= largest < 1e6:
        return [_scientific(t) for t in ticks]
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return [f"{t:,.{digits}f}".replace(",", "\u202f") for t in ticks]


def _scientific(value: float) -> str:
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{float(mantissa):g}e{int(exponent)}" if value else "0"


def line_chart(
    title: str,
    unit: str,  # of y
    xs: Sequence[float],
    ys: Sequence[float],  # as many, at least one
    x_unit: str,
    mark: Mark | None = None,
    along: str = "training",  # the quantity of the x axis
    from_zero: bool = False,
) -> str:
    """One curve. The y axis begins at zero if that is wanted or costs little height."""
    marks = [mark] if mark else []
    low, high = (pick([*ys, *(m.y for m in marks)]) for pick in (min, max))
    right = max(*xs, *(m.x for m in marks), 1e-9)
    x = _x_axis([t for t in nice_ticks(0, right, 5) if t <= 1.001 * right], f"{along}, {x_unit}", 0, right)
    y = _y_axis(nice_ticks(0 if from_zero or 0 < low < 0.4 * high else low, high, 4))
    drawn = f'<polyline class="curve" points="{_points(x, y, xs, ys)}"/>' + "".join(_mark(x, y, m) for m in marks)
    return _chart(title, unit, x, y, drawn, _hover(x, y, x_unit, unit))


def _points(x: Axis, y: Axis, xs: Sequence[float], ys: Sequence[float]) -> str:
    return " ".join(f"{x.at(a):.2f},{y.at(b):.2f}" for a, b in zip(xs, ys, strict=True))


def _hover(x: Axis, y: Axis, x_unit: str, y_unit: str) -> str:
    """Attributes that let script.js show the values of a curve."""
    data = f'data-x="{x.low} {x.high} {x.start} {x.end}" data-y="{y.low} {y.high} {y.start} {y.end}"'
    return f'class="hover" {data} data-x-unit="{escaped(x_unit)}" data-y-unit="{escaped(y_unit)}"'


def curves_chart(
    title: str,
    unit: str,  # of y
    curves: Mapping[
        int, tuple[Sequence[float], Sequence[float]]
    ],  # number of the colour -> xs and ys, at least one point each
    names: Sequence[str],  # by the same numbers
    x_unit: str,
) -> str:
    """Several curves on the same axes. Their colours are explained by a legend elsewhere on the page."""
    every_x = [x for xs, _ in curves.values() for x in xs]
    every_y = [y for _, ys in curves.values() for y in ys]
    low, high, right = min(every_y), max(every_y), max(*every_x, 1e-9)
    x = _x_axis([t for t in nice_ticks(0, right, 5) if t <= 1.001 * right], f"training, {x_unit}", 0, right)
    y = _y_axis(nice_ticks(0 if 0 < low < 0.4 * high else low, high, 4))
    drawn = "".join(
        f'<polyline class="curve run{k % COLOURS}" data-name="{escaped(names[k])}" points="{_points(x, y, xs, ys)}"/>'
        for k, (xs, ys) in curves.items()
    )
    return _chart(title, unit, x, y, drawn, _hover(x, y, x_unit, unit))


def frame_chart(
    title: str,
    unit: str,
    indices: Sequence[int],  # of frames
    values: Sequence[float],  # as many; NaN leaves a gap
    digits: int,
    limits: tuple[float, float] | None = None,  # of the axis, with a dot for each frame; None: bars from zero
) -> str:
    """A bar or a dot for each frame, in order, and their mean as a line. Empty if there is no value."""
    known = [v for v in values if math.isfinite(v)]
    if not known:
        return ""
    mean, every = sum(known) / len(known), -(-len(values) // _BARS)
    shown = list(zip(indices, values, strict=True))[::every]
    low, high = limits or (0.0, max(known))
    y = _y_axis(nice_ticks(low, high, 4))
    labelled = range(0, len(shown), -(-len(shown) // 6))
    x = _x_axis([k + 0.5 for k in labelled], "frame", 0, len(shown))
    draw = _bar if limits is None else _dot
    drawn = "".join(draw(x, y, k, v, f"frame {i}: {v:.{digits}f} {unit}") for k, (i, v) in enumerate(shown))
    line = f'<line class="mean" x1="{x.start}" x2="{x.end}" y1="{y.at(mean):.2f}" y2="{y.at(mean):.2f}"/>'
    texts = [str(shown[k][0]) for k in labelled]
    return _chart(title, f"mean {mean:.{digits}f} {unit}", x, y, drawn + line, "", texts)


def _bar(x: Axis, y: Axis, place: int, value: float, text: str) -> str:
    if not math.isfinite(value):
        return ""
    left, width, top = x.at(place + 0.1), x.at(0.8) - x.at(0), y.at(value)
    shape = f'x="{left:.2f}" y="{top:.2f}" width="{width:.2f}" height="{max(y.start - top, 0.5):.2f}"'
    return f'<rect class="bar" {shape}><title>{escaped(text)}</title></rect>'


def _dot(x: Axis, y: Axis, place: int, value: float, text: str) -> str:
    if not math.isfinite(value):
        return ""
    shape = f'cx="{x.at(place + 0.5):.2f}" cy="{y.at(value):.2f}" r="3.5"'
    return f'<circle class="bar" {shape}><title>{escaped(text)}</title></circle>'


def _x_axis(ticks: list[float], label: str, low: float, high: float) -> Axis:
    return Axis(ticks, label, low, high, _LEFT, WIDTH - _RIGHT)


def _y_axis(ticks: list[float]) -> Axis:
    return Axis(ticks, "", ticks[0], ticks[-1], HEIGHT - _BOTTOM, _TOP)


def _mark(x: Axis, y: Axis, mark: Mark) -> str:
    """The label ends above the point, where no curve comes from the left."""
    a, b = x.at(mark.x), y.at(mark.y)
    text = f'<text class="label" x="{a + 4:.2f}" y="{b - 10:.2f}" text-anchor="end">{escaped(mark.label)}</text>'
    return f'<circle class="mark" cx="{a:.2f}" cy="{b:.2f}" r="4.5"/>{text}'


def _chart(
    title: str, note: str, x: Axis, y: Axis, drawn: str, attributes: str, x_texts: list[str] | None = None
) -> str:
    """Axes with their labels around the curves, below a title."""
    grid = "".join(
        f'<line class="grid" x1="{x.start}" x2="{x.end}" y1="{y.at(t):.2f}" y2="{y.at(t):.2f}"/>'
        f'<text x="{x.start - 6}" y="{y.at(t) + 3.5:.2f}" text-anchor="end">{text}</text>'
        for t, text in zip(y.ticks, tick_texts(y.ticks), strict=True)
    )
    below = "".join(
        f'<text x="{x.at(t):.2f}" y="{y.start + 15}" text-anchor="middle">{escaped(text)}</text>'
        for t, text in zip(x.ticks, x_texts or tick_texts(x.ticks), strict=True)
    )
    label = f'<text x="{(x.start + x.end) / 2:.2f}" y="{HEIGHT - 6}" text-anchor="middle">{escaped(x.label)}</text>'
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escaped(title)}" {attributes}>'
    caption = f'<figcaption>{escaped(title)} <span class="unit">{escaped(note)}</span></figcaption>'
    return f'<figure class="chart">{caption}{svg}{grid}{below}{label}{drawn}</svg></figure>'
