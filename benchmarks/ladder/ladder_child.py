# SPDX-License-Identifier: Apache-2.0
"""One sample of benchmarks/ladder/ladder.py: trains a few steps in a process of its own and times them, without a profiler.

python benchmarks/ladder/ladder_child.py FILE WARMUP STEPS [KEY=VALUE ...]    leaves the figures in FILE

The time of a step is all that the training loop does from one step to the next: by CUDA events on a GPU, by the host's clock on a CPU.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.environment import choose_device, environment
from nurec_lite.base.files import write_text
from nurec_lite.cli.command import composed, mended
from nurec_lite.config import Config
from nurec_lite.readers import open_capture
from nurec_lite.training.loop import one_step
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState


def measured(
    config: Config,
    warmup: int,  # steps that do not count
    steps: int,  # that count
) -> dict[str, Any]:
    device, capture = choose_device(config.device), open_capture(config.data)
    stages = build_stages(config.opt, base_stages(config.ops, device, config.render))
    try:
        total = config.train.steps or warmup + steps
        config.train = replace(config.train, steps=total, seconds=None)  # progress by steps: the same in every sample
        state = make_state(config, capture, device, frames=stages.feed.frames)
        step = stepper(stages, state, total)
        for _ in range(warmup):
            step()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        times = device_times(step, steps) if device.type == "cuda" else host_times(step, steps)
        camera = capture.cameras[0]
        return {
            "step_ms": times, "peak_bytes": peak_bytes(device), "gaussians": len(state.scene.gaussians),
            "capture": capture.name, "image": [camera.width, camera.height], "lidar_rays": config.train.lidar_rays,
            "environment": environment(device),
        }  # fmt: skip
    finally:
        stages.close()


def stepper(stages: Stages, state: TrainState, total: int) -> Callable[[], None]:
    begin = time.monotonic()

    def step() -> None:
        state.progress = min(1.0, state.step / total)
        one_step(stages, state, begin)

    return step


def host_times(step: Callable[[], None], n: int) -> list[float]:  # [n] ms
    marks = [time.perf_counter()]
    for _ in range(n):
        step()
        marks.append(time.perf_counter())
    return [1e3 * (b - a) for a, b in pairwise(marks)]


def device_times(step: Callable[[], None], n: int) -> list[float]:  # [n] ms
    """Times of n steps on the device. Nothing waits between steps, unless a step itself does."""
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in pairwise(marks)]


def peak_bytes(device: torch.device) -> int:
    """Largest allocation of torch on the GPU during the steps; on a CPU, the largest resident size of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(file: str, warmup: str, steps: str, *overrides: str) -> None:
    with mended("train"):
        result = measured(composed("train", list(overrides)), int(warmup), int(steps))
        write_text(Path(file), json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
