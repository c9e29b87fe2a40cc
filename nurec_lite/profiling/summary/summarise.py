# SPDX-License-Identifier: Apache-2.0
"""Summary of a trace and of the profiled process's report."""

from dataclasses import dataclass, replace
from typing import Any

from nurec_lite.profiling.summary import digest
from nurec_lite.profiling.summary.summary import Summary, Wait
from nurec_lite.profiling.summary.syncs import lines_a_step
from nurec_lite.profiling.trace.trace import COPY, KERNEL, Trace

SLOWER = (
    "A profiler slows the steps it records: its times are to be compared with one another, never quoted as results."
)
NO_GPU = "No GPU took part: what a GPU would do is not known, and the times are those of the host."
ONE_WAIT = "A copy to pageable memory and the synchronisation that follows it at once are counted as one."
BY_THREAD = (
    "A range's GPU time goes from the first to the last thing that it started; step and step/backward also count what "
    "autograd's own thread started for them."
)


@dataclass(frozen=True)
class Taken:
    """Conditions of a trace."""

    tool: str  # nsys or torch
    version: str | None
    command: str
    window: dict[str, Any]  # window-MODE.json
    lines: dict[str, int] | None = None  # FILE:LINE -> how often it waited in the window; None: not looked for
    estimates: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def summarise(trace: Trace, taken: Taken) -> Summary:
    n, times = len(trace.steps), digest.step_times(trace)
    step_ms = sum(times) / n
    summary = Summary(
        tool=taken.tool,
        tool_version=taken.version,
        command=taken.command,
        environment=taken.window["environment"],
        steps=n,
        step_ms=step_ms,
        gpu_busy=None,
        idle_ms=None,
        launches=None,
        syncs=None,
        copies=None,
        copied_bytes=None,
        peak_bytes=taken.window["peak_bytes"],
        step_times_ms=times,
        estimates=taken.estimates,
    )
    found = digest.started(trace)
    summary = replace(
        summary,
        ranges=digest.range_times(trace, found),
        notes=(SLOWER, *_fewer(n, taken.window["steps"]), *taken.notes, *trace.notes),
    )
    if not trace.gpu:
        return replace(summary, notes=(*summary.notes, NO_GPU))
    return _with_gpu(summary, trace, found, taken.lines)


def _with_gpu(summary: Summary, trace: Trace, found: list[digest.Started], lines: dict[str, int] | None) -> Summary:
    n, calls, busy = summary.steps, digest.inside_steps(trace), digest.busy(trace)
    assert busy is not None and summary.step_ms is not None
    waits, syncs = digest.waits(trace, calls), digest.count_waits(trace, calls) / n
    copies = [item.work for item in found if item.work.kind == COPY]
    sizes = [work.bytes for work in copies]
    counted = (ONE_WAIT,) if syncs < sum(wait.count for wait in waits) else ()
    return replace(
        summary,
        gpu_busy=busy,
        idle_ms=(1 - busy) * summary.step_ms,
        launches=sum(item.work.kind == KERNEL for item in found) / n,
        syncs=syncs,
        copies=len(copies) / n,
        copied_bytes=None if None in sizes else sum(size for size in sizes if size is not None) / n,
        kernels=digest.kernel_times(trace, found),
        waits=_with_lines(waits, lines or {}, n),
        copy_kinds=digest.copy_kinds(trace, found),
        gaps=digest.gaps(trace),
        graph_launches=digest.count_graphs(calls) / n,
        single_launches=digest.count_single(trace, found) / n,
        allocations=digest.count_allocations(calls) / n,
        notes=(*summary.notes, BY_THREAD, *counted, *_unplaced(found)),
    )


def _with_lines(waits: tuple[Wait, ...], lines: dict[str, int], n: int) -> tuple[Wait, ...]:
    """torch warns where it calls cudaStreamSynchronize; so the lines belong to that call."""
    return tuple(
        replace(wait, lines=lines_a_step(lines, n)) if wait.call == "cudaStreamSynchronize" else wait for wait in waits
    )


def _fewer(n: int, made: int) -> tuple[str, ...]:
    return (f"{made} steps were made, but {n} were recorded.",) if n != made else ()


def _unplaced(found: list[digest.Started]) -> tuple[str, ...]:
    n = sum(not item.ranges for item in found)
    return (f"{n} kernels and copies of the window were started outside all ranges.",) if n else ()
