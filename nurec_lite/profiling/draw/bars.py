# SPDX-License-Identifier: Apache-2.0
"""kernels.png and ranges.png: horizontal bars of milliseconds a step."""

from dataclasses import dataclass
from pathlib import Path

from nurec_lite.profiling.draw.canvas import FAINT, GREY, Canvas, Colour, stage_colours, stage_of
from nurec_lite.profiling.names import readable
from nurec_lite.profiling.summary.summary import KernelTime, RangeTime, Summary
from nurec_lite.report.charts import nice_ticks

WIDTH, ROW, TOP, BOTTOM = 1200, 24, 84, 52  # pixels
KERNELS = 20  # that are drawn
HOST, GPU = (120, 130, 145), (38, 110, 176)


@dataclass(frozen=True)
class Line:
    label: str
    bars: tuple[tuple[float, Colour], ...]  # milliseconds, one below another
    right: str  # text after the bars


def draw_ranges(path: Path, summary: Summary) -> None:
    """The host's time of each range, and the GPU's."""
    gpu = summary.gpu_busy is not None
    lines = [_range_line(r) for r in summary.ranges]
    legend = {"on the host": HOST} | ({"on the GPU, from the first to the last thing it started": GPU} if gpu else {})
    _draw(path, "Time of each range", lines, legend, 300)


def _range_line(r: RangeTime) -> Line:
    bars = [(ms, colour) for ms, colour in ((r.cpu_ms, HOST), (r.gpu_ms, GPU)) if ms is not None]
    launches = "" if r.launches is None else f", {launched(r.launches)}"
    label = "    " * r.name.count("/") + r.name.rpartition("/")[2]
    return Line(label, tuple(bars), " / ".join(f"{ms:.3g}" for ms, _ in bars) + " ms" + launches)


def draw_kernels(path: Path, summary: Summary) -> None:
    """The kernels that take the most of the GPU's time, coloured by the stage that starts them."""
    colours = stage_colours([r.name for r in summary.ranges])
    shown = summary.kernels[:KERNELS]
    lines = [_kernel_line(k, colours) for k in shown]
    used = {stage_of(k.range) for k in shown}
    legend = {stage: colour for stage, colour in colours.items() if stage in used}
    rest = summary.kernels[KERNELS:]
    if rest:
        ms = sum(k.ms for k in rest)
        lines.append(Line(f"{len(rest)} others", ((ms, GREY),), f"{ms:.3g} ms, {launched(sum(k.count for k in rest))}"))
    _draw(path, "Kernels by their time on the GPU", lines, legend, 420)


def _kernel_line(k: KernelTime, colours: dict[str, Colour]) -> Line:
    registers = "" if k.registers is None else f", {k.registers} registers"
    shared = "" if not k.shared else f", {k.shared / 1024:.3g} KiB shared"
    right = f"{k.ms:.3g} ms, {launched(k.count)}{registers}{shared}"
    return Line(readable(k.name), ((k.ms, colours[stage_of(k.range)]),), right)


def launched(count: float) -> str:
    return f"{count:g} launch" + ("" if count == 1 else "es")


def _draw(path: Path, title: str, lines: list[Line], legend: dict[str, Colour], labels: float) -> None:
    canvas = Canvas(WIDTH, TOP + ROW * len(lines) + BOTTOM)
    canvas.text(16, 24, title, 17)
    canvas.legend(16, 54, legend, WIDTH - 32)
    texts = max((canvas.length(line.right, 12) for line in lines), default=0) + 16
    longest = max((ms for line in lines for ms, _ in line.bars), default=1.0) or 1.0
    ticks = nice_ticks(0, longest, 6)
    scale = (WIDTH - labels - texts - 24) / ticks[-1]
    bottom = TOP + ROW * len(lines)
    for tick in ticks:
        x = labels + tick * scale
        canvas.line(x, TOP - 4, x, bottom + 6)
        canvas.text(x, bottom + 16, f"{tick:g}", 12, FAINT, "m")
    canvas.text(labels + ticks[-1] * scale / 2, bottom + 38, "ms a step", 12, FAINT, "m")
    for i, line in enumerate(lines):
        _line(canvas, line, TOP + ROW * i, labels, scale)
    canvas.save(path)


def _line(canvas: Canvas, line: Line, y: float, labels: float, scale: float) -> None:
    canvas.text(16, y + ROW / 2, line.label, 12, width=labels - 28)
    height = (ROW - 6) / max(1, len(line.bars))
    for i, (ms, colour) in enumerate(line.bars):
        if ms > 0:
            canvas.box(labels, y + 3 + i * height, labels + ms * scale, y + 3 + (i + 1) * height, colour)
    end = max((ms for ms, _ in line.bars), default=0) * scale
    canvas.text(labels + end + 8, y + ROW / 2, line.right, 12, FAINT)
