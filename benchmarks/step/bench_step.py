# SPDX-License-Identifier: Apache-2.0
"""Cost of a training step: milliseconds, kernels, host synchronisations and copies a step, memory, the time of every
kernel.

    python benchmarks/step/bench_step.py data=pack data.root=FILE model.points=700000 density.cap=1000000 --out benchmarks/results/NAME.json
    python benchmarks/step/bench_step.py ops=reference --steps 10 --warmup 2
    python benchmarks/step/bench_step.py train.resume=runs/NAME/checkpoint.pt '+opt=[workers]'

Arguments are those of nurec_lite.train. The steps run as its loop runs them, the reading of the losses after each included, at a
fixed progress, so that rates and density control are those of the middle of a run. Two windows: the first is timed, by CUDA events
(on a CPU by the host's clock) and without a profiler; the second, of a few steps, is counted by torch.profiler
(benchmarks/step/launches.py says how). `step_ms` lies between the feed and the end of density control, on the device; `feed_ms`,
`attempt_ms` and `report_ms` are the host's; their means add up to `wall_ms_a_step`. `feed_share` is the share of the first, next_batch and
place. Figures of a GPU are null on a CPU.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import json
import os
import shlex
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from benchmarks.step.launches import profiled
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.environment import choose_device, environment
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser
from nurec_lite.cli.command import composed, mended
from nurec_lite.config import Config, to_dict
from nurec_lite.readers import open_capture
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state
from nurec_lite.training.state import StepResult, TrainState
from nurec_lite.training.step import step

Mark = torch.cuda.Event | float
ROWS = 25  # of kernels that are printed; the file has all


def bench(config: Config, args: argparse.Namespace) -> dict[str, Any]:
    """All that goes into the file, conditions first."""
    device, load = choose_device(config.device), os.getloadavg()
    stages = build_stages(config.opt, base_stages(config.ops, device, config.render))
    try:
        state = make_state(config, open_capture(config.data), device, frames=stages.feed.frames)
        state.progress = args.progress
        for _ in range(args.warmup):
            iteration(stages, state)
        gaussians = len(state.scene.gaussians)
        measured = window(stages, state, args.steps)
        counted = profiled(lambda: iteration(stages, state), args.profiled, device.type == "cuda")
    finally:
        stages.close()
    known = {"load_average_before": load, "gaussians": [gaussians, len(state.scene.gaussians)]}  # before and after
    return conditions(config, state, args) | known | measured | {"profile": counted}


def iteration(stages: Stages, state: TrainState) -> None:
    """One turn of the loop of nurec_lite.train."""
    finish(state, step(stages, state))


def finish(state: TrainState, result: StepResult) -> None:
    """Does the loop's work after a step; twice a second it reads the losses, which waits for the device."""
    state.step, state.seconds = state.step + 1, time.monotonic()
    state.history.add(state.step, state.seconds, len(state.scene.gaussians), result.figures)


def window(stages: Stages, state: TrainState, steps: int) -> dict[str, Any]:
    """Times of steps without a profiler, and the memory that they took."""
    device, marks, n_rays = state.device, [], 0
    host: dict[str, list[float]] = {"feed_ms": [], "attempt_ms": [], "report_ms": []}
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    begin = time.perf_counter()
    for _ in range(steps):
        pair, rays = timed_iteration(stages, state, host)
        marks.append(pair)
        n_rays += rays
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # the host may be many steps ahead
    wall = 1e3 * (time.perf_counter() - begin)
    step_ms = [milliseconds(first, last) for first, last in marks]
    return {
        "wall_ms_a_step": wall / steps, "step_ms": spread(step_ms), **{name: spread(ms) for name, ms in host.items()},
        "feed_share": sum(host["feed_ms"]) / wall,
        "lidar_rays_a_step": n_rays / steps,
        "peak_memory_bytes": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(device) if device.type == "cuda" else None,
        "single_step_ms": [round(ms, 4) for ms in step_ms],
    }  # fmt: skip


def timed_iteration(
    stages: Stages,
    state: TrainState,
    host: dict[str, list[float]],  # milliseconds; those of the three parts are appended
) -> tuple[tuple[Mark, Mark], int]:  # around the device's work, and the rays of the step
    times = [time.perf_counter()]
    shots = stages.feed.fetch(stages, state)
    times.append(time.perf_counter())
    first = mark(state.device)
    result = stages.update.try_step(stages, state, shots)
    last = mark(state.device)
    times.append(time.perf_counter())
    finish(state, result)
    times.append(time.perf_counter())
    for part, (start, end) in zip(host.values(), pairwise(times), strict=True):
        part.append(1e3 * (end - start))
    return (first, last), sum(len(shot.sweep) for shot in shots.sweeps)


