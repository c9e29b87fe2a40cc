# SPDX-License-Identifier: Apache-2.0
"""Counts of torch.profiler on the GPU in some training steps: kernels, launches, host synchronisations and copies a
step.

A host synchronisation is a call of the CUDA runtime or driver that waits for the GPU: cudaStreamSynchronize,
cudaDeviceSynchronize, cudaEventSynchronize, cuCtxSynchronize and their like, and a plain cudaMemcpy. `tensor.item()` or
`tensor.cpu()` is a cudaMemcpyAsync followed by cudaStreamSynchronize and so counts once.

Work outside the renderer (blending and its gradients) has two figures: the sum over its kernels, and the time
without a running kernel of the renderer.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from nurec_lite.profiling.names import readable

MARK = "bench_step"  # around every profiled step
WAITS = re.compile(r"cu(da)?(Stream|Device|Event|Ctx)Synchronize|cudaMemcpy(?!.*Async)")
LAUNCHES = re.compile(r"cu(da)?LaunchKernel|cudaGraphLaunch|cuGraphLaunch")
RENDERER = re.compile(
    r"\b(render(Forward|Backward)|(pack_(gaussian_)?rows|unpack_row_grads|differentiate_(aligned_)?moments)_kernel"
    r"|rasterize)"
)
LONGEST = 120  # letters of a kernel's name
Event = dict[str, Any]  # of a trace


def profiled(
    step: Callable[[], object],
    steps: int,
    cuda: bool,
) -> dict[str, Any]:  # see `figures`
    """Runs the steps under torch.profiler: its times are no result, its counts are."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
    with profile(activities=activities, acc_events=True) as profiler:  # or torch 2.11 warns
        for _ in range(steps):
            with record_function(MARK):
                step()
        if cuda:
            torch.cuda.synchronize()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return figures(json.loads(path.read_text())["traceEvents"], steps)


def figures(trace: list[Event], steps: int) -> dict[str, Any]:
    """All "a step". None where the trace holds no kernel: it was taken without a GPU, or the profiler had no access to it."""
    by_category: dict[str, list[Event]] = defaultdict(list)
    for event in trace:
        if event.get("ph") == "X":
            by_category[str(event.get("cat", ""))].append(event)
    kernels, copies = by_category["kernel"], by_category["gpu_memcpy"]
    rendering = [kernel for kernel in kernels if RENDERER.search(kernel["name"])]
    others = [e for e in (*kernels, *copies, *by_category["gpu_memset"]) if not RENDERER.search(e["name"])]
    calls = _within_steps(by_category["cuda_runtime"] + by_category["cuda_driver"], by_category["user_annotation"])
    busy = _busy([*rendering, *others])
    found = {
        "kernels": len(kernels) / steps,
        "launch_calls": sum(LAUNCHES.match(call["name"]) is not None for call in calls) / steps,
        "syncs": sum(WAITS.match(call["name"]) is not None for call in calls) / steps,
        "sync_calls": _counts((call["name"] for call in calls if WAITS.match(call["name"])), steps),
        "copies": _counts((copy["name"] for copy in copies), steps),
        "copied_bytes": sum(copy["args"].get("bytes", 0) for copy in copies) / steps,
        "gpu_busy_ms": busy / steps / 1e3,
        "outside_ms": sum(event["dur"] for event in others) / steps / 1e3,
        "outside_alone_ms": (busy - _busy(rendering)) / steps / 1e3,
        "every_kernel": _table(kernels, steps),
    }
    return {"steps": steps} | (found if kernels else dict.fromkeys(found))


def _within_steps(calls: list[Event], annotations: list[Event]) -> list[Event]:
    """Calls within steps; the profiler's own calls before and after them are left out."""
    spans = [(a["ts"], a["ts"] + a["dur"]) for a in annotations if a["name"] == MARK]
    return [call for call in calls if any(begin <= call["ts"] <= end for begin, end in spans)]


def _counts(names: Iterable[str], steps: int) -> dict[str, float]:
    return {name: n / steps for name, n in Counter(names).most_common()}


def _busy(events: list[Event]) -> float:
    """Microseconds while at least one of the events runs."""
    total, end = 0.0, float("-inf")
    for event in sorted(events, key=lambda e: e["ts"]):
        begin, until = max(event["ts"], end), event["ts"] + event["dur"]
        total, end = total + max(0.0, until - begin), max(end, until)
    return total


def _table(kernels: list[Event], steps: int) -> list[dict[str, Any]]:
    """Launches and milliseconds a step of every kernel, the longest first."""
    durations: dict[str, list[float]] = defaultdict(list)
    for kernel in kernels:
        durations[readable(kernel["name"], LONGEST)].append(kernel["dur"])
    rows = [{"name": n, "count": len(d) / steps, "ms": sum(d) / steps / 1e3} for n, d in durations.items()]
    return sorted(rows, key=lambda row: -float(str(row["ms"])))
