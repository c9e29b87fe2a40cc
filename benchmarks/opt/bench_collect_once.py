# SPDX-License-Identifier: Apache-2.0
"""Cost of collecting: all calls of a step together, and their share of it, for the sets of options that change it.

    python benchmarks/opt/bench_collect_once.py
    python benchmarks/opt/bench_collect_once.py data=pack data.root=FILE +size=large train.resume=FILE --out benchmarks/results/NAME.json
    python benchmarks/opt/bench_collect_once.py data=pack data.root=FILE +size=large --invented 1 --out benchmarks/results/NAME.json

Arguments are those of nurec_lite.train. --invented replaces the scene by one in the numbers of benchmarks/opt/bench_fused_interp.py: 64
tracks of 300 keyframes, 600 k Gaussians on actors and 1.4 M of the background, times the factor. Every set starts from the same state and
trains on the same batches, in one process; the sets take turns, a block of steps each, every other round in the opposite order. Times
are those of the ranges (CUDA events on a GPU, the host's clock on a CPU): `collect` is the time of the forward pass in collecting,
interpolating and activating; `backward` and `step` hold the rest.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import sys
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from benchmarks.common.reporting import conditions, reported
from benchmarks.opt.interpolate_workload import invented_scene
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.environment import choose_device
from nurec_lite.base.options import known_options, parameters_of
from nurec_lite.base.program import Parser
from nurec_lite.base.ranges import STEP, switch
from nurec_lite.base.timing import Latency, Timing
from nurec_lite.config import Config
from nurec_lite.readers import open_capture
from nurec_lite.training.loop import one_step
from nurec_lite.training.optim import make_optimizer
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState

SETS = ((), ("collect_once",), ("fused_interp",), ("fused_interp", "collect_once"))
COLLECTING = ("collect", "activate")  # last parts of ranges; inner ranges are not counted twice


@dataclass
class Variant:
    """One set of options, and the times of its steps."""

    name: str
    stages: Stages
    state: TrainState
    timing: Timing
    begin: float = field(default_factory=time.monotonic)


def variants(config: Config, sets: Sequence[tuple[str, ...]] = SETS, scale: float | None = None) -> list[Variant]:
    """A variant of each set of options, all from one state, each with a copy of its scene. With `scale` the scene is an invented one."""
    device, known = choose_device(config.device), known_options()
    first = make_state(config, open_capture(config.data), device)
    if scale is not None:
        first.scene = invented_scene(first.scene, first.plan.capture, scale, config.seed)
        first.optimizer = make_optimizer(first.scene, config.lr)
    found = []
    for names in (names for names in sets if set(names) <= set(known)):
        stages = build_stages(
            {n: parameters_of(n) for n in names} | config.opt, base_stages(config.ops, device, config.render)
        )
        state = deepcopy(first)
        state.plan = stages.feed.frames(first.plan)
        state.optimizer = make_optimizer(state.scene, config.lr)
        state.optimizer.load_state_dict(first.optimizer.state_dict())
        found.append(Variant(" + ".join(names) or "baseline", stages, state, Timing(device, warm_up=0)))
    return found


def run(variant: Variant, steps: int, uncounted: int, progress: float) -> None:
    """Runs a block of steps; the first ones are not timed."""
    variant.state.progress = progress
    for k in range(uncounted + steps):
        with switch(timing=variant.timing if k >= uncounted else None):
            one_step(variant.stages, variant.state, variant.begin)


def figures(latencies: list[Latency]) -> dict[str, float]:
    """Means a step, in milliseconds."""
    step = next(latency for latency in latencies if latency.range == STEP)
    collecting = [latency for latency in latencies if latency.range.rpartition("/")[2] in COLLECTING]
    backward = sum(latency.mean_ms for latency in latencies if latency.range == f"{STEP}/backward")
    collect = sum(latency.mean_ms for latency in collecting)
    return {
        "collect_ms": collect, "collect_calls": sum(c.calls for c in collecting if c.range.endswith("/collect")),
        "share": collect / step.mean_ms, "backward_ms": backward, "step_ms": step.mean_ms, "step_median_ms": step.median_ms,
        "steps": step.steps,
    }  # fmt: skip


def bench(config: Config, args: argparse.Namespace) -> dict[str, Any]:
    sets = variants(config, SETS, args.invented)
    for turn in range(args.rounds):
        for variant in sets if turn % 2 == 0 else reversed(sets):
            run(variant, args.steps, args.uncounted, args.progress)
    found = {variant.name: figures(variant.timing.latencies()) for variant in sets}
    ranges = {v.name: {latency.range: latency.mean_ms for latency in v.timing.latencies()} for v in sets}
    return conditions("opt/bench_collect_once", config, sets[0].state, args) | {
        "rounds": args.rounds, "steps": args.steps, "uncounted": args.uncounted, "progress": args.progress,
        "invented": args.invented, "tracks": len(sets[0].state.scene.tracks), "gaussians": [len(v.state.scene.gaussians) for v in sets],
        "sets": found, "ranges_ms": ranges,
    }  # fmt: skip


def table(report: dict[str, Any]) -> str:
    head = f"{'options':30} {'collect ms':>10} {'calls':>6} {'share':>7} {'backward ms':>12} {'step ms':>9}"
    lines = [f"{report['capture']}, {report['environment']['device']}, {report['gaussians'][0]} Gaussians", head]
    for name, f in report["sets"].items():
        lines.append(
            f"{name:30} {f['collect_ms']:10.3f} {f['collect_calls']:6.2f} {100 * f['share']:6.1f}% "
            f"{f['backward_ms']:12.3f} {f['step_ms']:9.3f}"
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    p = Parser(__doc__)
    p.add_argument("--rounds", type=int, default=6, help="of all sets (%(default)s)")
    p.add_argument("--steps", type=int, default=10, help="of a block that are timed (%(default)s)")
    p.add_argument("--uncounted", type=int, default=3, help="before them (%(default)s)")
    p.add_argument(
        "--progress", type=float, default=0.9, help="of the run; above 0.8 nothing is relocated (%(default)s)"
    )
    p.add_argument("--invented", type=float, metavar="FACTOR", help="an invented scene (the one of nurec_lite.train)")
    found = reported(p, arguments, bench)
    print(table(found))


if __name__ == "__main__":
    main(sys.argv[1:])
