# SPDX-License-Identifier: Apache-2.0
"""Quality of a scene after some seconds: images and ranges of whole runs with several budgets, as a table and a
picture.

    python benchmarks/step/bench_budgets.py --set 'realtime=+recipe=realtime +opt=all' --set 'baseline=+size=large train.seconds=null' \\
        --steps 500 1000 2000 --seeds 0 1 --out benchmarks/results/NAME data=pack data.root=FILE

Every run is a process of its own, `python -m nurec_lite.train` with the set's arguments after those of all, and its schedule ends with its
budget: a point of a curve is a run that was meant to be so long, not one that was stopped there. Seconds are `seconds_total`, from the
start of the process to the checkpoint. Rounds go through all sets before a seed comes again. OUT.json has all runs, OUT.png the medians
over seeds with every run as a dot. `--from OUT.json` draws anew. A run that fails stands in the file with its error, and the benchmark
ends with 1.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.step.bench_step import positive
from benchmarks.step.budget_picture import curves, table
from nurec_lite.base.environment import choose_device, environment
from nurec_lite.base.errors import UserError
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser
from nurec_lite.cli.command import mended
from nurec_lite.evaluation.pictures import save_png

KEPT = (
    "psnr", "ssim", "psnr_actors", "lidar_median_abs_m", "lidar_mean_abs_m", "seconds_total", "seconds_train", "steps",
    "gaussians",
)  # fmt: skip
Row = dict[str, Any]


def named(text: str) -> tuple[str, list[str]]:
    """NAME=ARGUMENTS."""
    name, equals, arguments = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"'{text}' is no set such as 'realtime=+recipe=realtime +opt=all'")
    return name, shlex.split(arguments)


def run(name: str, arguments: list[str], steps: int, seed: int) -> Row:
    """One training, and its own report."""
    row: Row = {"set": name, "budget": steps, "seed": seed}
    with TemporaryDirectory() as folder:
        own = [f"train.steps={steps}", f"seed={seed}", f"out={folder}/run"]
        command = [sys.executable, "-m", "nurec_lite.train", *arguments, *own]
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode:
            return row | {"error": (ended.stderr.strip() or "no word").splitlines()[-1]}
        metrics = json.loads(Path(folder, "run/metrics.json").read_text())
    return row | {key: metrics[key] for key in KEPT if key in metrics}


def measured(args: argparse.Namespace) -> dict[str, Any]:
    rows = []
    for seed in args.seeds:
        for steps in args.steps:
            for name, arguments in args.set:
                rows.append(run(name, [*args.overrides, *arguments], steps, seed))
                print(table(rows[-1:]), flush=True)
    command = shlex.join(["python", "benchmarks/step/bench_budgets.py", *args.arguments])
    sets = {name: arguments for name, arguments in args.set}
    device = choose_device("auto")
    return {
        "command": command,
        "environment": environment(device),
        "load_average_before": args.load,
        "sets": sets,
        "rows": rows,
    }


def known(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        if not found["rows"] or not all({"set", "budget"} <= row.keys() for row in found["rows"]):
            raise KeyError
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} holds no figures of this benchmark; give the file that --out wrote") from error
    return found


def main(arguments: list[str]) -> int:
    p = Parser(__doc__)
    p.add_argument(
        "--set", action="append", type=named, default=[], metavar="NAME=ARGUMENTS", help="a curve; again for more"
    )
    p.add_argument("--steps", nargs="+", type=positive, default=[500, 1000, 2000], help="budgets (%(default)s)")
    p.add_argument("--seeds", nargs="+", type=int, default=[0], help="(%(default)s)")
    p.add_argument(
        "--out",
        type=Path,
        help="files without their suffix, such as benchmarks/results/NAME: .json and .png are written",
    )
    p.add_argument("--from", dest="known", type=Path, help="draws the figures of this file of an earlier run")
    p.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of nurec_lite.train, for all sets")
    args = p.parse_intermixed_args(arguments)
    args.arguments, args.load = arguments, os.getloadavg()
    with mended("train"):
        if not args.set and args.known is None:
            raise UserError("no set is given; use --set 'NAME=ARGUMENTS', or --from FILE")
        report = measured(args) if args.known is None else known(args.known)
        out = args.out or (args.known.with_suffix("") if args.known else None)
        if out is not None:
            if args.known is None:
                write_text(out.with_name(f"{out.name}.json"), json.dumps(report, indent=1) + "\n")
            save_png(out.with_name(f"{out.name}.png"), curves(report))
    return int(any("error" in row for row in report["rows"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
