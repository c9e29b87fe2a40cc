# SPDX-License-Identifier: Apache-2.0
"""One launch for all views of a step, against the loop (bench_batch.py --turns): windows of steps of two states, in turns."""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median, quantiles

import torch

from benchmarks.common.reporting import Report
from nurec_lite.capture.types import Capture
from nurec_lite.config import Config
from nurec_lite.training.loop import complete_steps, one_step
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState

WAYS = {"one launch": True, "one after another": False}
Begun = Callable[[Config, Capture], tuple[Stages, TrainState]]


@dataclass
class Run:
    """A training that is timed by windows."""

    stages: Stages
    state: TrainState

    def steps(self, n: int) -> float:
        """Milliseconds a step of the clock, until all of them are done."""
        begin = time.monotonic()
        for _ in range(n):
            self.state.progress = min(1.0, self.state.step / 1e6)  # rates stay the same
            one_step(self.stages, self.state, begin)
        complete_steps(self.stages, self.state)
        if self.state.device.type == "cuda":
            torch.cuda.synchronize(self.state.device)
        return 1e3 * (time.monotonic() - begin) / n


def of(config: Config, images: int, sweeps: int, one_launch: bool) -> Config:
    given = {"images": images, "sweeps": sweeps, "scale_rates": False, "one_launch": one_launch}
    return replace(config, opt=config.opt | {"batch": given})


def turns(config: Config, capture: Capture, begun: Begun, args: argparse.Namespace) -> Report:
    """For each number of images: every window's milliseconds a step, and the extra time of the loop, window by
    window."""
    return {str(images): _turns(config, capture, begun, images, args) for images in args.turn_images}


def _turns(config: Config, capture: Capture, begun: Begun, images: int, args: argparse.Namespace) -> Report:
    runs = {name: Run(*begun(of(config, images, args.sweeps, one), capture)) for name, one in WAYS.items()}
    try:
        check(runs)
        for run in runs.values():
            run.steps(args.warmup)
        windows: dict[str, list[float]] = {name: [] for name in WAYS}
        for _ in range(args.turns):
            for name, run in runs.items():
                windows[name].append(run.steps(args.window))
    finally:
        for run in runs.values():
            run.stages.close()
    one, loop = windows.values()
    ratios = [a / b for a, b in zip(loop, one, strict=True)]
    memory = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else None
    ms = {name: _spread(values) for name, values in windows.items()}
    gaussians = {name: len(run.state.scene.gaussians) for name, run in runs.items()}
    return {"ms": ms, "ratio": _spread(ratios), "windows": windows, "gaussians": gaussians, "peak_gb_of_both": memory}


def check(runs: dict[str, Run]) -> None:
    """Fails where the first step's loss is not the same by either way."""
    terms = []
    for run in runs.values():
        stages, state = run.stages, run.state
        result = stages.update.try_step(
            stages, state, stages.feed.resize(stages, state, stages.feed.fetch(stages, state))
        )
        terms.append({name: float(value) for name, value in result.terms.items()})
        state.step += 1
        complete_steps(stages, state)
    one, other = terms
    for name, value in one.items():
        assert abs(value - other[name]) <= 1e-3 * abs(other[name]) + 1e-6, f"{name}: {value} is not {other[name]}"


def _spread(values: list[float]) -> Report:
    quarters = quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return {"median": median(values), "first_quartile": quarters[0], "third_quartile": quarters[2]}


def turn_lines(report: Report) -> list[str]:
    lines = []
    for images, found in report["turns"].items():
        ways = ", ".join(f"{name} {ms['median']:.2f} ms a step" for name, ms in found["ms"].items())
        ratio = found["ratio"]
        lines.append(
            f"{images} images: {ways}; the loop takes {ratio['median']:.3f} times as long "
            f"(quartiles {ratio['first_quartile']:.3f} to {ratio['third_quartile']:.3f})"
        )
    return lines
