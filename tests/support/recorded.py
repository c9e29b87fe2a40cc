# SPDX-License-Identifier: Apache-2.0
"""Two recorded steps whose figures can be computed by hand, and files in the formats of nsys and torch.profiler that hold a trace."""

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from nurec_lite.profiling.trace.trace import COPY, KERNEL, MEMSET, Call, Range, Trace, Work

US = 1000  # nanoseconds
PID, MAIN, AUTOGRAD = 4242, 7, 8
KERNELS = {  # name without arguments -> as a compiler demangles it
    "project<4>": "void project<4>(int, float *)",
    "blend": "blend(Params)",
    "renderBackward": "void renderBackward(Params, (anonymous namespace)::Grid)",
    "add": "add(float *, float)",
}
_COPIES = {"host to device": 1, "device to host": 2, "device to device": 8}
_MEMORY = {"pageable": 0, "pinned": 1}
_DDL = {
    "StringIds": "id INTEGER, value TEXT",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
    "NVTX_EVENTS": "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER, domainId INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, "
    "nameId INTEGER, returnValue INTEGER",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER, end INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, "
    "demangledName INTEGER, shortName INTEGER, registersPerThread INTEGER, staticSharedMemory INTEGER, "
    "dynamicSharedMemory INTEGER, graphNodeId INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER, end INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, "
    "bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start INTEGER, end INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, "
    "bytes INTEGER, value INTEGER",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INTEGER, end INTEGER, graphId INTEGER",
    "ENUM_CUDA_MEM_KIND": "id INTEGER, name TEXT, label TEXT",
    "DIAGNOSTIC_EVENT": "timestamp INTEGER, severity INTEGER, text TEXT",
}


def thread(number: int, pid: int = PID) -> int:
    """A thread's number in nsys's packed form."""
    return (1 << 48) | (pid << 24) | number


def two_steps() -> Trace:
    """Two steps of 1 ms each, one after the other; autograd works in a thread of its own."""
    steps = [_step(i * 1000 * US, i * 10) for i in range(2)]
    return Trace(*(tuple(chain.from_iterable(parts)) for parts in zip(*steps, strict=True)))


def _step(t: int, c: int) -> tuple[list[Range], list[Call], list[Work]]:
    """A step of 1000 microseconds: 365 of them with work of the GPU, 4 kernels, 1 copy that the host waits for."""

    def at(kind: type, name: str, start: float, end: float, *rest: Any) -> Any:
        return kind(name, t + round(start * US), t + round(end * US), *rest)

    main, autograd = thread(MAIN), thread(AUTOGRAD)
    ranges = [
        at(Range, "step", 0, 1000, main), at(Range, "step/render_camera", 100, 400, main),
        at(Range, "step/render_camera/blend", 200, 300, main), at(Range, "step/backward", 400, 700, main),
        at(Range, "step/backward/render", 450, 550, autograd), at(Range, "step/report", 800, 900, main),
    ]  # fmt: skip
    calls = [
        at(Call, "cudaLaunchKernel", 110, 120, main, c + 1), at(Call, "cudaLaunchKernel", 210, 220, main, c + 2),
        at(Call, "cudaLaunchKernel", 460, 470, autograd, c + 3), at(Call, "cuLaunchKernel", 560, 570, autograd, c + 4),
        at(Call, "cudaMemsetAsync", 710, 715, main, c + 5), at(Call, "cudaMemcpyAsync", 810, 840, main, c + 6),
        at(Call, "cudaStreamSynchronize", 841, 845, main, c + 7),
    ]  # fmt: skip

    def work(kind: str, name: str, start: int, end: int, correlation: int, **more: Any) -> Work:
        return Work(kind, name, t + start * US, t + end * US, c + correlation, 7, **more)

    works = [
        work(KERNEL, "project<4>", 130, 180, 1, registers=32, shared_static=0, shared_dynamic=0, shared=0),
        work(KERNEL, "blend", 250, 350, 2, registers=64, shared_static=1024, shared_dynamic=512, shared=1536),
        work(KERNEL, "renderBackward", 500, 650, 3, registers=167, shared_static=9216, shared_dynamic=0, shared=9216),
        work(KERNEL, "add", 650, 700, 4, registers=16, shared_static=0, shared_dynamic=0, shared=0),
        work(MEMSET, "memset", 720, 730, 5, bytes=4096),
        work(COPY, "device to host, pageable", 820, 825, 6, bytes=8),
    ]
    return ranges, calls, works


# ---- nsys


