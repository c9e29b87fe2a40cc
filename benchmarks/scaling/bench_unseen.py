# SPDX-License-Identifier: Apache-2.0
"""Cost of Gaussians that a step does not see: steps with none, a million, and more of them far under the ground.

    python benchmarks/scaling/bench_unseen.py '+recipe=realtime' '+opt=all' [--sweeps] --out benchmarks/results/unseen_NAME.json

Arguments are those of nurec_lite.train. Every capture counts as a long drive here (nurec_lite/training/unseen.py), and nothing is
relocated. `step_ms` is the mean of the steps, by the host's clock around all of them; `ms_a_million` is the slope of a line through the
sizes.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import json
import sys
import time
from dataclasses import replace

import numpy as np
import torch

from benchmarks.common.feeding import idle
from benchmarks.common.reporting import Report, conditions_on, reported
from benchmarks.step.bench_step import iteration, positive
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.environment import choose_device
from nurec_lite.base.errors import UserError
from nurec_lite.base.program import Parser
from nurec_lite.config import Config
from nurec_lite.readers import open_capture
from nurec_lite.scene.gaussians import BACKGROUND, Gaussians
from nurec_lite.training.optim import make_optimizer
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState
from nurec_lite.training.unseen import every_drive_is_long

DEEP = 1000.0  # metres


def add_unseen(state: TrainState, n: int) -> None:
    """Puts copies of the first background Gaussians under the ground, before all others."""
    g = state.scene.gaussians
    rows = torch.arange(n, device=state.device) % int((g.node == BACKGROUND).sum())
    with torch.no_grad():
        values = {name: torch.cat([value[rows], value]) for name, value in vars(g).items()}
        values["means"][:n, 2] -= DEEP
    state.scene.gaussians = Gaussians(**values)
    state.optimizer = make_optimizer(state.scene, state.config.lr)


def measured(config: Config, n: int, steps: int, warmup: int) -> Report:
    device = choose_device(config.device)
    stages = build_stages(config.opt, base_stages(config.ops, device, config.render))
    try:
        state = make_state(config, open_capture(config.data), device, frames=stages.feed.frames)
        state.progress = 0.5
        add_unseen(state, n)
        for _ in range(warmup):
            iteration(stages, state)
        idle(device)
        before = time.perf_counter()
        for _ in range(steps):
            iteration(stages, state)
        idle(device)
        step_ms = 1e3 * (time.perf_counter() - before) / steps
        return {"unseen": n, "gaussians": len(state.scene.gaussians), "step_ms": step_ms}
    finally:
        stages.close()


def bench(config: Config, args: argparse.Namespace) -> Report:
    if len(set(args.unseen)) < 2 or min(args.unseen) < 0:
        raise UserError(
            "--unseen needs two different numbers or more, none below 0: the cost is the slope of a line through them"
        )
    rays = config.train.lidar_rays if args.sweeps else 0
    train = replace(config.train, lidar_rays=rays, lidar_every=1)
    config = replace(config, train=train, density=replace(config.density, every=10**9))
    rows = []
    for n in args.unseen:
        with every_drive_is_long():
            rows.append(measured(config, n, args.steps, args.warmup))
        print(json.dumps(rows[-1]), flush=True)
    slope = float(np.polyfit([row["unseen"] for row in rows], [row["step_ms"] for row in rows], 1)[0])
    return conditions_on("scaling/bench_unseen", config, choose_device(config.device), args) | {
        "steps": args.steps,
        "sweeps": args.sweeps,
        "rows": rows,
        "ms_a_million": 1e6 * slope,
    }


def main(arguments: list[str]) -> None:
    parser = Parser(__doc__)
    parser.add_argument(
        "--unseen",
        type=int,
        nargs="+",
        default=[0, 1_000_000, 2_000_000, 4_000_000],
        help="numbers of unseen Gaussians",
    )
    parser.add_argument("--sweeps", action="store_true", help="a step has a sweep, too")
    parser.add_argument("--steps", type=positive, default=400, help="measured steps of each number")
    parser.add_argument("--warmup", type=int, default=100, help="steps before them")
    print(f"{reported(parser, arguments, bench)['ms_a_million']:.4f} ms a million unseen Gaussians")


if __name__ == "__main__":
    main(sys.argv[1:])
