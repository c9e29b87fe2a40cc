# SPDX-License-Identifier: Apache-2.0
"""An nsys export as a trace: of the process that made the steps, ranges by NVTX, calls and works by CUPTI."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

from nurec_lite.base import nvtx
from nurec_lite.base.ranges import STEP
from nurec_lite.profiling.errors import ProfileError
from nurec_lite.profiling.trace.nsys_export import Export, Rows
from nurec_lite.profiling.trace.trace import COPY, KERNEL, MEMSET, Call, Range, Trace, Work, plain_name

_PUSH_POP, _DOMAIN = 59, 75  # types of NVTX events: a range that was pushed and popped, a domain that was made
_COPIES = {
    1: "host to device", 2: "device to host", 3: "host to array", 4: "array to host", 5: "array to array",
    6: "array to device", 7: "device to array", 8: "device to device", 9: "host to host", 10: "peer to peer",
}  # fmt: skip
_MEMORY = {0: "pageable", 1: "pinned"}  # of the host, where the file does not list the kinds itself
_KERNELS, _CALLS, _EVENTS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
_WORK = ("start", "end", "correlationId", "globalPid?", "streamId?")


def read_nsys(path: Path) -> Trace:
    """Reads an export of nsys; ProfileError if the file is none, the capture is empty, or a table or column is missing."""
    export = Export(path)
    strings = export.strings()
    events = _step_events(export, strings)
    pids = Counter(_pid(row["globalTid"]) for row in events)
    pid = pids.most_common(1)[0][0]
    mine = [row for row in events if _pid(row["globalTid"]) == pid]
    ranges = [Range(r["name"], r["start"], r["end"], r["globalTid"]) for r in mine if r["end"] is not None]
    if STEP not in {r.name for r in ranges}:
        raise ProfileError(
            f"no range '{STEP}' of {path} ends before the capture does; record more steps, or let them end"
        )
    works = _works(export, strings, pid)
    if not any(work.kind == KERNEL for work in works):
        raise ProfileError(_no_kernels(export))
    notes = (*_left_out(len(mine) - len(ranges), len(pids)), *_whole_graphs(export))
    return Trace(_by_start(ranges), _by_start(_calls(export, strings, pid)), _by_start(works), notes=notes)


def _by_start(rows: list[Any]) -> tuple[Any, ...]:
    return tuple(sorted(rows, key=lambda row: (row.start, -row.end)))


def _pid(global_id: int) -> int:
    """Process id: the 24 bits above the 24 bits of the thread."""
    return (global_id >> 24) & 0xFFFFFF


def _step_events(export: Export, strings: dict[int, str]) -> Rows:
    """Ranges of the step, of all processes."""
    rows = _named_events(export, strings)
    domains = {(_pid(row["globalTid"]), row["domainId"]): row["name"] for row in rows if row["eventType"] == _DOMAIN}
    pushed = [row for row in rows if row["eventType"] == _PUSH_POP]
    found = [row for row in pushed if _of_the_step(row["name"]) and _in_our_domain(row, domains)]
    if not any(row["name"] == STEP for row in found):
        names = sorted({row["name"] for row in pushed})
        there = f"its ranges are {', '.join(names[:8])}" if names else "it holds no ranges"
        raise ProfileError(
            f"the capture {export.path} has no range '{STEP}' ({there}), so no training step was recorded; "
            f"give a longer window (steps=N), and see nsys.log next to it{'' if names else nvtx.remedy()}"
        )
    return found


def _named_events(export: Export, strings: dict[int, str]) -> Rows:
    """Events with their names, which stand in the row itself, or once for all if the process registered them."""
    columns = ("start", "end", "eventType", "globalTid", "text?", "textId?", "domainId?")
    rows = export.rows(_EVENTS, *columns)
    for row in rows:
        row["name"] = row["text"] if row["text"] is not None else strings.get(row["textId"])
    return [row for row in rows if row["name"] is not None]


def _of_the_step(name: str) -> bool:
    return name == STEP or name.startswith(f"{STEP}/")


def _in_our_domain(
    row: dict[str, Any],
    domains: dict[tuple[int, int], str],  # (process, number) -> name
) -> bool:
    """Whether an event may be ours. Torch's binding, and so every earlier report, has the default domain, number 0; a domain without a name
    may be ours."""
    name = domains.get((_pid(row["globalTid"]), row["domainId"])) if row["domainId"] else None
    return name in (None, nvtx.DOMAIN)


def _calls(export: Export, strings: dict[int, str], pid: int) -> list[Call]:
    export.need(_CALLS)
    rows = export.rows(_CALLS, "start", "end", "globalTid", "correlationId", "nameId")
    return [
        Call(_api_name(strings.get(r["nameId"], "?")), r["start"], r["end"], r["globalTid"], r["correlationId"])
        for r in rows
        if _pid(r["globalTid"]) == pid
    ]


def _api_name(
    name: str,  # cudaLaunchKernel_ptsz_v7000
) -> str:  # cudaLaunchKernel
    return re.sub(r"(_ptsz|_ptds)?(_v\d+)?$", "", name)


def _works(export: Export, strings: dict[int, str], pid: int) -> list[Work]:
    kernels = export.rows(
        _KERNELS,
        *_WORK,
        "demangledName|shortName",
        "registersPerThread?",
        "staticSharedMemory?",
        "dynamicSharedMemory?",
        "graphNodeId?",
    )
    copies = export.rows("CUPTI_ACTIVITY_KIND_MEMCPY", *_WORK, "bytes?", "copyKind", "srcKind?", "dstKind?")
    memsets = export.rows("CUPTI_ACTIVITY_KIND_MEMSET", *_WORK, "bytes?")
    works = [_kernel(row, strings) for row in kernels if _of(row, pid)]
    memory = _memory_kinds(export)
    works += [_work(row, COPY, _copy_name(row, memory)) for row in copies if _of(row, pid)]
    return works + [_work(row, MEMSET, MEMSET) for row in memsets if _of(row, pid)]


def _of(row: dict[str, Any], pid: int) -> bool:
    return row["globalPid"] is None or _pid(row["globalPid"]) == pid


def _work(row: dict[str, Any], kind: str, name: str) -> Work:
    return Work(kind, name, row["start"], row["end"], row["correlationId"], row["streamId"], bytes=row["bytes"])


def _kernel(row: dict[str, Any], strings: dict[int, str]) -> Work:
    static, dynamic = row["staticSharedMemory"], row["dynamicSharedMemory"]
    return Work(
        KERNEL,
        plain_name(strings.get(row["demangledName"], "?")),
        row["start"],
        row["end"],
        row["correlationId"],
        row["streamId"],
        registers=row["registersPerThread"],
        shared_static=static,
        shared_dynamic=dynamic,
        shared=None if static is None or dynamic is None else static + dynamic,
        node=bool(row["graphNodeId"]),
    )


def _memory_kinds(export: Export) -> dict[int, str]:
    listed = {row["id"]: str(row["label"]).lower() for row in export.rows("ENUM_CUDA_MEM_KIND", "id", "label")}
    return {kind: name for kind, name in listed.items() if name in _MEMORY.values()} or _MEMORY


def _copy_name(row: dict[str, Any], kinds: dict[int, str]) -> str:
    """Name of a copy with the kind of the host's memory, if the host takes part."""
    name = _COPIES.get(row["copyKind"], f"copy of kind {row['copyKind']}")
    side = "srcKind" if name.startswith("host") else "dstKind"
    memory = kinds.get(row[side]) if "host" in name else None
    return f"{name}, {memory}" if memory else name


def _no_kernels(export: Export) -> str:
    """Returns the reason for a report without kernels, as far as nsys says it."""
    diagnostics = [row["text"] for row in export.rows("DIAGNOSTIC_EVENT", "text?")]
    about_cuda = next(
        (f" (nsys says: {text.strip().rstrip('.')})" for text in diagnostics if text and "CUDA" in text), ""
    )
    graphs = " of graphs only; trace them by node" if export.table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE") else ""
    return (
        f"the capture {export.path} holds ranges but no kernels{graphs}{about_cuda}; check that the driver is as new as "
        "nsys wants it and that no other profiler is attached, or use tool=torch"
    )


def _left_out(unfinished: int, processes: int) -> tuple[str, ...]:
    ranges = (f"{unfinished} ranges had not ended when the capture did; they are left out.",) if unfinished else ()
    others = (f"{processes} processes made steps; the figures are of the one with the most ranges.",)
    return ranges + (others if processes > 1 else ())


def _whole_graphs(export: Export) -> tuple[str, ...]:
    rows = export.rows("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "start")
    return (f"{len(rows)} CUDA graphs were recorded as a whole; their kernels are missing.",) if rows else ()
