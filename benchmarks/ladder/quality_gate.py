# SPDX-License-Identifier: Apache-2.0
"""Whether options leave the quality of a reconstruction as it is: whole runs of several seeds against the baseline's own spread.

    python benchmarks/ladder/quality_gate.py --opt fused_interp,collect_once,no_sync --jobs 4 --out benchmarks/results/NAME \\
        data=kitti_raw data.root=FOLDER data.downscale=2

The baseline runs with every seed, and with the first seed as often as --repeat says: floating-point atomics make runs of one seed differ
on a GPU. A set of options passes when the mean over its seeds is worse than the baseline's mean by at most twice the spread (largest
minus smallest) of those runs of one seed. Runs are processes of their own, --jobs at once, on --gpus GPUs in turns: their times mean
nothing. Each gets its share of the cores as OMP_NUM_THREADS, unless that is set; if other programs run, set it lower. Leaves
quality.json and quality.md in --out, and the folders of the runs in --runs.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from nurec_lite.base.environment import choose_device, environment
from nurec_lite.base.errors import UserError
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser
from nurec_lite.base.threads import share
from nurec_lite.cli.command import mended

BETTER = {"psnr": 1, "ssim": 1, "psnr_actors": 1, "lidar_median_abs_m": -1}  # -1: less is better
DIGITS = {"psnr": 3, "ssim": 4, "psnr_actors": 3, "lidar_median_abs_m": 4}
Metrics = dict[str, float]


@dataclass(frozen=True)
class Run:
    options: str  # comma-separated, '' the baseline
    seed: int
    repeat: int  # of the same options and seed

    def folder(self) -> str:
        return f"{self.options.replace(',', '+') or 'baseline'}-seed{self.seed}-{self.repeat}"


@dataclass(frozen=True)
class Verdict:
    """Verdict on one metric of one set of options."""

    metric: str
    baseline: float  # mean over seeds
    found: float  # mean of the three seeds, too
    spread: float  # of the baseline's runs of one seed
    passed: bool


def runs_of(sets: Sequence[str], seeds: Sequence[int], repeat: int) -> list[Run]:
    own = [Run("", seed, 0) for seed in seeds]
    again = [Run("", seeds[0], k) for k in range(1, repeat)]
    return [*own, *again, *(Run(options, seed, 0) for options in sets for seed in seeds)]


def metrics_of(out: Path, arguments: Sequence[str], surroundings: dict[str, str]) -> dict[str, Any]:
    """Metrics of a run in that folder; UserError with the last line of its output if it failed. Surroundings join our
    own environment."""
    command = [sys.executable, "-m", "nurec_lite.train", f"out={out}", "train.overwrite=true", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | surroundings)
    if ended.returncode:
        raise UserError(
            f"{shlex.join(command[1:])} failed: {(ended.stderr.strip().splitlines() or ['it said nothing'])[-1]}"
        )
    known: dict[str, Any] = json.loads((out / "metrics.json").read_text())
    return known


def train(run: Run, folder: Path, steps: int, common: Sequence[str], surroundings: dict[str, str]) -> Metrics:
    """Those that the gate judges."""
    arguments = [f"seed={run.seed}", f"train.steps={steps}", "train.seconds=null", f"+opt=[{run.options}]", *common]
    known = metrics_of(folder / run.folder(), arguments, surroundings)
    metrics: Metrics = {name: known[name] for name in BETTER if known.get(name) is not None}
    print(f"{run.folder()}: " + ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()), flush=True)
    return metrics


def verdicts(found: dict[Run, Metrics], options: str) -> list[Verdict]:
    """Verdicts on every metric that all runs have."""
    repeated = {run.seed for run in found if run.repeat}
    result = []
    for name, sign in BETTER.items():
        if any(name not in metrics for metrics in found.values()):
            continue
        base = [m[name] for run, m in found.items() if run.options == "" and run.repeat == 0]
        own = [m[name] for run, m in found.items() if run.options == options]
        again = [m[name] for run, m in found.items() if run.options == "" and run.seed in repeated]
        spread = max(again) - min(again) if again else 0.0
        result.append(Verdict(name, mean(base), mean(own), spread, sign * (mean(base) - mean(own)) <= 2 * spread))
    return result


def table(found: dict[str, list[Verdict]]) -> str:
    lines = ["| options | metric | baseline | with them | spread of one seed | |", "|---|---|---:|---:|---:|---|"]
    for options, own in found.items():
        for v in own:
            d = DIGITS[v.metric]
            numbers = f"{v.baseline:.{d}f} | {v.found:.{d}f} | {v.spread:.{d}f}"
            lines.append(f"| {options} | {v.metric} | {numbers} | {'passed' if v.passed else 'worse'} |")
    return "\n".join(lines)


def gpus_of(count: int, runs: int) -> list[dict[str, str]]:
    """Environment that shows each run its GPU, of those that this process may use; empty with one GPU."""
    if count < 2:
        return [{}] * runs
    usable = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = usable.split(",") if usable else [str(n) for n in range(count)]
    return [{"CUDA_VISIBLE_DEVICES": names[n % min(count, len(names))]} for n in range(runs)]


def gate(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    runs = runs_of(args.opt, args.seeds, args.repeat)
    threads = share(min(args.jobs, len(runs)))
    given = [gpu | threads for gpu in gpus_of(args.gpus, len(runs))]
    with ThreadPoolExecutor(args.jobs) as pool:
        metrics = list(pool.map(lambda run, own: train(run, folder, args.steps, args.overrides, own), runs, given))
    found = dict(zip(runs, metrics, strict=True))
    judged = {options: verdicts(found, options) for options in args.opt}
    return {
        "command": shlex.join(["python", "benchmarks/ladder/quality_gate.py", *args.arguments]),
        "environment": environment(choose_device("auto")), "steps": args.steps,
        "runs": {run.folder(): m for run, m in found.items()},
        "verdicts": {options: [vars(v) for v in own] for options, own in judged.items()},
        "passed": all(v.passed for own in judged.values() for v in own), "table": table(judged),
    }  # fmt: skip


def main(arguments: list[str]) -> int:
    p = Parser(__doc__)
    p.add_argument("--opt", nargs="+", required=True, metavar="A,B", help="sets of options")
    p.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="(%(default)s)")
    p.add_argument("--repeat", type=int, default=3, help="baselines of the first seed (%(default)s)")
    p.add_argument("--steps", type=int, default=2000, help="of a run (%(default)s)")
    p.add_argument("--jobs", type=int, default=1, help="runs at once (%(default)s)")
    p.add_argument("--gpus", type=int, default=1, help="that they are spread over (%(default)s)")
    p.add_argument("--runs", type=Path, help="folder of the runs (one that is removed)")
    p.add_argument("--out", type=Path, help="folder of quality.json and quality.md")
    p.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of nurec_lite.train, for all runs")
    args = p.parse_intermixed_args(arguments)
    args.arguments = arguments
    with mended("train"), tempfile.TemporaryDirectory() as temporary:
        report = gate(args, args.runs or Path(temporary))
        if args.out:
            write_text(args.out / "quality.json", json.dumps(report, indent=1) + "\n")
            write_text(args.out / "quality.md", f"{report['table']}\n\n    {report['command']}\n")
    print(report["table"])
    return 0 if report["passed"] else 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
