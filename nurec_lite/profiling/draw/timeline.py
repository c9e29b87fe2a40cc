# SPDX-License-Identifier: Apache-2.0
"""timeline.png: one step, the one of median length. Ranges of the host by depth, waits, and work of the GPU, on one axis of time."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from nurec_lite.base.ranges import GRAPH
from nurec_lite.profiling.draw.canvas import (
    FAINT,
    GREY,
    INK,
    OTHER_STAGES,
    PALETTE,
    RULE,
    WAIT,
    Canvas,
    Colour,
    readable_on,
    stage_colours,
    stage_of,
    tint,
)
from nurec_lite.profiling.names import readable
from nurec_lite.profiling.summary.digest import Started, is_wait, pageable_copies, started, step_times
from nurec_lite.profiling.trace.trace import KERNEL, Range, Trace
from nurec_lite.report.charts import nice_ticks

WIDTH, LABELS, ROW, TOP, BOTTOM = 1400, 150, 22, 92, 56  # pixels
COPIES = (70, 74, 84)
_STREAMS = 4  # rows of kernels at most
_NAMED = 7  # kernels of a recording with a colour of their own


@dataclass(frozen=True)
class Block:
    start: int  # nanoseconds
    end: int
    colour: Colour
    text: str = ""


@dataclass(frozen=True)
class Row:
    label: str
    blocks: list[Block] = field(default_factory=list)


def median_step(trace: Trace) -> Range:
    """The step of median length; for an even number the lower one of the two."""
    times = step_times(trace)
    order = sorted(range(len(times)), key=lambda i: times[i])
    return trace.steps[order[(len(order) - 1) // 2]]


def draw_timeline(path: Path, trace: Trace, title: str) -> None:
    step = median_step(trace)
    colours = stage_colours([r.name for r in trace.ranges])
    names = named_colours(started(trace), colours.values())
    rows, end = rows_of(trace, step, colours, names)
    top = TOP + (ROW if names else 0)
    canvas = Canvas(WIDTH, top + ROW * len(rows) + BOTTOM)
    canvas.text(16, 24, title, 17)
    number = trace.steps.index(step) + 1
    canvas.text(
        16,
        48,
        f"step {number} of {len(trace.steps)}, the median step; it lasts {_ms(end - step.start)}",
        13,
        FAINT,
    )
    drawn = {name: colour for name, colour in colours.items() if _used(rows, colour)}
    waits = {"host waits": WAIT} if _used(rows, WAIT) else {}
    canvas.legend(16, 72, drawn | waits, WIDTH - 32)
    canvas.legend(16, 72 + ROW, names, WIDTH - 32)
    _axis(canvas, end - step.start, top, top + ROW * len(rows))
    for i, row in enumerate(rows):
        _row(canvas, row, top + ROW * i, step.start, end)
    canvas.save(path)


def _ms(ns: int) -> str:
    return f"{ns * 1e-6:.3g} ms"


def _used(rows: list[Row], colour: Colour) -> bool:
    return any(block.colour == colour for row in rows for block in row.blocks)


def rows_of(
    trace: Trace,
    step: Range,
    colours: dict[str, Colour],  # of the stages
    names: dict[str, Colour] | None = None,  # of a recording's kernels
) -> tuple[list[Row], int]:  # and the end of the picture, in nanoseconds
    found = [item for item in started(trace) if item.work.end > step.start]
    own = [item.work.end for item in found if step in item.ranges]
    end = max(step.end, *own) if own else step.end
    rows = _host_rows(trace, step, end, colours)
    if trace.gpu:
        rows += [_wait_row(trace, step.start, end)]
        rows += _kernel_rows([f for f in found if f.work.start < end], step, colours, names or {})
    return rows, end


def _host_rows(trace: Trace, step: Range, end: int, colours: dict[str, Colour]) -> list[Row]:
    """One row a depth of the thread that makes the steps, then of every other thread with ranges."""
    seen = [r for r in trace.ranges if r.end > step.start and r.start < end]
    threads = list(dict.fromkeys([step.thread, *(r.thread for r in seen)]))
    rows = []
    for thread in threads:
        mine = [r for r in seen if r.thread == thread]
        label = "host, ranges" if thread == step.thread else "host, other thread"
        for depth in sorted({r.name.count("/") for r in mine}):
            blocks = [_range_block(r, colours) for r in mine if r.name.count("/") == depth]
            rows.append(Row(label, blocks))
            label = ""
    return rows


def _range_block(r: Range, colours: dict[str, Colour]) -> Block:
    colour = colours[stage_of(r.name)]
    return Block(r.start, r.end, colour, r.name.rpartition("/")[2])


def _wait_row(trace: Trace, begin: int, end: int) -> Row:
    copies = pageable_copies(trace)
    calls = [c for c in trace.calls if is_wait(c, copies) and c.end > begin and c.start < end]
    return Row("host waits", [Block(c.start, c.end, WAIT) for c in calls])


def named_colours(found: Iterable[Started], taken: Iterable[Colour]) -> dict[str, Colour]:
    """Colours of the kernels that take longest, by name, where recordings launch most of the time: their range tells no stage."""
    kernels, times = [item for item in found if item.work.kind == KERNEL], Counter[str]()
    for item in kernels:
        if _recorded(item):
            times[_name(item)] += item.work.end - item.work.start
    if 2 * times.total() <= sum(item.work.end - item.work.start for item in kernels):
        return {}
    used = set(taken)
    free = [colour for colour in (*PALETTE, *OTHER_STAGES) if colour not in used]
    return {name: colour for (name, _), colour in zip(times.most_common(_NAMED), free, strict=False)}


def _recorded(item: Started) -> bool:
    return bool(item.ranges) and stage_of(item.ranges[0].name) == GRAPH


def _name(item: Started) -> str:
    return readable(item.work.name).partition("<")[0]


def _kernel_rows(found: list[Started], step: Range, colours: dict[str, Colour], names: dict[str, Colour]) -> list[Row]:
    """Kernels by stream, then copies and memsets. Grey is work that another step started, and a recording's shorter kernels."""
    kernels = [f for f in found if f.work.kind == KERNEL]
    streams = list(dict.fromkeys(f.work.stream for f in kernels))[:_STREAMS]
    rows = []
    for stream in streams:
        blocks = [_work_block(f, step, colours, names) for f in kernels if f.work.stream == stream]
        rows.append(Row("GPU, kernels" if len(streams) == 1 else f"GPU, stream {stream}", blocks))
    others = [Block(f.work.start, f.work.end, COPIES, f.work.name) for f in found if f.work.kind != KERNEL]
    return [*rows, Row("GPU, copies, sets", others)]


