# SPDX-License-Identifier: Apache-2.0
"""The summary of a profile, whichever tool took it: written as summary.json, compared by `nurec_lite.profile compare`.

None means that the tool did not tell; it is never replaced by 0. Times are milliseconds, sizes bytes; "a step" divides by the steps
of the profiled window.
"""

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from nurec_lite.base.files import write_text
from nurec_lite.base.texts import read_json
from nurec_lite.profiling.errors import ProfileError

FORMAT = 1


@dataclass(frozen=True)
class RangeTime:
    """A range of `nurec_lite.base.ranges`, by its whole path."""

    name: str  # such as step/render_camera/tile
    count: float  # a step
    cpu_ms: float | None  # a step, between its begin and its end on the host
    gpu_ms: float | None  # a step, from the first to the last thing that it started on the GPU, summed over instances
    launches: float | None  # kernels that it started, a step, ranges inside it included


@dataclass(frozen=True)
class KernelTime:
    """All launches of one kernel."""

    name: str  # demangled, without its arguments
    count: float  # a step
    ms: float  # a step
    registers: int | None  # a thread
    shared_static: int | None  # bytes a block
    shared_dynamic: int | None  # bytes a block, the largest of all launches
    range: str | None  # the innermost range that started most of its launches
    shared: int | None = None  # bytes a block, static and dynamic, the largest of all launches
    occupancy: float | None = None  # achieved, percent, mean over its time; torch.profiler estimates it


@dataclass(frozen=True)
class Wait:
    """Host synchronisations: calls that wait for the GPU on the host."""

    call: str  # such as cudaStreamSynchronize
    count: float  # a step
    ms: float | None  # a step
    lines: tuple[str, ...] = ()  # file:line in Python, from torch's sync debug mode


@dataclass(frozen=True)
class Copy:
    """Copies of one kind."""

    kind: str  # host to device, device to host, device to device, memset
    count: float  # a step
    bytes: float | None  # a step
    ms: float | None  # a step


@dataclass(frozen=True)
class Gap:
    """An idle time of the GPU."""

    start_ms: float  # from the begin of the window
    ms: float
    range: str | None  # of the host in the middle of it


@dataclass(frozen=True)
class Summary:
    """Figures of the steps of one window."""

    tool: str  # nsys or torch
    tool_version: str | None
    command: str
    environment: dict[str, str]  # nurec_lite.base.environment.environment
    steps: int
    step_ms: float | None  # window / steps; under a profiler, so never quoted as a result
    gpu_busy: float | None  # share of the window while some kernel, copy or memset runs on the GPU, 0 to 1
    idle_ms: float | None  # a step, the rest
    launches: float | None  # kernels a step
    syncs: float | None  # a step
    copies: float | None  # a step, memsets not counted
    copied_bytes: float | None  # a step
    peak_bytes: int | None  # torch.cuda.max_memory_allocated
    step_times_ms: tuple[float, ...] = ()  # of every step of the window: how much the time varies, for `compare`
    ranges: tuple[RangeTime, ...] = ()  # in the order of their first begin
    kernels: tuple[KernelTime, ...] = ()  # the longest first
    waits: tuple[Wait, ...] = ()
    copy_kinds: tuple[Copy, ...] = ()
    gaps: tuple[Gap, ...] = ()  # the longest of the window, the longest first
    graph_launches: float | None = None  # CUDA graphs a step; the kernels in them count as launches
    single_launches: float | None = None  # kernels a step that are launched one by one, in no graph
    allocations: float | None = None  # calls a step that take memory from the driver or give it back
    estimates: tuple[str, ...] = ()  # names of figures that the tool estimates
    notes: tuple[str, ...] = field(default=())  # facts that the reader must know, one sentence each


def write_summary(path: Path, summary: Summary) -> None:
    write_text(path, json.dumps({"format": FORMAT, **asdict(summary)}, indent=1) + "\n")


def read_summary(path: Path) -> Summary:
    """Reads a summary; ProfileError if the file is missing, is no summary, or has another format."""
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ProfileError(
            f"{path} cannot be read as a summary ({why}); name a folder of nurec_lite.profile"
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT or "ranges" not in content:
        raise ProfileError(f"{path} is no summary of format {FORMAT}; take the profile again with this version")
    return _from_dict(content)


def _from_dict(content: dict[str, Any]) -> Summary:
    rows = {"ranges": RangeTime, "kernels": KernelTime, "waits": Wait, "copy_kinds": Copy, "gaps": Gap}
    plain = {f.name: content[f.name] for f in fields(Summary) if f.name in content and f.name not in rows}
    lists: dict[str, Any] = {
        name: tuple(_row(kind, row) for row in content.get(name, ())) for name, kind in rows.items()
    }
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}
    return Summary(**values, **lists)


def _row(kind: type, row: dict[str, Any]) -> Any:
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()})
