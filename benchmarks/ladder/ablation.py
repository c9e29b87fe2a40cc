# SPDX-License-Identifier: Apache-2.0
"""Worth of each choice of a recipe: runs with all of them, and with one undone at a time, for several seeds.

    python benchmarks/ladder/ablation.py --out FILE.json --jobs 4 data=pack data.root=FILE data.split=validation +recipe=realtime +opt=all
    python benchmarks/ladder/ablation.py --only 'one opacity' 'no grid' data.split=validation +recipe=realtime

Runs are processes of their own, --jobs at once, on --gpus GPUs in turns: their times mean nothing. On data.split=validation no held-out
frame is looked at. A row that fails stays with its error, and the exit status is 1.
"""

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.ladder.quality_gate import gpus_of, metrics_of
from nurec_lite.base.environment import choose_device, environment
from nurec_lite.base.errors import UserError
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser
from nurec_lite.base.threads import share
from nurec_lite.cli.command import mended

CHOICES = {  # name: the arguments that undo it
    "all choices": (),
    "no lidar": ("train.lidar_rays=0",),
    "one opacity for both sensors": ("model.lidar_opacity=false",),
    "the expected range instead of the line of sight": ("loss.reach=0",),
    "both opacities untied": ("loss.tie=0",),
    "no corrections, no grid": ("model.calibrate=false", "model.bilateral_grid=null"),
    "no grid": ("model.bilateral_grid=null",),
    "no corrections of poses": tuple(f"lr.{part}=0" for part in (
        "rig_rotations", "rig_translations", "camera_rotations", "camera_translations")),
    "no corrections of clocks": ("lr.camera_offsets=0",),
    "no exposure in time, no vignetting": ("lr.exposure_drift=0", "lr.vignetting=0"),
    "relocation by opacity alone": ("density.footprint=false",),
    "round Gaussians at first": ("model.thickness=1",),
    "loss.opacity=0.01, the default": ("loss.opacity=0.01",),
    "actors not mirrored": ("model.mirror_actors=false",),
    "a sweep in every step": ("train.lidar_every=1",),
    "a sweep in every second step": ("train.lidar_every=2",),
}  # fmt: skip
METRICS = {"psnr": "{:.2f}", "ssim": "{:.3f}", "psnr_actors": "{:.1f}", "lidar_median_abs_m": "{:.3f}"}
HEAD = "| | PSNR, dB | each seed | SSIM | actors, dB | lidar, m |\n|---|---:|---|---:|---:|---:|"


def measured(name: str, seed: int, folder: Path, common: Sequence[str], given: dict[str, str]) -> dict[str, Any]:
    """The run's metrics, or its error."""
    arguments = [f"seed={seed}", *common, *CHOICES[name]]
    try:
        found = metrics_of(folder / f"{list(CHOICES).index(name)}-{seed}", arguments, given)
    except UserError as error:
        return {"error": str(error)}
    print(f"{name}, seed {seed}: {found.get('psnr', 0):.2f} dB", file=sys.stderr, flush=True)
    return {key: found[key] for key in (*METRICS, "steps") if found.get(key) is not None}


def ablation(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    names = [name for name in CHOICES if args.only is None or name in args.only]
    runs = [(name, seed) for name in names for seed in args.seeds]
    threads = share(min(args.jobs, len(runs)))
    given = [gpu | threads for gpu in gpus_of(args.gpus, len(runs))]
    with ThreadPoolExecutor(args.jobs) as pool:
        found = list(pool.map(lambda run, own: measured(*run, folder, args.overrides, own), runs, given))
    rows = [
        {"name": name, "arguments": CHOICES[name], "seeds": found[k * len(args.seeds) : (k + 1) * len(args.seeds)]}
        for k, name in enumerate(names)
    ]
    command = shlex.join(["python", "benchmarks/ladder/ablation.py", *args.arguments])
    return {"command": command, "environment": environment(choose_device("auto")), "seeds": args.seeds, "rows": rows}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: a choice undone a line, means over the seeds."""
    return "\n".join([HEAD, *map(_line, rows)])


def _line(row: dict[str, Any]) -> str:
    runs = row["seeds"]
    if any("error" in run for run in runs):
        return f"| {row['name']} | failed | | | | |"
    psnr, *others = (_mean(runs, name, form) for name, form in METRICS.items())
    each = ", ".join(METRICS["psnr"].format(run["psnr"]) for run in runs)
    return f"| {row['name']} | {psnr} | {each} | {' | '.join(others)} |"


def _mean(runs: Sequence[dict[str, Any]], name: str, form: str) -> str:
    """The mean of a figure; empty where a run does not have it."""
    return form.format(mean(run[name] for run in runs)) if all(name in run for run in runs) else ""


def main(arguments: list[str]) -> None:
    p = Parser(__doc__)
    p.add_argument("--only", nargs="+", choices=list(CHOICES), metavar="CHOICE", help="these: " + "; ".join(CHOICES))
    p.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="(%(default)s)")
    p.add_argument("--jobs", type=int, default=1, help="runs at once (%(default)s)")
    p.add_argument("--gpus", type=int, default=1, help="that they are spread over (%(default)s)")
    p.add_argument("--runs", type=Path, help="folder of the runs (one that is removed)")
    p.add_argument("--out", type=Path, metavar="FILE.json")
    p.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of nurec_lite.train, for all runs")
    args = p.parse_intermixed_args(arguments)
    args.arguments = arguments
    with mended("train"), tempfile.TemporaryDirectory() as temporary:
        report = ablation(args, args.runs or Path(temporary))
        if args.out:
            write_text(args.out, json.dumps(report, indent=1) + "\n")
    print(table(report["rows"]))
    if any("error" in run for row in report["rows"] for run in row["seeds"]):
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
