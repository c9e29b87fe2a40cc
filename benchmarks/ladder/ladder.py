# SPDX-License-Identifier: Apache-2.0
"""Gain of options, rung by rung: every set of options in a fresh process, repeatedly and in turns, quality and speed.

    python benchmarks/ladder/ladder.py --rungs '' workers
    python benchmarks/ladder/ladder.py --rungs '' workers fused_interp no_sync --cumulative --repeat 5 --quality-steps 2000
    python benchmarks/ladder/ladder.py --rungs '' all data=kitti_raw data.root=FOLDER data.downscale=2
    python benchmarks/ladder/ladder.py --from benchmarks/results/NAME --page          # its part of docs/ladder.md
    python benchmarks/ladder/ladder.py --from benchmarks/results/NAME --page --write  # put there

A rung is a comma-separated set of options, '' the baseline; with --cumulative a rung adds its options to those of the rungs before.
Rounds go A B C A B C, so that a change of the machine's pace reaches all; a speedup is the median over rounds of baseline over rung of
the same round. A rung that fails stays in the table with its error, and the program ends with 1. Leaves ladder.csv, ladder.json and
waterfall.png in --out; --page prints the part of docs/ladder.md, and with --write puts it there, for CPUs or for GPUs (`make
figures` does so for benchmarks/results/ladder_*). Run it on a quiet machine: how many cores other programs kept busy is recorded with
each sample, and --others 0.2 takes a sample again, up to ten times, if they kept more than that busy.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common.quiet import Others
from benchmarks.ladder.ladder_picture import waterfall
from benchmarks.ladder.ladder_results import Row, fill, markers, rows_of, section, table, write_csv
from benchmarks.opt.bench_workers import processor
from nurec_lite.base.errors import UserError
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser
from nurec_lite.cli.command import mended
from nurec_lite.evaluation.pictures import save_png

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/ladder.md"
CHILD = ROOT / "benchmarks/ladder/ladder_child.py"
_TRIES = 10
QUALITY = ("psnr", "ssim", "lidar_median_abs_m", "seconds_train", "steps")


@dataclass
class Rung:
    """A set of options, and its results."""

    label: str
    options: tuple[str, ...]
    samples: list[dict[str, Any]] = field(default_factory=list)  # of ladder_child, one a round
    quality: dict[str, float] | None = None  # of one whole run
    error: str | None = None  # why it failed; it is not tried again

    def overrides(self, common: list[str]) -> list[str]:
        return [f"+opt=[{','.join(self.options)}]", *common]


def rungs_of(names: list[str], cumulative: bool) -> list[Rung]:
    """UserError if two of them are the same set."""
    rungs: list[Rung] = []
    so_far: tuple[str, ...] = ()
    for name in names:
        own = tuple(part.strip() for part in name.split(",") if part.strip())
        so_far = (*so_far, *(o for o in own if o not in so_far))
        label = f"+ {' + '.join(own)}" if cumulative and rungs else " + ".join(own)
        rungs.append(Rung(label or "baseline", so_far if cumulative else own))
    if len({rung.options for rung in rungs}) < len(rungs):
        raise UserError(f"--rungs {shlex.join(names)} names one set of options twice; leave one of them out")
    return rungs


def run_process(command: list[str], seconds: float) -> str | None:
    """None if all went well, else one sentence."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, env=_env())
    except subprocess.TimeoutExpired:
        return f"took longer than {seconds:g} s (--timeout)"
    if ended.returncode < 0:
        return f"ended by {signal.Signals(-ended.returncode).name}"
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    if ended.returncode == 0:
        return None
    return lines[-1].removeprefix("error: ") if lines else f"ended with code {ended.returncode}"


def _env() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}


def sample(rung: Rung, args: argparse.Namespace) -> None:
    """One more; again if other programs disturbed it too much. A failure ends the tries."""
    for _ in range(_TRIES):
        attempt(rung, args)
        others = rung.samples[-1]["others_cores"] if rung.error is None else None
        if others is None or args.others is None or others <= args.others:
            return
        rung.samples.pop()
    rung.error = f"other programs kept more than {args.others:g} cores busy in {_TRIES} tries (--others)"


def attempt(rung: Rung, args: argparse.Namespace) -> None:
    others = Others()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sample.json"
        numbers = [str(file), str(args.warmup), str(args.steps)]
        rung.error = run_process([sys.executable, str(CHILD), *numbers, *rung.overrides(args.overrides)], args.timeout)
        if rung.error is None:
            rung.samples.append(json.loads(file.read_text()) | {"others_cores": others.cores()})


def train_whole(rung: Rung, args: argparse.Namespace) -> None:
    """A whole run of --quality-steps, measured on the frames held out."""
    with tempfile.TemporaryDirectory() as folder:
        own = [f"train.steps={args.quality_steps}", "train.seconds=null", "train.evaluate=true", f"out={folder}"]
        command = [sys.executable, "-m", "nurec_lite.train", *rung.overrides(args.overrides), *own]
        rung.error = run_process(command, args.timeout)
        if rung.error is None:
            metrics = json.loads((Path(folder) / "metrics.json").read_text())
            rung.quality = {key: metrics[key] for key in QUALITY if metrics.get(key) is not None}


