# SPDX-License-Identifier: Apache-2.0
"""Gain of the option `workers`: time of `next_batch` and of whole training steps, with and without it.

    python benchmarks/opt/bench_workers.py
    python benchmarks/opt/bench_workers.py data=kitti_raw data.root=FOLDER data.downscale=4

Both variants start from the same scene and train on the same batches. They take turns, a block of steps each, every other round in
the opposite order, so that a change of the machine's pace reaches both. The first steps of a block are not counted: while the other
variant runs, the loader processes fill their queue. Run it on a quiet machine; the load average before and after is recorded.
"""

import argparse
import json
import os
import platform
import shlex
import sys
import time
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as nurec_lite.train does

import torch

from nurec_lite.backends import build_stages
from nurec_lite.base.environment import choose_device, device_name
from nurec_lite.base.options import parameters_of
from nurec_lite.base.program import Parser
from nurec_lite.base.version import commit
from nurec_lite.cli.command import composed, mended
from nurec_lite.config import Config
from nurec_lite.readers import open_capture
from nurec_lite.scene.init import make_scene
from nurec_lite.training.optim import make_optimizer
from nurec_lite.training.shots import ShotPlan
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState

RESULTS = Path(__file__).resolve().parents[1] / "results"
PARTS = ("next_batch", "step", "both")


@dataclass
class Variant:
    """One way to train, its state, and the seconds that its counted steps took."""

    name: str
    stages: Stages
    state: TrainState
    seconds: dict[str, list[float]] = field(default_factory=lambda: {part: [] for part in PARTS})


def variants(config: Config, args: argparse.Namespace) -> list[Variant]:
    device, capture = choose_device(config.device), open_capture(config.data)
    plan = ShotPlan(capture, config.seed, config.train.lidar_rays)
    scene = make_scene(capture, config.model, config.seed, device)
    parameters = parameters_of("workers") | {k: v for k in ("count", "ahead") if (v := getattr(args, k)) is not None}
    made = []
    for name, options in (("baseline", {}), ("workers", {"workers": parameters})):
        own = deepcopy(scene)
        generator = torch.Generator(device).manual_seed(config.seed)
        state = TrainState(plan, config, own, make_optimizer(own, config.lr), generator, device)
        made.append(Variant(name, build_stages(options), state))
    return made


def block(variant: Variant, uncounted: int, counted: int) -> None:
    stages, state = variant.stages, variant.state
    for n in range(uncounted + counted):
        start = time.perf_counter()
        shots = stages.feed.next_batch(state.plan, state.step)
        middle = time.perf_counter()
        result = stages.update.try_step(stages, state, stages.feed.place(stages, state, shots))
        float(result.mse)  # the progress bar reads it: this waits for the device
        end = time.perf_counter()
        state.step += 1
        if n >= uncounted:
            for part, seconds in zip(PARTS, (middle - start, end - middle, end - start), strict=True):
                variant.seconds[part].append(seconds)


def measure(pair: list[Variant], rounds: int, uncounted: int, counted: int) -> None:
    for variant in pair:
        block(variant, uncounted, 0)
    for n in range(rounds):
        for variant in pair if n % 2 == 0 else reversed(pair):
            block(variant, uncounted, counted)


def quantiles(values: list[float]) -> dict[str, float]:
    low, median, high = torch.tensor(values, dtype=torch.float64).quantile(torch.tensor([0.25, 0.5, 0.75]).double())
    return {"median_s": median.item(), "quarter_s": low.item(), "three_quarters_s": high.item()}


