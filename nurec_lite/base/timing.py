# SPDX-License-Identifier: Apache-2.0
"""train.timing=true: how long every range of a step takes, without a profiler.

On a GPU a range begins and ends with two CUDA events on the current stream, so its time is that from the end of earlier work on the
stream to its own last kernel, and nothing waits inside the step; on a CPU the host's clock tells. Ranges come from several threads.

A step that is launched as a graph has no ranges inside the graph. Such steps and plain ones are counted separately, each with the
ranges that it has; steps that record a graph are neither.
"""

import csv
import io
import logging
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from nurec_lite.base.files import write_text
from nurec_lite.base.ranges import GRAPH, RECORD, STEP, switch

PLAIN, AS_GRAPH = "plain", "graph"  # kinds of steps
WARM_UP = 5  # first steps, which allocate, compile and decode: left out
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Latency:
    """Latency of one range, over the steps of a kind that count; a step without the range counts as 0 ms."""

    range: str
    calls: float  # a step
    mean_ms: float  # a step, as the following
    median_ms: float
    p95_ms: float  # exceeded in one step of twenty
    share: float  # of the steps' time, 0 to 1
    steps: int
    kind: str = PLAIN


class _Interval(NamedTuple):
    path: str
    begin: Any  # of the clock
    end: Any


class _HostClock:
    def mark(self) -> float:
        return time.perf_counter()

    def passed(self, mark: float) -> bool:
        return True

    def ms(self, interval: _Interval) -> float:
        return 1e3 * (interval.end - interval.begin)

    def wait(self) -> None: ...


@dataclass(frozen=True)
class _DeviceClock:
    """Clock of a device by events. They are used again once they are read; several threads may use the deque."""

    device: torch.device
    free: deque[torch.cuda.Event] = field(default_factory=deque)

    def mark(self) -> torch.cuda.Event:
        try:
            event = self.free.pop()
        except IndexError:
            event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def passed(self, mark: torch.cuda.Event) -> bool:
        return mark.query()

    def ms(self, interval: _Interval) -> float:
        ms = interval.begin.elapsed_time(interval.end)
        self.free.extend((interval.begin, interval.end))
        return ms

    def wait(self) -> None:
        torch.cuda.synchronize(self.device)


class _Sums:
    """Sums over the steps of a kind."""

    def __init__(self) -> None:
        self.steps = 0
        self.ms: dict[str, list[float]] = defaultdict(list)  # a step, up to the last that has the range
        self.calls: Counter[str] = Counter()

    def add(self, intervals: list[tuple[str, float]]) -> None:
        self.steps += 1
        for path, ms in intervals:
            past = self.ms[path]
            past.extend([0.0] * (self.steps - len(past)))
            past[-1] += ms
            self.calls[path] += 1

    def latency(self, path: str, kind: str) -> Latency:
        ms = np.zeros(self.steps)
        ms[: len(self.ms[path])] = self.ms[path]
        median, p95 = np.percentile(ms, (50, 95))
        share = float(ms.sum()) / sum(self.ms[STEP])
        calls = self.calls[path] / self.steps
        return Latency(path, calls, float(ms.mean()), float(median), float(p95), share, self.steps, kind)


class Timing:
    """A recorder of ranges (`nurec_lite.base.ranges.switch`). A step is over when the range `step` ends; it is read when the
    device has passed its last event, some steps later."""

    def __init__(self, device: torch.device, warm_up: int = WARM_UP) -> None:
        self.warm_up = warm_up
        self._clock = _DeviceClock(device) if device.type == "cuda" else _HostClock()
        self._order: dict[str, None] = {}  # paths by their first begin
        self._open: deque[_Interval] = deque()  # of the present step
        self._unread: deque[list[_Interval]] = deque()
        self._seen = 0  # steps
        self._sums = {kind: _Sums() for kind in (PLAIN, AS_GRAPH)}

    def begin(self, path: str) -> Any:
        self._order.setdefault(path)
        return self._clock.mark()

    def end(self, path: str, begun: Any) -> None:
        self._open.append(_Interval(path, begun, self._clock.mark()))
        if path == STEP:
            self._unread.append([self._open.popleft() for _ in range(len(self._open))])
            self._read()

    def _read(self) -> None:
        """All steps that the device has done."""
        while self._unread and all(self._clock.passed(interval.end) for interval in reversed(self._unread[0])):
            intervals = [(interval.path, self._clock.ms(interval)) for interval in self._unread.popleft()]
            self._seen += 1
            paths = {path for path, _ in intervals}
            if self._seen > self.warm_up and f"{STEP}/{RECORD}" not in paths:
                self._sums[AS_GRAPH if f"{STEP}/{GRAPH}" in paths else PLAIN].add(intervals)

    def latencies(self, kind: str = PLAIN) -> list[Latency]:
        """Latencies of a kind of steps: every range after the one around it, in the order of their beginnings. Waits for the device."""
        self._clock.wait()
        self._read()
        places, sums = {path: place for place, path in enumerate(self._order)}, self._sums[kind]
        paths = sorted(sums.ms, key=lambda path: [places.get(outer, -1) for outer in _and_outer(path)])
        return [sums.latency(path, kind) for path in paths]


def _and_outer(path: str) -> list[str]:
    """The ranges around a range, the outermost first, and itself."""
    parts = path.split("/")
    return ["/".join(parts[: n + 1]) for n in range(len(parts))]


def table(latencies: list[Latency]) -> str:
    """Table for people; inner ranges are below the outer one, indented."""
    head = f"{'range':26} {'calls':>6} {'mean ms':>9} {'median':>9} {'95 %':>9} {'share':>7}"
    return "\n".join([head, *(_line(latency) for latency in latencies)])


def _line(latency: Latency) -> str:
    *outer, name = latency.range.split("/")
    ms = f"{latency.mean_ms:9.3f} {latency.median_ms:9.3f} {latency.p95_ms:9.3f}"
    return f"{'  ' * len(outer) + name:26} {latency.calls:6.2f} {ms} {100 * latency.share:6.1f}%"


def to_csv(latencies: list[Latency]) -> str:
    text = io.StringIO()
    rows = csv.DictWriter(text, [f.name for f in fields(Latency)], lineterminator="\n")
    rows.writeheader()
    for latency in latencies:
        rows.writerow({k: round(v, 6) if isinstance(v, float) else v for k, v in vars(latency).items()})
    return text.getvalue()


@contextmanager
def timed(
    wanted: bool,
    device: torch.device,
    folder: Path,
) -> Iterator[None]:
    """Times the ranges within the block, if wanted; then prints them and writes timing.csv."""
    if not wanted:
        yield
        return
    timing = Timing(device)
    with switch(timing=timing):
        yield
    plain, launched = timing.latencies(), timing.latencies(AS_GRAPH)
    write_text(folder / "timing.csv", to_csv(launched + plain))
    left_out = f"the first {timing.warm_up} steps of this run left out"
    if not plain + launched:
        log.info("train.timing: no step to tell of, %s; give the run more steps", left_out)
    clock = "CUDA events" if device.type == "cuda" else "the host's clock"
    if launched:
        log.info("train.timing: %d steps launched as a graph, by %s\n%s", launched[0].steps, clock, table(launched))
    if plain:
        between = " run without the graph between them, since it hides their ranges," if launched else ""
        log.info("train.timing: %d steps%s by %s, %s\n%s", plain[0].steps, between, clock, left_out, table(plain))
