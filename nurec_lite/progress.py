# SPDX-License-Identifier: Apache-2.0
"""How far a run is: the progress bar, and the time since the process began."""

import math
import os
import time
from pathlib import Path

from tqdm import tqdm

from nurec_lite.stages import StepResult, TrainState

_IMPORTED = time.monotonic()


def seconds_since_start() -> float:
    """Since the process began, interpreter and imports included (Linux); elsewhere since this module was imported."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return time.monotonic() - _IMPORTED


class Bar:
    """Progress of the budget, with running PSNR and range error."""

    def __init__(self, steps: int | None, seconds: float | None) -> None:
        self.by_steps = seconds is None
        unit = "steps" if self.by_steps else "s"
        self.bar = tqdm(
            total=steps if self.by_steps else seconds,
            bar_format="{percentage:3.0f}% {bar:20} {n:.0f}/{total:.0f} " + unit + " {postfix}",
        )
        self.mse, self.range = 0.0, 0.0

    def show(self, state: TrainState, seconds: float, result: StepResult) -> None:
        keep = min(0.98, state.step / (state.step + 10))
        self.mse = keep * self.mse + (1 - keep) * float(result.mse)
        self.range = keep * self.range + (1 - keep) * float(result.terms.get("range", 0))
        psnr = -10 * math.log10(max(self.mse, 1e-10))
        text = f"PSNR {psnr:.2f} dB, range {self.range:.2f} m, {len(state.scene.gaussians)} Gaussians"
        self.bar.set_postfix_str(f"step {state.step}: {text}", refresh=False)
        self.bar.update((state.step if self.by_steps else min(seconds, self.bar.total)) - self.bar.n)

    def close(self) -> None:
        self.bar.update(self.bar.total - self.bar.n)
        self.bar.close()
