# SPDX-License-Identifier: Apache-2.0
"""The roofline: attained FLOP/s over arithmetic intensity, below the ceilings of compute and of memory (Williams et al. 2009)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from PIL import Image

from nurec_lite.profiling.draw.canvas import FAINT, INK, PAPER, SCALE, Canvas, Colour
from nurec_lite.profiling.ncu.kernel import Kernel
from nurec_lite.profiling.ncu.report import by_name
from nurec_lite.profiling.ncu.words import scaled

VERDICTS: dict[str | None, Colour] = {
    "latency-bound": (214, 96, 20),
    "compute-bound": (24, 96, 190),
    "memory-bound": (20, 138, 96),
    "balanced": (124, 70, 176),
    None: (140, 144, 150),
}
_WIDTH, _HEIGHT = 1200, 680  # pixels
_LEFT, _RIGHT, _TOP, _BOTTOM = 96, 760, 76, 606  # of the chart
_LEGEND = 792  # left edge
_NUMBERED = 24  # kernels with a number and a line in the legend
_SHARE = 0.95  # share of the time that the drawn kernels take together
_RADIUS, _ROOM = 6, 16.0  # of a dot, and about a number
_AROUND = ((16, 0), (-16, 0), (0, -17), (0, 17), (15, -15), (-15, -15), (15, 15), (-15, 15), (30, 0), (-30, 0))


@dataclass(frozen=True)
class LogAxis:
    """Values from `low` to `high` between the pixels `start` and `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def decades(self) -> list[float]:
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        return [10.0**k for k in range(first, last + 1)]


@dataclass(frozen=True)
class Ceilings:
    """The highest of all launches: the clock varies between them."""

    flop_per_s: float  # single precision
    bytes_per_s: float  # DRAM

    @property
    def ridge(self) -> float:  # FLOP a byte
        return self.flop_per_s / self.bytes_per_s


def ceilings(kernels: Sequence[Kernel]) -> Ceilings | None:
    """Returns the ceilings of compute and memory; None if they were not measured."""
    compute = [k.peak_flop_per_s for k in kernels if k.peak_flop_per_s]
    memory = [k.peak_bytes_per_s for k in kernels if k.peak_bytes_per_s]
    return Ceilings(max(compute), max(memory)) if compute and memory else None


def placed(kernel: Kernel) -> tuple[float, float] | None:
    """FLOP a byte and FLOP/s; None if it has no place on logarithmic axes."""
    return (kernel.intensity, kernel.flop_per_s) if kernel.intensity and kernel.flop_per_s else None


def longest(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Launches that take most of the time, in the order given: those of a microsecond lie decades below, and would press the others into a
    corner. All, where they are few or a time is not known."""
    times = sorted((k.ms for k in kernels if k.ms is not None), reverse=True)
    if len(times) < len(kernels) or len(by_name(kernels)) <= _NUMBERED:
        return list(kernels)
    enough = next(n for n, taken in enumerate(accumulate(times)) if taken >= _SHARE * sum(times))
    return [k for k in kernels if (k.ms or 0) >= times[enough]]


def draw_roofline(path: Path, kernels: Sequence[Kernel]) -> None:
    """Each of the `longest` launches as a dot in the colour of its verdict; kernels are numbered, the one with the longest launch first."""
    canvas, peaks, shown = Canvas(_WIDTH, _HEIGHT), ceilings(kernels), longest(kernels)
    short, kernels = len(kernels) - len(shown), shown
    left_out = f"; {short} short ones, {1 - _SHARE:.0%} of the time, are left out" if short else ""
    canvas.text(_LEFT, 30, "Roofline: single precision over DRAM", 20)
    canvas.text(_LEFT, 50, f"every dot a launch, numbers by the longest launch{left_out}", 12, FAINT)
    points = [p for p in map(placed, kernels) if p is not None]
    if peaks is None or not points:
        why = "the ceilings were not measured" if peaks is None else "no kernel counted single precision operations"
        canvas.text(_LEFT, 80, f"Nothing to draw: {why}.", 14)
    else:
        x, y = axes(points, peaks)
        _draw_axes(canvas, x, y)
        _draw_ceilings(canvas, x, y, peaks)
        _draw_kernels(canvas, x, y, kernels)
    _draw_legend(canvas, kernels)
    canvas.save(path)


def axes(
    points: list[tuple[float, float]],  # FLOP a byte, FLOP/s
    peaks: Ceilings,
) -> tuple[LogAxis, LogAxis]:  # x, y
    xs, ys = [x for x, _ in points], [y for _, y in points]
    low, high = min(*xs, peaks.ridge) / 3, max(*xs, peaks.ridge) * 6
    bottom, top = min(*ys, peaks.flop_per_s) / 3, max(*ys, peaks.flop_per_s) * 2.5
    return LogAxis(low, high, _LEFT, _RIGHT), LogAxis(bottom, top, _BOTTOM, _TOP)


def _draw_axes(canvas: Canvas, x: LogAxis, y: LogAxis) -> None:
    for value in x.decades():
        canvas.line(x.at(value), _TOP, x.at(value), _BOTTOM)
        canvas.text(x.at(value), _BOTTOM + 14, f"{value:g}", 12, FAINT, "m")
    for value in y.decades():
        canvas.line(_LEFT, y.at(value), _RIGHT, y.at(value))
        canvas.text(_LEFT - 7, y.at(value), scaled(value, ""), 12, FAINT, "r")
    canvas.line(_LEFT, _TOP, _LEFT, _BOTTOM, FAINT)
    canvas.line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, FAINT)
    canvas.text((_LEFT + _RIGHT) / 2, _BOTTOM + 42, "arithmetic intensity, FLOP a byte of DRAM", 14, FAINT, "m")
    _draw_upwards(canvas, 28, (_TOP + _BOTTOM) / 2, "attained, FLOP/s")


def _draw_upwards(
    canvas: Canvas,
    x: float,
    y: float,  # of the middle of the text
    text: str,
) -> None:
    strip = Canvas(canvas.length(text, 14) + 4, 22)
    strip.text(2, 11, text, 14, FAINT)
    turned = strip.image.transpose(Image.Transpose.ROTATE_90)
    canvas.image.paste(turned, (round(x * SCALE - turned.width / 2), round(y * SCALE - turned.height / 2)))


def _draw_ceilings(canvas: Canvas, x: LogAxis, y: LogAxis, peaks: Ceilings) -> None:
    """The slope begins where it enters the chart, at its left edge or at its bottom."""
    left = max(x.low, y.low / peaks.bytes_per_s)
    ridge, top = x.at(peaks.ridge), y.at(peaks.flop_per_s)
    start = (x.at(left), y.at(left * peaks.bytes_per_s))
    canvas.line(ridge, top, ridge, _BOTTOM, FAINT)
    path = [start, (ridge, top), (_RIGHT, top)]
    canvas.draw.line([(a * SCALE, b * SCALE) for a, b in path], INK, 2 * SCALE, joint="curve")
    canvas.text(_RIGHT, top - 13, f"FP32 {scaled(peaks.flop_per_s, 'FLOP/s')}", 14, anchor="r")
    middle = ((start[0] + ridge) / 2 - 12, (start[1] + top) / 2 - 8)
    canvas.text(*middle, f"DRAM {scaled(peaks.bytes_per_s, 'B/s')}", 14, anchor="r")
    canvas.text(ridge + 6, _BOTTOM - 13, f"ridge {peaks.ridge:.3g} FLOP/B", 12, FAINT)


def _draw_kernels(canvas: Canvas, x: LogAxis, y: LogAxis, kernels: Sequence[Kernel]) -> None:
    taken: list[tuple[float, float]] = []
    for kernel in kernels:
        if (place := placed(kernel)) is not None:
            taken.append((x.at(place[0]), y.at(place[1])))
            _draw_dot(canvas, *taken[-1], VERDICTS[kernel.verdict])
    for number, launches in enumerate(list(by_name(kernels).values())[:_NUMBERED], 1):
        if (place := placed(launches[0])) is not None:
            at = _beside((x.at(place[0]), y.at(place[1])), taken)
            taken.append(at)
            canvas.text(*at, str(number), 13, anchor="m")


def _beside(
    dot: tuple[float, float],
    taken: list[tuple[float, float]],  # pixels of dots and numbers
) -> tuple[float, float]:
    """The place farthest from all earlier drawings, up to the size of a number."""

    def room(place: tuple[float, float]) -> float:
        inside = _LEFT < place[0] < _RIGHT and _TOP < place[1] < _BOTTOM
        near = (max(abs(place[0] - a), abs(place[1] - b)) for a, b in taken)
        return min([_ROOM, *near]) if inside else 0.0

    return max(((dot[0] + dx, dot[1] + dy) for dx, dy in _AROUND), key=room)


def _draw_dot(canvas: Canvas, x: float, y: float, colour: Colour) -> None:
    corners = [(x - _RADIUS) * SCALE, (y - _RADIUS) * SCALE, (x + _RADIUS) * SCALE, (y + _RADIUS) * SCALE]
    canvas.draw.ellipse(corners, colour, PAPER, SCALE)


def _draw_legend(canvas: Canvas, kernels: Sequence[Kernel]) -> None:
    top, groups = 36, by_name(kernels)
    for verdict in dict.fromkeys(k.verdict for k in kernels):
        _draw_dot(canvas, _LEGEND + 6, top, VERDICTS[verdict])
        canvas.text(_LEGEND + 18, top, verdict or "no verdict")
        top += 20
    for number, (name, launches) in enumerate(list(groups.items())[:_NUMBERED], 1):
        top += 20
        canvas.text(_LEGEND + 16, top, str(number), 12, VERDICTS[launches[0].verdict], "r")
        note = "" if placed(launches[0]) else _absence(launches[0])
        room = _WIDTH - _LEGEND - 36 - canvas.length(note, 12)
        canvas.text(_LEGEND + 24, top, canvas.fitting(name, 12, room) + note, 12)
    if len(groups) > _NUMBERED:
        canvas.text(_LEGEND + 24, top + 20, f"and {len(groups) - _NUMBERED} shorter kernels", 12, FAINT)


def _absence(kernel: Kernel) -> str:
    return " (no FP32)" if kernel.flop_per_s == 0 else " (not measured)"
