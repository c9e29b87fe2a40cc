# SPDX-License-Identifier: Apache-2.0
"""The figures of a summary, from a trace. A figure that is divided by the steps of the window is called "a step"."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from nurec_lite.profiling.summary.summary import Copy, Gap, KernelTime, RangeTime, Wait
from nurec_lite.profiling.trace.trace import COPY, KERNEL, Call, Owners, Range, Trace, Work

GAPS = 10  # that are listed
PAGEABLE_TO_HOST = "device to host, pageable"  # the host waits in such a copy even if it is called asynchronous
_WAITS = (
    "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cuCtxSynchronize", "cuStreamSynchronize",
    "cuEventSynchronize", "cudaMemcpy", "cudaMemcpy2D", "cudaMemcpy3D", "cudaMemcpyToSymbol", "cudaMemcpyFromSymbol",
    "cudaThreadSynchronize",
)  # fmt: skip
_GRAPHS = ("cudaGraphLaunch", "cuGraphLaunch")
_ALLOCATIONS = (
    "cudaMalloc", "cudaFree", "cudaMallocHost", "cudaHostAlloc", "cudaFreeHost", "cudaMallocManaged", "cuMemAlloc",
    "cuMemFree", "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap",
)  # fmt: skip
MS = 1e-6  # of a nanosecond


@dataclass(frozen=True)
class Started:
    """Work of the GPU, and the ranges that started it."""

    work: Work
    ranges: tuple[Range, ...]  # the innermost first


def started(trace: Trace) -> list[Started]:
    """All works of the window, in the order of their begin; without a range where the call that started them was not recorded."""
    calls = {call.correlation: call for call in reversed(trace.calls)}  # the first call of several
    owners, (begin, _) = Owners(trace), trace.window
    found = []
    for work in trace.works:
        if work.start >= begin:
            call = calls.get(work.correlation)
            found.append(Started(work, tuple(owners.around(call)) if call else ()))
    return found


def merged(works: list[Work]) -> list[tuple[int, int]]:
    """Union of their times: intervals that do not touch, in order."""
    union: list[tuple[int, int]] = []
    for work in sorted(works, key=lambda w: w.start):
        if union and work.start <= union[-1][1]:
            union[-1] = union[-1][0], max(union[-1][1], work.end)
        else:
            union.append((work.start, work.end))
    return union


def busy(trace: Trace) -> float | None:
    """Share of the window while something runs on the GPU."""
    if not trace.gpu:
        return None
    begin, end = trace.window
    return sum(b - max(a, begin) for a, b in merged(list(trace.works)) if b > begin) / (end - begin)


def gaps(trace: Trace) -> tuple[Gap, ...]:
    """The longest idle times of the GPU in the window."""
    if not trace.gpu:
        return ()
    begin, end = trace.window
    union = [(begin, begin), *((a, b) for a, b in merged(list(trace.works)) if b > begin), (end, end)]
    idle = sorted(((a, b) for (_, a), (b, _) in pairwise(union) if b > a), key=lambda gap: gap[0] - gap[1])
    owners = Owners(trace)
    return tuple(Gap((a - begin) * MS, (b - a) * MS, owners.at((a + b) // 2)) for a, b in idle[:GAPS])


def step_times(trace: Trace) -> tuple[float, ...]:
    """Milliseconds from the begin of each step to that of the next, of the last one to the end of the window."""
    starts = [step.start for step in trace.steps] + [trace.window[1]]
    return tuple((b - a) * MS for a, b in pairwise(starts))


def range_times(trace: Trace, found: list[Started]) -> tuple[RangeTime, ...]:
    n, by_range = len(trace.steps), _by_range(found)
    names = list(dict.fromkeys(r.name for r in trace.ranges))
    return tuple(
        _range_time(name, [r for r in trace.ranges if r.name == name], by_range, n, trace.gpu) for name in names
    )


def _range_time(name: str, instances: list[Range], by_range: dict[Range, list[Work]], n: int, gpu: bool) -> RangeTime:
    cpu = sum(r.end - r.start for r in instances) * MS / n
    if not gpu:
        return RangeTime(name, len(instances) / n, cpu, None, None)
    works = [by_range.get(r, []) for r in instances]
    extent = sum(max(w.end for w in some) - min(w.start for w in some) for some in works if some) * MS / n
    launches = sum(w.kind == KERNEL for some in works for w in some) / n
    return RangeTime(name, len(instances) / n, cpu, extent, launches)


def _by_range(found: list[Started]) -> dict[Range, list[Work]]:
    works: dict[Range, list[Work]] = {}
    for item in found:
        for r in item.ranges:
            works.setdefault(r, []).append(item.work)
    return works


def kernel_times(trace: Trace, found: list[Started]) -> tuple[KernelTime, ...]:
    by_name: dict[str, list[Started]] = {}
    for item in found:
        if item.work.kind == KERNEL:
            by_name.setdefault(item.work.name, []).append(item)
    rows = [_kernel_time(name, items, len(trace.steps)) for name, items in by_name.items()]
    return tuple(sorted(rows, key=lambda row: -row.ms))


def _kernel_time(name: str, items: list[Started], n: int) -> KernelTime:
    works = [item.work for item in items]
    ranges = Counter(item.ranges[0].name for item in items if item.ranges)
    return KernelTime(
        name,
        len(works) / n,
        _total_ms(works) / n,
        _largest(w.registers for w in works),
        _largest(w.shared_static for w in works),
        _largest(w.shared_dynamic for w in works),
        ranges.most_common(1)[0][0] if ranges else None,
        _largest(w.shared for w in works),
        _mean_occupancy(works),
    )


def _mean_occupancy(works: list[Work]) -> float | None:
    """Weighted by time."""
    stated = [(w.occupancy, w.end - w.start) for w in works if w.occupancy is not None]
    total = sum(time for _, time in stated)
    return sum(share * time for share, time in stated) / total if total else None


def _largest(values: Iterable[int | None]) -> int | None:
    return max((v for v in values if v is not None), default=None)


def _total_ms(works: list[Work]) -> float:
    return sum(w.end - w.start for w in works) * MS


def copy_kinds(trace: Trace, found: list[Started]) -> tuple[Copy, ...]:
    """Copies by their kind, and memsets."""
    n = len(trace.steps)
    by_name: dict[str, list[Work]] = {}
    for item in found:
        if item.work.kind != KERNEL:
            by_name.setdefault(item.work.name, []).append(item.work)
    rows = [Copy(name, len(works) / n, _total_bytes(works, n), _total_ms(works) / n) for name, works in by_name.items()]
    return tuple(sorted(rows, key=lambda row: -(row.ms or 0)))


def _total_bytes(works: list[Work], n: int) -> float | None:
    """A step; None if the tool did not tell it of all."""
    sizes = [w.bytes for w in works]
    return None if None in sizes else sum(size for size in sizes if size is not None) / n


def inside_steps(trace: Trace) -> list[Call]:
    """Calls between the begin of the first step and the end of the last one."""
    begin, end = trace.window[0], max(step.end for step in trace.steps)
    return [call for call in trace.calls if begin <= call.start < end]


def waits(trace: Trace, calls: list[Call]) -> tuple[Wait, ...]:
    """Calls that wait for the GPU on the host, by name."""
    copies, n = pageable_copies(trace), len(trace.steps)
    by_name: dict[str, list[Call]] = {}
    for call in calls:
        if call.name in _WAITS:
            by_name.setdefault(call.name, []).append(call)
        elif call.correlation in copies:
            by_name.setdefault(f"{call.name} ({PAGEABLE_TO_HOST})", []).append(call)
    rows = [Wait(name, len(some) / n, sum(c.end - c.start for c in some) * MS / n) for name, some in by_name.items()]
    return tuple(sorted(rows, key=lambda row: -(row.ms or 0)))


def count_waits(trace: Trace, calls: list[Call]) -> int:
    """Number of waits of the host: a pageable copy and the synchronisation in the thread's next call count once."""
    copies, count = pageable_copies(trace), 0
    pending: dict[int, bool] = {}  # thread -> whether its last call was such a copy
    for call in calls:
        count += is_wait(call, copies) and not (call.name in _WAITS and pending.get(call.thread, False))
        pending[call.thread] = call.correlation in copies and call.name not in _WAITS
    return count


def is_wait(call: Call, copies: set[int]) -> bool:
    """Whether a call waits; `copies` are the correlations of pageable copies to the host."""
    return call.name in _WAITS or call.correlation in copies


def pageable_copies(trace: Trace) -> set[int]:
    return {work.correlation for work in trace.works if work.kind == COPY and work.name == PAGEABLE_TO_HOST}


def count_allocations(calls: list[Call]) -> int:
    return sum(call.name in _ALLOCATIONS for call in calls)


def count_graphs(calls: list[Call]) -> int:
    return sum(call.name in _GRAPHS for call in calls)


def count_single(trace: Trace, found: list[Started]) -> int:
    """Kernels that the host launched one by one. Kernels of a graph are nodes, or share the correlation of its launch."""
    graphs = {call.correlation for call in trace.calls if call.name in _GRAPHS}
    kernels = [item.work for item in found if item.work.kind == KERNEL]
    return sum(not work.node and work.correlation not in graphs for work in kernels)