def _work_block(item: Started, step: Range, colours: dict[str, Colour], names: dict[str, Colour]) -> Block:
    name = _name(item)
    colour = colours[stage_of(item.ranges[0].name if item.ranges else None)] if step in item.ranges else GREY
    if names and _recorded(item):
        colour = names.get(name, GREY)
    return Block(item.work.start, item.work.end, colour, name)


def _axis(canvas: Canvas, span: int, top: float, bottom: float) -> None:
    ms = span * 1e-6
    for tick in nice_ticks(0, ms, 10):
        if tick <= ms * 1.0001:
            x = LABELS + tick / ms * (WIDTH - LABELS - 24)
            canvas.line(x, top, x, bottom + 6)
            canvas.text(x, bottom + 18, f"{tick:g}", 12, FAINT, "m")
    canvas.text(LABELS + (WIDTH - LABELS) / 2, bottom + 40, "ms since the step began", 12, FAINT, "m")


def _row(canvas: Canvas, row: Row, y: float, begin: int, end: int) -> None:
    scale = (WIDTH - LABELS - 24) / (end - begin)
    canvas.text(LABELS - 10, y + ROW / 2, row.label, 12, INK, "r", LABELS - 16)
    canvas.line(LABELS, y + ROW, WIDTH - 24, y + ROW, RULE)
    for block in row.blocks:
        x0, x1 = (LABELS + (min(max(t, begin), end) - begin) * scale for t in (block.start, block.end))
        canvas.box(x0, y + 2, x1, y + ROW - 2, block.colour)
        if x1 - x0 > 4:
            canvas.box(x0, y + 2, x0 + 0.5, y + ROW - 2, tint(block.colour, 0.6))
        if block.text and canvas.length(block.text, 11) < x1 - x0 - 6:
            canvas.text(x0 + 4, y + ROW / 2, block.text, 11, readable_on(block.colour))