def mark(device: torch.device) -> Mark:
    """A moment on the GPU's stream; on a CPU the host's time in seconds."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def milliseconds(first: Mark, last: Mark) -> float:
    if isinstance(first, float) and isinstance(last, float):
        return 1e3 * (last - first)
    assert isinstance(first, torch.cuda.Event) and isinstance(last, torch.cuda.Event)
    last.synchronize()
    return first.elapsed_time(last)


def spread(values: list[float]) -> dict[str, float]:
    """Median, quartiles, minimum and mean."""
    low, median, high = torch.tensor(values, dtype=torch.float64).quantile(torch.tensor([0.25, 0.5, 0.75]).double())
    return {"median": median.item(), "quarter": low.item(), "three_quarters": high.item(), "min": min(values),
            "mean": sum(values) / len(values)}  # fmt: skip


def conditions(config: Config, state: TrainState, args: argparse.Namespace) -> dict[str, Any]:
    camera = state.plan.capture.cameras[0]
    return {
        "command": shlex.join(["python", "benchmarks/step/bench_step.py", *args.arguments]),
        "environment": environment(state.device),
        "steps": args.steps, "warmup": args.warmup, "progress": args.progress,
        "capture": state.plan.capture.name, "image": [camera.width, camera.height],
        "config": {key: value for key, value in to_dict(config).items() if key != "out"},
    }  # fmt: skip


def text(report: dict[str, Any]) -> str:
    lines = [f"{report['capture']}: {report['gaussians'][1]} Gaussians, image {report['image']}, "
             f"{report['lidar_rays_a_step']:.0f} lidar rays a step, {report['environment']['device']}"]  # fmt: skip
    for name in ("step_ms", "feed_ms", "attempt_ms", "report_ms"):
        s = report[name]
        quartiles = f"[{s['quarter']:.2f}, {s['three_quarters']:.2f}]"
        lines.append(f"{name:14} {s['median']:9.2f}  {quartiles}, least {s['min']:.2f}, mean {s['mean']:.2f}")
    lines.append(f"{'wall_ms':14} {report['wall_ms_a_step']:9.2f}  a step, loading and reading of losses included")
    lines.append(f"{'feed_share':14} {100 * report['feed_share']:9.2f}  % of it")
    peak = report["peak_memory_bytes"]
    lines.append("peak memory not measured: no GPU" if peak is None else f"{'peak memory':14} {peak / 1e9:9.2f}  GB")
    return "\n".join([*lines, *_counted(report["profile"])])


def _counted(counted: dict[str, Any]) -> list[str]:
    if counted["kernels"] is None:
        return ["kernels, synchronisations and copies not counted: torch.profiler saw no kernel"]
    calls = ", ".join(f"{n:g} {name}" for name, n in counted["sync_calls"].items())
    copies = ", ".join(f"{n:g} {name}" for name, n in counted["copies"].items())
    lines = [
        "a step, as torch.profiler counts it:",
        f"{counted['kernels']:g} kernels, {counted['launch_calls']:g} launches, GPU busy {counted['gpu_busy_ms']:.2f} ms",
        f"outside the renderer {counted['outside_ms']:.2f} ms of kernels, {counted['outside_alone_ms']:.2f} ms of them alone",
        f"{counted['syncs']:g} host synchronisations: {calls}",
        f"{sum(counted['copies'].values()):g} copies, {counted['copied_bytes'] / 1e6:.2f} MB: {copies}",
        f"{'ms':>9} {'count':>7}  kernel",
    ]
    return lines + [f"{k['ms']:9.3f} {k['count']:7.1f}  {k['name']}" for k in counted["every_kernel"][:ROWS]]


def positive(given: str) -> int:
    if int(given) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return int(given)


def parser() -> argparse.ArgumentParser:
    p = Parser(__doc__)
    p.add_argument("--steps", type=positive, default=200, help="that are timed (%(default)s)")
    p.add_argument("--warmup", type=int, default=30, help="steps before them (%(default)s)")
    p.add_argument("--profiled", type=positive, default=5, help="steps that are counted afterwards (%(default)s)")
    p.add_argument("--progress", type=float, default=0.5, help="of the run, 0 to 1, for all steps (%(default)s)")
    p.add_argument("--out", type=Path, help="JSON file, such as benchmarks/results/NAME.json")
    p.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of nurec_lite.train")
    return p


def main(arguments: list[str]) -> None:
    args = parser().parse_intermixed_args(arguments)
    args.arguments = arguments
    with mended("train"):
        report = bench(composed("train", args.overrides), args)
        if args.out:
            write_text(args.out, json.dumps(report, indent=1) + "\n")
    print(text(report))


if __name__ == "__main__":
    main(sys.argv[1:])
