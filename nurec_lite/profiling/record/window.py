# SPDX-License-Identifier: Apache-2.0
"""python -m nurec_lite.profiling.record.window CONFIG MODE: the process that is profiled. It trains as nurec_lite.train does and opens a
window of a few steps, which a tool records.

Leaves window-MODE.json next to CONFIG: device, time of the steps, memory; and window-MODE.began as soon as it runs.
Modes: nvtx (nsys or ncu stands around the process and records between cudaProfilerStart and cudaProfilerStop), torch (torch.profiler,
trace.json), syncs (lines that wait).
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import json
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from nurec_lite.backends import base_stages, build_stages, check_stages
from nurec_lite.base.alive import end_with_parent
from nurec_lite.base.beginning import begun
from nurec_lite.base.environment import choose_device, environment
from nurec_lite.base.errors import UserError
from nurec_lite.base.files import write_text
from nurec_lite.base.folders import make_way
from nurec_lite.base.ranges import switch
from nurec_lite.config import ProfileConfig, to_config, to_dict
from nurec_lite.profiling.errors import ProfileError
from nurec_lite.profiling.summary.syncs import waiting_lines
from nurec_lite.readers import open_capture
from nurec_lite.training.loop import one_step, spent
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState

Result = dict[str, Any]


def window_command(
    config: ProfileConfig,
    out: Path,
    mode: str,  # of MODES
) -> list[str]:  # command line of the process
    """Leaves the configuration in `out`, and nothing there that an earlier process said."""
    for name in ("json", "began"):
        make_way(out / f"window-{mode}.{name}")
    write_text(out / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(to_dict(config))))
    return [sys.executable, "-m", "nurec_lite.profiling.record.window", str(out / "config.yaml"), mode]


def stored_config(file: Path) -> ProfileConfig:
    """The configuration that `window_command` stored."""
    merged = OmegaConf.merge(OmegaConf.structured(ProfileConfig), OmegaConf.load(file))
    assert isinstance(merged, DictConfig)
    config = to_config(merged)
    assert isinstance(config, ProfileConfig)
    return config


def run(config: ProfileConfig, mode: str, out: Path) -> Result:
    """Warms up, then makes the window's steps as the mode wants them."""
    device = choose_device(config.device)
    check_stages(config.ops, device, config.render, config.opt)
    capture = open_capture(config.data)
    stages = build_stages(config.opt, base_stages(config.ops, device, config.render))
    try:
        state = make_state(config, capture, device, frames=stages.feed.frames)
        step = _stepper(stages, state)
        for _ in range(config.warmup):
            step()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        found = MODES[mode](step, config.steps, device, out)
        peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
        return {
            "environment": environment(device) | {"gaussians": str(len(state.scene.gaussians))},
            "steps": config.steps,
            "peak_bytes": peak,
        } | found
    finally:
        stages.close()


def _stepper(stages: Stages, state: TrainState) -> Callable[[], None]:
    """One step of the training loop at each call."""
    begin = time.monotonic() - state.seconds

    def step() -> None:
        state.progress = min(1.0, spent(state.config.train, state.step, state.seconds))
        one_step(stages, state, begin)

    return step


def _marked(step: Callable[[], None], n: int, device: torch.device, out: Path) -> Result:
    """Ranges by NVTX; the tool around this process records between the two calls of the CUDA runtime. Their domain is made after
    the first, so that a tool that learns names only while it records knows this one."""
    if device.type != "cuda":
        raise ProfileError(f"nsys and ncu record a GPU, but the steps run on {device}; use tool=torch, or device=cuda")
    torch.cuda.synchronize(device)
    torch.cuda.cudart().cudaProfilerStart()
    with switch(nvtx=True):
        for _ in range(n):
            step()
        torch.cuda.synchronize(device)
    torch.cuda.cudart().cudaProfilerStop()
    return {}


def _traced(step: Callable[[], None], n: int, device: torch.device, out: Path) -> Result:
    """torch.profiler, which itself warms up during one step more."""
    kinds = [torch.profiler.ProfilerActivity.CPU]
    kinds += [torch.profiler.ProfilerActivity.CUDA] if device.type == "cuda" else []
    plan = torch.profiler.schedule(wait=0, warmup=1, active=n, repeat=1)
    with switch(torch=True), torch.profiler.profile(activities=kinds, schedule=plan, acc_events=True) as profiler:
        for _ in range(n + 1):
            step()
            profiler.step()
    make_way(out / "trace.json")
    profiler.export_chrome_trace(str(out / "trace.json"))
    return {"gpu": device.type == "cuda"}


def _warned(step: Callable[[], None], n: int, device: torch.device, out: Path) -> Result:
    with waiting_lines(device.type == "cuda") as lines:
        for _ in range(n):
            step()
    return {"lines": dict(lines)}


MODES = {"nvtx": _marked, "torch": _traced, "syncs": _warned}


def main(file: str, mode: str) -> int:
    """Writes errors that a user can mend into the file, too: a profiler around this process hides how it ended."""
    begun()
    end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    out, result = Path(file).parent, {}
    (out / f"window-{mode}.began").touch()
    try:
        result = run(stored_config(Path(file)), mode, out)
    except UserError as error:
        result = {"error": str(error)}
    write_text(out / f"window-{mode}.json", json.dumps(result, indent=1))
    return 2 if "error" in result else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
