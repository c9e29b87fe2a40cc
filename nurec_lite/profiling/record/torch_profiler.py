# SPDX-License-Identifier: Apache-2.0
"""Records the window by torch.profiler, where nsys is missing or there is no GPU."""

import logging
from pathlib import Path

import torch

from nurec_lite.config import ProfileConfig
from nurec_lite.profiling.record.child import run_window, waiting_lines
from nurec_lite.profiling.summary.summarise import Taken
from nurec_lite.profiling.trace.kineto import read_kineto
from nurec_lite.profiling.trace.trace import Trace

GPU_ESTIMATES = ("kernels.occupancy",)  # from registers, shared memory and the launch's shape; nothing counted it
COST = "torch.profiler records every operator on the host, which makes its ranges longer than nsys makes them."
GRAPHS = "Kernels of a CUDA graph share one correlation: all of them belong to the range that launched the graph."
log = logging.getLogger("nurec_lite")


def record_torch(config: ProfileConfig, out: Path, command: str) -> tuple[Trace, Taken]:
    """Leaves trace.json (for https://ui.perfetto.dev) and torch.log in `out`."""
    log.info("torch.profiler records %d steps after %d and one for its start", config.steps, config.warmup)
    window = run_window(config, out, "torch")
    gpu = bool(window["gpu"])
    trace = read_kineto(out / "trace.json", gpu)
    lines = waiting_lines(config, out) if gpu else None
    estimates, notes = (GPU_ESTIMATES, (COST, GRAPHS)) if gpu else ((), (COST,))
    return trace, Taken("torch", torch.__version__, command, window, lines, estimates, notes)
