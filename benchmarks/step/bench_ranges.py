# SPDX-License-Identifier: Apache-2.0
"""Cost of the named ranges of a step when no tool records them, and with each of the recorders.

    python benchmarks/step/bench_ranges.py
    python benchmarks/step/bench_ranges.py data=pack data.root=FILE +size=large train.resume=FILE --out benchmarks/results/NAME.json

Arguments are those of nurec_lite.train. A step's noise is larger than the cost asked for here, so the cost is counted and timed apart:
ranges a step, times the median time of opening and closing one in a loop (nested as deep as a step's are), over the median time of
steps without a recorder. `nvtx_package` is the package nvtx, which `profile` switches on, `nvtx_torch` torch's binding, where torch has
CUDA (nurec_lite/base/nvtx.py). While no tool listens the package makes no recorder at all, so its ranges cost as much as without
one; torch's binding records without a listener, too. With one that listens:

    nsys profile --trace=nvtx --output=ranges python benchmarks/step/bench_ranges.py
    nsys stats --report nvtx_sum ranges.nsys-rep

must then list as many ranges of either binding as the table says here, those of the package under the domain nurec_lite.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import Any

import torch

from benchmarks.common.reporting import conditions, reported
from benchmarks.step.bench_step import positive
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base import nvtx
from nurec_lite.base.environment import choose_device
from nurec_lite.base.program import Parser
from nurec_lite.base.ranges import STEP, span, switch
from nurec_lite.base.timing import Timing
from nurec_lite.config import Config
from nurec_lite.readers import open_capture
from nurec_lite.training.loop import one_step
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState

STEPS, INNER = 80, 25  # of one sample, and ranges in each of these, which are two more
SAMPLES = 21
LIMIT = 0.005  # of a step: the largest cost of ranges without a listener


class Counting:
    """A recorder that counts."""

    n = 0

    def begin(self, path: str) -> None:
        self.n += 1

    def end(self, path: str, begun: None) -> None: ...


def recorders(device: torch.device) -> dict[str, Callable[[], AbstractContextManager[None]]]:
    found: dict[str, Callable[[], AbstractContextManager[None]]] = {"off": nullcontext}
    if torch.backends.cuda.is_built():
        found["nvtx_torch"] = lambda: switch(timing=nvtx.by_torch())
    if nvtx.installed():
        found["nvtx_package"] = lambda: switch(timing=nvtx.by_package())
    return found | {"torch": lambda: switch(torch=True), "timing": lambda: switch(timing=Timing(device))}


def range_us(recorder: Callable[[], AbstractContextManager[None]], device: torch.device) -> float:
    """Microseconds of the host for one range, three deep; it includes the ends of steps, where `timing` reads its clocks."""
    samples = []
    with recorder():
        for _ in range(SAMPLES):
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            begin = time.perf_counter()
            for _ in range(STEPS):
                ranges_of_a_step()
            samples.append(1e6 * (time.perf_counter() - begin) / (STEPS * (INNER + 2)))
    return median(samples)


def ranges_of_a_step() -> None:
    with span(STEP), span("middle"):
        for _ in range(INNER):
            with span("range"):
                pass


def steps_ms(stages: Stages, state: TrainState, n: int) -> list[float]:
    found, begin = [], time.monotonic()
    for _ in range(n):
        if state.device.type == "cuda":
            torch.cuda.synchronize(state.device)
        start = time.perf_counter()
        one_step(stages, state, begin)
        found.append(1e3 * (time.perf_counter() - start))
    return found


def bench(config: Config, args: argparse.Namespace) -> dict[str, Any]:
    device = choose_device(config.device)
    stages = build_stages(config.opt, base_stages(config.ops, device, config.render))
    try:
        state, counting = make_state(config, open_capture(config.data), device, frames=stages.feed.frames), Counting()
        steps_ms(stages, state, args.warmup)
        with switch(timing=counting):
            steps_ms(stages, state, args.counted)
        step_ms, ranges = median(steps_ms(stages, state, args.steps)), counting.n / args.counted
    finally:
        stages.close()
    costs = {name: range_us(recorder, device) for name, recorder in recorders(device).items()}
    shares = {name: {"us_a_range": us, "share_of_a_step": us * ranges / (1e3 * step_ms)} for name, us in costs.items()}
    return conditions("step/bench_ranges", config, state, args) | {
        "step_ms": step_ms, "ranges_a_step": ranges, "recorders": shares, "ranges_of_each": SAMPLES * STEPS * (INNER + 2)
    }  # fmt: skip


def table(report: dict[str, Any]) -> str:
    lines = [f"{report['capture']}, {report['environment']['device']}: {report['ranges_a_step']:g} ranges a step of "
             f"{report['step_ms']:.2f} ms; {report['ranges_of_each']} ranges timed of each recorder",
             f"{'recorder':12} {'us a range':>11} {'of a step':>10}"]  # fmt: skip
    for name, cost in report["recorders"].items():
        lines.append(f"{name:12} {cost['us_a_range']:11.3f} {100 * cost['share_of_a_step']:9.3f}%")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    p = Parser(__doc__)
    p.add_argument("--steps", type=positive, default=60, help="that are timed (%(default)s)")
    p.add_argument("--warmup", type=int, default=10, help="steps before (%(default)s)")
    p.add_argument("--counted", type=positive, default=3, help="steps whose ranges are counted (%(default)s)")
    found = reported(p, arguments, bench)
    print(table(found))
    untold = [name for name in ("off", "nvtx_torch", "nvtx_package") if name in found["recorders"]]
    return 3 if any(found["recorders"][name]["share_of_a_step"] > LIMIT for name in untold) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
