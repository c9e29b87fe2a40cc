# SPDX-License-Identifier: Apache-2.0
"""summary.md: a summary in words and tables. Figures that the tool did not tell are written as unknown, never as 0."""

from collections.abc import Iterable, Sequence

from nurec_lite.profiling.names import readable
from nurec_lite.profiling.summary.summary import KernelTime, Summary

UNKNOWN = "unknown"
KERNELS = 30  # rows of the table


def markdown(
    summary: Summary,
    pictures: Sequence[str],  # names of files next to summary.md
) -> str:
    parts = [
        f"# Where the time of a step goes, by {summary.tool} {summary.tool_version or ''}".rstrip(),
        f"    {summary.command}",
        "## Read first",
        "\n".join(f"- {sentence}" for sentence in first(summary)),
        "\n\n".join(f"![{name.removesuffix('.png')}]({name})" for name in pictures),
        *_tables(summary),
        "## Notes",
        "\n".join(f"- {note}" for note in [*summary.notes, *_estimated(summary)]),
        "## Environment",
        "\n".join(f"- {what}: {which}" for what, which in summary.environment.items()),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def headline(summary: Summary) -> str:
    """The text that the command line prints."""
    return "\n".join(first(summary))


def first(summary: Summary) -> list[str]:
    """The sentences that lead to the largest costs."""
    found = [_time(summary), _idle(summary), _waits(summary), _counts(summary), _range(summary), _kernel(summary)]
    return [sentence for sentence in found if sentence is not None]


def _time(s: Summary) -> str:
    low, high = (min(s.step_times_ms), max(s.step_times_ms)) if s.step_times_ms else (s.step_ms, s.step_ms)
    return f"A step took {ms(s.step_ms)} while it was recorded ({s.steps} steps, {number(low)} to {ms(high)})."


def _idle(s: Summary) -> str | None:
    if s.gpu_busy is None:
        return None
    gap = f"; the longest gap is {ms(s.gaps[0].ms)}, with the host in {s.gaps[0].range or 'no range'}" if s.gaps else ""
    return f"Something ran on the GPU for {percent(s.gpu_busy)} of the time, and it idled {ms(s.idle_ms)} a step{gap}."


def _waits(s: Summary) -> str | None:
    if s.syncs is None:
        return None
    lines = [line for wait in s.waits for line in wait.lines]
    where = f", most often at {lines[0].partition(' ')[0]}" if lines else ""
    return f"Times a step that the host waited for the GPU: {number(s.syncs)}{where}."


def _counts(s: Summary) -> str | None:
    if s.launches is None:
        return None
    return f"Kernels a step: {number(s.launches)}; copies: {number(s.copies)}, of {_large(s.copied_bytes)} in all."


def _range(s: Summary) -> str | None:
    """The table of stages: the ranges directly in the step."""
    stages = [(r.cpu_ms if s.gpu_busy is None else r.gpu_ms, r.name) for r in s.ranges if r.name.count("/") == 1]
    known = [(time, name) for time, name in stages if time is not None]
    if not known:
        return None
    time, name = max(known)
    return f"The longest stage {'on the host' if s.gpu_busy is None else 'on the GPU'} is {name}, {ms(time)} a step."


def _kernel(s: Summary) -> str | None:
    if not s.kernels:
        return None
    total, k = sum(kernel.ms for kernel in s.kernels), s.kernels[0]
    return f"The kernel with the most time is `{readable(k.name)}`, {ms(k.ms)} a step, {percent(k.ms / total)} of all kernels' time."


def _tables(s: Summary) -> list[str]:
    ranges = [(r.name, number(r.count), number(r.cpu_ms), number(r.gpu_ms), number(r.launches)) for r in s.ranges]
    waits = [(w.call, number(w.count), number(w.ms), "<br>".join(w.lines)) for w in s.waits]
    copies = [(c.kind, number(c.count), size(c.bytes), number(c.ms)) for c in s.copy_kinds]
    gaps = [(number(g.start_ms), number(g.ms), g.range or "none") for g in s.gaps]
    return [
        *_section("Figures of a step", ["figure", "a step"], _figures(s)),
        *_section("Ranges", ["range", "times", "host, ms", "GPU, ms", "launches"], ranges),
        *_kernels(s),
        *_section("Host synchronisations", ["call", "times", "ms", "lines of Python"], waits),
        *_section("Copies", ["kind", "times", "bytes", "ms"], copies),
        *_section("Longest times without work on the GPU", ["at, ms", "ms", "host in"], gaps),
    ]


def _kernels(s: Summary) -> list[str]:
    head = ["kernel", "launches", "ms", "registers", "shared memory, bytes", "started in"]
    rows = [[f"`{readable(k.name)}`", number(k.count), number(k.ms), whole(k.registers), _shared(k), k.range or "no range"]
            for k in s.kernels[:KERNELS]]  # fmt: skip
    if "kernels.occupancy" in s.estimates:
        head.append("occupancy, %, estimated")
        rows = [[*row, number(k.occupancy)] for row, k in zip(rows, s.kernels, strict=False)]
    more = [f"{len(s.kernels) - KERNELS} more kernels are in summary.json."] if len(s.kernels) > KERNELS else []
    return [*_section("Kernels", head, rows), *more]


def _figures(s: Summary) -> list[tuple[str, str]]:
    rows = {"time, ms": number(s.step_ms)}
    if s.gpu_busy is not None:
        rows |= {
            "GPU busy": percent(s.gpu_busy),
            "GPU idle, ms": number(s.idle_ms),
            "kernels": number(s.launches),
            "CUDA graph launches": number(s.graph_launches),
            "kernels in no graph": number(s.single_launches),
            "host synchronisations": number(s.syncs),
            "copies": number(s.copies),
            "copied, bytes": size(s.copied_bytes),
            "calls that take or give back memory": number(s.allocations),
            "memory at most in the window, MiB": UNKNOWN if s.peak_bytes is None else f"{s.peak_bytes / 2**20:,.0f}",
        }
    return list(rows.items())


def _section(title: str, head: list[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"## {title}", table(head, rows)] if rows else []


def _shared(k: KernelTime) -> str:
    """Static and dynamic, or both together where the tool does not tell them apart."""
    if k.shared_static is None or k.shared_dynamic is None:
        return whole(k.shared)
    return f"{k.shared_static:,} + {k.shared_dynamic:,}"


def _estimated(s: Summary) -> list[str]:
    return [f"Estimated by {s.tool}, not counted: {', '.join(s.estimates)}."] if s.estimates else []


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns of figures to the right."""
    lines = [head, ["---"] + ["---:" if i else "---" for i in range(1, len(head))], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def number(value: float | None) -> str:
    """Four digits, all before the point of a large number."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _large(value: float | None) -> str:
    """Bytes, in the unit that suits."""
    if value is None:
        return f"{UNKNOWN} size"
    return next(
        f"{value / unit:.4g} {name}"
        for unit, name in ((1e6, "MB"), (1e3, "kB"), (1, "B"))
        if value >= unit or unit == 1
    )


def size(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def whole(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def ms(value: float | None) -> str:
    return UNKNOWN if value is None else f"{number(value)} ms"


def percent(share: float) -> str:
    return f"{100 * share:.3g} %"
