# SPDX-License-Identifier: Apache-2.0
"""A trace that torch.profiler exported (Kineto's JSON), as a trace."""

import json
from pathlib import Path
from typing import Any

from nurec_lite.base.ranges import STEP
from nurec_lite.profiling.errors import ProfileError
from nurec_lite.profiling.trace.trace import COPY, KERNEL, MEMSET, Call, Range, Trace, Work, plain_name

_RANGES, _CALLS = ("user_annotation", "cpu_op"), ("cuda_runtime", "cuda_driver")
_WORKS = {"kernel": KERNEL, "gpu_memcpy": COPY, "gpu_memset": MEMSET}
_COPIES = {"HtoD": "host to device", "DtoH": "device to host", "DtoD": "device to device", "PtoP": "peer to peer"}
Event = dict[str, Any]


def read_kineto(
    path: Path,
    gpu: bool,  # whether the steps ran on one
) -> Trace:
    """Reads a trace of torch.profiler; ProfileError if the file is none, or holds no step, or no kernels of a GPU."""
    events = [event for event in _events(path) if event.get("ph") == "X"]
    ranges = [r for r in map(_range, events) if r is not None]
    calls = [_call(event) for event in events if event.get("cat") in _CALLS and "correlation" in event.get("args", {})]
    works = [_work(event) for event in events if event.get("cat") in _WORKS]
    if not any(r.name == STEP for r in ranges):
        raise ProfileError(
            f"the trace {path} has no range '{STEP}', so no step was recorded; give more steps (steps=N)"
        )
    if gpu and not any(work.kind == KERNEL for work in works):
        raise ProfileError(
            f"the trace {path} holds steps but no kernels: another profiler has the GPU's tracing (CUPTI), or torch was built "
            "without it; end the other one, or use tool=nsys"
        )
    return Trace(_by_start(ranges), _by_start(calls), _by_start(works), gpu)


def _events(path: Path) -> list[Event]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ProfileError(f"{path} cannot be read as a trace of torch.profiler ({error}); take it again") from error
    if not isinstance(content, dict) or not isinstance(content.get("traceEvents"), list):
        raise ProfileError(f"{path} is no trace of torch.profiler: it has no list traceEvents; take it again")
    return content["traceEvents"]


def _by_start(rows: list[Any]) -> tuple[Any, ...]:
    return tuple(sorted(rows, key=lambda row: (row.start, -row.end)))


def _times(event: Event) -> tuple[int, int]:
    """Begin and end, which the file has in microseconds."""
    return round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)


def _range(event: Event) -> Range | None:
    name = str(event.get("name", ""))
    if event.get("cat") not in _RANGES or not (name == STEP or name.startswith(f"{STEP}/")):
        return None
    return Range(name, *_times(event), event["tid"])


def _call(event: Event) -> Call:
    return Call(event["name"], *_times(event), event["tid"], event["args"]["correlation"])


def _work(event: Event) -> Work:
    kind, arguments = _WORKS[event["cat"]], event.get("args", {})
    name = {KERNEL: plain_name, COPY: _copy_name}.get(kind, lambda _: MEMSET)(event["name"])
    return Work(
        kind,
        name,
        *_times(event),
        arguments.get("correlation", -1),
        arguments.get("stream"),
        bytes=arguments.get("bytes"),
        registers=arguments.get("registers per thread"),
        shared=arguments.get("shared memory"),
        occupancy=arguments.get("est. achieved occupancy %"),
    )


def _copy_name(
    arguments: str,  # Memcpy HtoD (Pageable -> Device)
) -> str:  # host to device, pageable
    direction, _, memory = arguments.removeprefix("Memcpy ").partition(" (")
    kind = next(
        (m.lower() for m in ("Pageable", "Pinned") if m in memory and "host" in _COPIES.get(direction, "")), None
    )
    return ", ".join(part for part in (_COPIES.get(direction, direction), kind) if part)