def measure(rungs: list[Rung], args: argparse.Namespace) -> None:
    for n in range(args.repeat):
        for rung in (rung for rung in rungs if rung.error is None):
            sample(rung, args)
            print(f"round {n + 1} of {args.repeat}, {rung.label}: {rung.error or 'done'}", flush=True)
    for rung in (rung for rung in rungs if rung.error is None and args.quality_steps):
        train_whole(rung, args)
        print(f"whole run, {rung.label}: {rung.error or 'done'}", flush=True)


def conditions(rungs: list[Rung], args: argparse.Namespace) -> dict[str, Any]:
    first = next((s for rung in rungs for s in rung.samples), {})
    context = {key: first.get(key) for key in ("capture", "image", "gaussians", "lidar_rays")}
    return {
        "command": shlex.join(["python", "benchmarks/ladder/ladder.py", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"), "environment": first.get("environment", {}), "cpu": processor(),
        **context, "repeat": args.repeat, "warmup": args.warmup, "steps": args.steps,
        "quality_steps": args.quality_steps, "others_cores": most_others(rungs),
    }  # fmt: skip


def most_others(rungs: list[Rung]) -> float | None:
    """Cores that other programs kept busy, of the sample that they disturbed most; None where one is not known."""
    known = [s["others_cores"] for rung in rungs for s in rung.samples]
    return None if None in known else max(known, default=None)


def write(out: Path, rungs: list[Rung], rows: list[Row], context: dict[str, Any]) -> None:
    write_csv(out / "ladder.csv", rows)
    write_text(out / "ladder.json", json.dumps({**context, "rungs": [vars(rung) for rung in rungs]}, indent=1) + "\n")
    save_png(out / "waterfall.png", waterfall(rows, context))


def parsed(arguments: list[str]) -> argparse.Namespace:
    p = Parser(__doc__)
    p.add_argument("--rungs", nargs="+", default=["", "all"], metavar="OPTIONS", help="sets of options ('' all)")
    p.add_argument("--cumulative", action="store_true", help="each rung adds to the ones before")
    p.add_argument("--repeat", type=int, default=3, help="rounds (%(default)s)")
    p.add_argument("--warmup", type=int, default=10, help="steps of a process that do not count (%(default)s)")
    p.add_argument("--steps", type=int, default=40, help="steps of a process that count (%(default)s)")
    p.add_argument(
        "--quality-steps", type=int, default=0, metavar="N", help="also one whole run of N steps a rung, measured"
    )
    p.add_argument("--others", type=float, metavar="CORES", help="that other programs may keep busy (any number)")
    p.add_argument("--timeout", type=float, default=3600, help="seconds of one process at most (%(default)s)")
    p.add_argument("--out", type=Path, help="folder of the results (runs/ladder-DATE)")
    p.add_argument(
        "--from",
        type=Path,
        dest="measured",
        metavar="FOLDER",
        help="of a ladder: nothing is run, its table is made again",
    )
    p.add_argument("--page", action="store_true", help="prints the part of docs/ladder.md that the table fills")
    p.add_argument("--write", action="store_true", help="puts it there")
    p.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of nurec_lite.train, for all rungs")
    args = p.parse_args(arguments)
    if args.write and not args.page:
        p.error("--write goes with --page")
    args.overrides += [word for word in args.rungs if "=" in word]  # those that follow --rungs
    args.rungs = [word for word in args.rungs if "=" not in word]
    args.out = args.measured or args.out or ROOT / "runs" / time.strftime("ladder-%Y%m%d-%H%M%S")
    return args


def measured(args: argparse.Namespace) -> tuple[list[Rung], dict[str, Any]]:
    """Measures the rungs, writes them to --out, and returns them with the conditions."""
    rungs = rungs_of(args.rungs, args.cumulative)
    measure(rungs, args)
    context = conditions(rungs, args)
    write(args.out, rungs, rows_of(rungs), context)
    return rungs, context


def read(folder: Path) -> tuple[list[Rung], dict[str, Any]]:
    """The rungs and conditions that `write` left."""
    try:
        context = json.loads((folder / "ladder.json").read_text())
        return [Rung(**rung | {"options": tuple(rung["options"])}) for rung in context.pop("rungs")], context
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{folder} holds no ladder.json of this benchmark ({error}); name the --out of a ladder"
        ) from error


def page_of(text: str, rungs: list[Rung], context: dict[str, Any], folder: Path) -> str:
    """The text of docs/ladder.md with the table of this ladder between its markers."""
    return fill(text, section(rows_of(rungs), context, folder.resolve(), PAGE.parent), markers(context), PAGE.name)


def _printed(rungs: list[Rung], context: dict[str, Any], folder: Path) -> str:
    begin, end = markers(context)
    text = section(rows_of(rungs), context, folder.resolve(), PAGE.parent)
    return f"\n{begin}\n\n{text}\n\n{end}\n\nnothing is written; --write puts this into {PAGE.name}"


def main() -> None:
    """Ends with 1 if a rung failed; the table holds its error."""
    with mended("train"):
        args = parsed(sys.argv[1:])
        rungs, context = read(args.out) if args.measured else measured(args)
        rows = rows_of(rungs)
        print(f"\n{table(rows)}\n\nfigures, single times and picture in {args.out}")
        if args.write:
            write_text(PAGE, page_of(PAGE.read_text(), rungs, context, args.out))
        elif args.page:
            print(_printed(rungs, context, args.out))
    if any(rung.error is not None for rung in rungs):
        sys.exit(1)


if __name__ == "__main__":
    main()