def speedup(pair: list[Variant], part: str) -> dict[str, float]:
    """Baseline over option, step by step: both trained on the same batches."""
    seconds = [torch.tensor(v.seconds[part], dtype=torch.float64) for v in pair]
    low, median, high = (seconds[0] / seconds[1]).quantile(torch.tensor([0.25, 0.5, 0.75]).double()).tolist()
    return {
        "median": median,
        "quarter": low,
        "three_quarters": high,
        "of_totals": float(seconds[0].sum() / seconds[1].sum()),
    }


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def conditions(config: Config, pair: list[Variant], args: argparse.Namespace) -> dict[str, Any]:
    state = pair[0].state
    camera = state.plan.capture.cameras[0]
    return {
        "command": shlex.join(["python", "benchmarks/opt/bench_workers.py", *sys.argv[1:]]),
        "commit": commit(), "torch": torch.__version__, "python": platform.python_version(), "cpu": processor(),
        "cores": len(os.sched_getaffinity(0)), "threads": torch.get_num_threads(), "device": device_name(state.device),
        "capture": state.plan.capture.name, "image": [camera.width, camera.height], "downscale": config.data.downscale,
        "gaussians": len(state.scene.gaussians), "lidar_rays": config.train.lidar_rays,
        "workers": vars(pair[1].stages.feed.next_batch)["count"], "ahead": vars(pair[1].stages.feed.next_batch)["ahead"],
        "rounds": args.rounds, "counted_steps_a_round": args.steps, "uncounted_steps_a_round": args.uncounted,
    }  # fmt: skip


def table(report: dict[str, Any]) -> str:
    lines = [f"{'':12}" + "".join(f"{part + ' ms':>26}" for part in PARTS)]
    for name, parts in report["seconds"].items():
        cells = [
            f"{1e3 * q['median_s']:.1f} [{1e3 * q['quarter_s']:.1f}, {1e3 * q['three_quarters_s']:.1f}]"
            for q in parts.values()
        ]
        lines.append(f"{name:12}" + "".join(f"{cell:>26}" for cell in cells))
    speedups = [
        f"{r['median']:.3f} [{r['quarter']:.3f}, {r['three_quarters']:.3f}]" for r in report["speedup"].values()
    ]
    lines.append(f"{'speedup':12}" + "".join(f"{cell:>26}" for cell in speedups))
    return "\n".join([*lines, "medians [quartiles]; the speedup is that of the same steps"])


def parser() -> argparse.ArgumentParser:
    p = Parser(__doc__)
    p.add_argument("--threads", type=int, help="of the training process (default: torch's own choice)")
    p.add_argument("--count", type=int, help="loader processes (default: conf/opt/workers.yaml)")
    p.add_argument("--ahead", type=int, help="batches that each of them is ahead (the option's)")
    p.add_argument("--rounds", type=int, default=4, help="blocks of either variant (%(default)s)")
    p.add_argument("--steps", type=int, default=8, help="steps of a block that count (%(default)s)")
    p.add_argument("--uncounted", type=int, default=4, help="steps before them that do not (%(default)s)")
    p.add_argument(
        "--out", type=Path, help="JSON file (default: in benchmarks/results, by capture, device and threads)"
    )
    p.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of nurec_lite.train")
    return p


def run(args: argparse.Namespace) -> None:
    before = os.getloadavg()
    config = composed("train", args.overrides)
    config.density = replace(config.density, every=1 << 30)  # the number of Gaussians stays
    pair = variants(config, args)
    report: dict[str, Any] = conditions(config, pair, args)
    try:
        measure(pair, args.rounds, args.uncounted, args.steps)
    finally:
        for variant in pair:
            variant.stages.close()
    report["load_average"] = {"before": before, "after": os.getloadavg()}
    report["seconds"] = {v.name: {part: quantiles(v.seconds[part]) for part in PARTS} for v in pair}
    report["speedup"] = {part: speedup(pair, part) for part in PARTS}
    report["all_seconds"] = {v.name: v.seconds for v in pair}
    device = pair[0].state.device.type
    out = args.out or RESULTS / f"workers_{report['capture']}_{device}_{report['threads']}_threads.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n")
    print(table(report))
    print(f"conditions and single times in {out}")


def main() -> None:
    args = parser().parse_intermixed_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    with mended("train"):
        run(args)


if __name__ == "__main__":
    main()