class NsysFile:
    """Rows of an export. Tables without rows are left out, as nsys does."""

    def __init__(self, trace: Trace | None = None, pid: int = PID, domain: int = 0) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.ids: dict[str, int] = {}
        self.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="3.20.2")
        if trace is not None:
            self.trace(trace, pid, domain)

    def add(self, table: str, **row: Any) -> None:
        self.rows.setdefault(table, []).append(row)

    def string(self, text: str) -> int:
        if text not in self.ids:
            self.ids[text] = len(self.ids) + 100
            self.add("StringIds", id=self.ids[text], value=text)
        return self.ids[text]

    def range(
        self,
        name: str,
        start: int,
        end: int | None,
        where: int,
        registered: bool = False,
        kind: int = 59,
        domain: int = 0,
    ) -> None:
        named = {"text": None, "textId": self.string(name)} if registered else {"text": name, "textId": None}
        self.add("NVTX_EVENTS", start=start, end=end, eventType=kind, globalTid=where, domainId=domain, **named)

    def domain(self, name: str, number: int, pid: int = PID, registered: bool = False) -> None:
        """Records that a process made a domain."""
        self.range(name, 0, None, thread(MAIN, pid), registered, kind=75, domain=number)

    def trace(self, trace: Trace, pid: int = PID, domain: int = 0) -> None:
        for i, r in enumerate(trace.ranges):
            self.range(r.name, r.start, r.end, r.thread, registered=i % 2 == 1, domain=domain)
        for call in trace.calls:
            name = f"{call.name}_v7000" if call.name.startswith("cuda") else call.name
            self.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=call.start, end=call.end, globalTid=call.thread, nameId=self.string(name),
                     correlationId=call.correlation, eventClass=0, returnValue=0)  # fmt: skip
        for work in trace.works:
            self.work(work, pid)

    def work(self, work: Work, pid: int) -> None:
        row = {"start": work.start, "end": work.end, "correlationId": work.correlation, "streamId": work.stream}
        row["globalPid"] = (1 << 48) | (pid << 24)
        if work.kind == KERNEL:
            name = {"demangledName": self.string(KERNELS.get(work.name, work.name)), "shortName": self.string("short")}
            shared = {"staticSharedMemory": work.shared_static, "dynamicSharedMemory": work.shared_dynamic}
            self.add(
                "CUPTI_ACTIVITY_KIND_KERNEL",
                **row,
                **name,
                **shared,
                registersPerThread=work.registers,
                graphNodeId=7 if work.node else None,
            )
        elif work.kind == COPY:
            kind, _, memory = work.name.partition(", ")
            host = {"srcKind" if kind.startswith("host") else "dstKind": _MEMORY.get(memory, 2)}
            kinds = {"srcKind": 2, "dstKind": 2} | host
            self.add("CUPTI_ACTIVITY_KIND_MEMCPY", **row, **kinds, bytes=work.bytes, copyKind=_COPIES[kind])
        else:
            self.add("CUPTI_ACTIVITY_KIND_MEMSET", **row, bytes=work.bytes, value=0)

    def write(
        self,
        path: Path,
        renamed: Iterable[tuple[str, str, str]] = (),  # table, column, another version's name of it; "" drops it
        suffixed: Iterable[str] = (),  # tables that have _V2 at the end
    ) -> Path:
        with closing(sqlite3.connect(path)) as connection:
            for table, rows in self.rows.items():
                name = f"{table}_V2" if table in suffixed else table
                connection.execute(f'CREATE TABLE "{name}" ({_DDL[table]})')
                for row in rows:
                    columns = ", ".join(f'"{column}"' for column in row)
                    holes = ", ".join("?" * len(row))
                    connection.execute(f'INSERT INTO "{name}" ({columns}) VALUES ({holes})', tuple(row.values()))
            for table, column, new in renamed:
                change = f'RENAME COLUMN "{column}" TO "{new}"' if new else f'DROP COLUMN "{column}"'
                connection.execute(f'ALTER TABLE "{table}" {change}')
            connection.commit()
        return path


# ---- torch.profiler


def write_kineto(path: Path, trace: Trace) -> Path:
    """Writes torch's export: microseconds, the device's work beside the host's, and much else."""
    events = [{"ph": "M", "name": "process_name", "pid": PID, "args": {"name": "python"}}]
    events += [_event("user_annotation", r.name, r, r.thread, {}) for r in trace.ranges]
    events += [
        _event("cpu_op", "aten::mul", trace.ranges[0], MAIN, {}),
        _event("user_annotation", "ProfilerStep#1", trace.ranges[0], MAIN, {}),
    ]
    events += [
        _event(
            "cuda_driver" if c.name.startswith("cuL") else "cuda_runtime",
            c.name,
            c,
            c.thread,
            {"correlation": c.correlation},
        )
        for c in trace.calls
    ]
    events += [_work_event(work) for work in trace.works]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def _event(cat: str, name: str, item: Any, tid: int, found: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": item.start / 1000, "dur": (item.end - item.start) / 1000}
    return {"ph": "X", "cat": cat, "name": name, "pid": PID, "tid": tid, "args": found, **times}


def _work_event(work: Work) -> dict[str, Any]:
    found: dict[str, Any] = {"correlation": work.correlation, "stream": work.stream, "device": 0}
    if work.kind == KERNEL:
        found |= {
            "registers per thread": work.registers,
            "shared memory": work.shared,
            "est. achieved occupancy %": work.occupancy,
        }
        return _event("kernel", KERNELS.get(work.name, work.name), work, 7, found)
    found["bytes"] = work.bytes
    if work.kind == MEMSET:
        return _event("gpu_memset", "Memset (Device)", work, 7, found)
    kind, _, memory = work.name.partition(", ")
    short = {"host to device": "HtoD", "device to host": "DtoH", "device to device": "DtoD"}[kind]
    sides = {"HtoD": f"{memory.capitalize()} -> Device", "DtoH": f"Device -> {memory.capitalize()}"}
    return _event("gpu_memcpy", f"Memcpy {short} ({sides.get(short, 'Device -> Device')})", work, 7, found)


def as_torch_tells(trace: Trace, occupancy: float = 40.0) -> Trace:
    """Shared memory only as a sum, and an estimate of the occupancy."""
    return replace(
        trace,
        works=tuple(
            replace(w, shared_static=None, shared_dynamic=None, occupancy=occupancy) if w.kind == KERNEL else w
            for w in trace.works
        ),
    )
