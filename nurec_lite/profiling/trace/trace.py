# SPDX-License-Identifier: Apache-2.0
"""The recording of one process by a tool: ranges and CUDA calls of the host, and work of the GPU. Times are nanoseconds."""

from bisect import bisect_right
from dataclasses import dataclass

from nurec_lite.base.ranges import STEP

KERNEL, COPY, MEMSET = "kernel", "copy", "memset"


@dataclass(frozen=True)
class Range:
    name: str  # whole path, such as step/render_camera/blend
    start: int
    end: int
    thread: int


@dataclass(frozen=True)
class Call:
    """A call of the CUDA runtime or driver."""

    name: str  # without the version that CUPTI appends, such as cudaLaunchKernel
    start: int
    end: int
    thread: int
    correlation: int  # work that it started on the GPU has the same


@dataclass(frozen=True)
class Work:
    """A kernel, copy or memset on the GPU."""

    kind: str  # KERNEL, COPY or MEMSET
    name: str  # of the kernel without its arguments, or of the kind of copy
    start: int
    end: int
    correlation: int
    stream: int | None = None
    bytes: int | None = None  # of a copy or memset
    registers: int | None = None  # a thread
    shared_static: int | None = None  # bytes a block
    shared_dynamic: int | None = None
    shared: int | None = None  # both together
    occupancy: float | None = None  # achieved, percent
    node: bool = False  # of a graph, as far as the tool says so


@dataclass(frozen=True)
class Trace:
    ranges: tuple[Range, ...]  # STEP and its inner ranges, sorted by start
    calls: tuple[Call, ...]  # sorted by start
    works: tuple[Work, ...]  # sorted by start
    gpu: bool = True  # False if the tool recorded no GPU: then there are neither calls nor works
    notes: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[Range, ...]:
        return tuple(r for r in self.ranges if r.name == STEP)

    @property
    def window(self) -> tuple[int, int]:
        """Times from the begin of the first step to the end of the last one, or of the GPU's last work if that is
        later."""
        steps = self.steps
        return steps[0].start, max([max(s.end for s in steps), *(work.end for work in self.works)])


class Nest:
    """Ranges of one thread, which lie inside one another or apart."""

    def __init__(self, ranges: list[Range]) -> None:
        self.ranges = sorted(ranges, key=lambda r: (r.start, -r.end))
        self.starts = [r.start for r in self.ranges]
        self.parents: list[int] = []
        open_: list[int] = []
        for i, r in enumerate(self.ranges):
            while open_ and self.ranges[open_[-1]].end <= r.start:
                open_.pop()
            self.parents.append(open_[-1] if open_ else -1)
            open_.append(i)

    def around(self, time: int) -> list[Range]:
        """Ranges that are open at that time, the innermost first."""
        at, found = bisect_right(self.starts, time) - 1, []
        while at >= 0:
            if self.ranges[at].end > time:
                found.append(self.ranges[at])
            at = self.parents[at]
        return found


class Owners:
    """Ranges that a call belongs to.

    Those that are open on its own thread. Of the thread that makes the steps also those around them by name, since autograd runs
    step/backward/... on a thread of its own; a call outside any range of its thread belongs to the present range of the step.
    """

    def __init__(self, trace: Trace) -> None:
        threads: dict[int, list[Range]] = {}
        for r in trace.ranges:
            threads.setdefault(r.thread, []).append(r)
        self.nests = {thread: Nest(ranges) for thread, ranges in threads.items()}
        self.main = trace.steps[0].thread

    def around(self, call: Call) -> list[Range]:
        """The innermost first."""
        own = self.nests[call.thread].around(call.start) if call.thread in self.nests else []
        if call.thread == self.main:
            return own
        outer = self.nests[self.main].around(call.start)
        return own + [r for r in outer if not own or own[-1].name.startswith(f"{r.name}/")]

    def at(self, time: int) -> str | None:
        """The innermost range of the step at that time."""
        found = self.nests[self.main].around(time)
        return found[0].name if found else None


def plain_name(
    demangled: str,  # void f<4>(int, float *)
) -> str:  # f<4>
    """A kernel's name without its type and arguments."""
    name, depth = demangled.removeprefix("void ").rstrip(), 0
    if not name.endswith(")"):
        return name
    for at in range(len(name) - 1, -1, -1):
        depth += (name[at] == ")") - (name[at] == "(")
        if depth == 0:
            return name[:at].rstrip() or name
    return name
