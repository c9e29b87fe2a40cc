# SPDX-License-Identifier: Apache-2.0
"""Quality of a reconstruction with each option: one short run each, with its requirements, measured on the held-out
frames.

    python benchmarks/ladder/option_quality.py --steps 600 --jobs 5 --out FILE.json data=pack data.root=FILE data.downscale=2
    python benchmarks/ladder/option_quality.py --only fused_adam cuda_graph

Every option gets as many steps, and the baseline's seed. The baseline runs --repeat times, for its spread: floating-point atomics make
runs of one seed differ on a GPU. A row for `all` has everything that +opt=all applies. Runs are processes of their own, --jobs at once,
on --gpus GPUs in turns: their times mean nothing. A run that fails stays with its error, and the exit status is 1; one that could not
begin within --limit seconds, too. This compares one run of each with the spread; whether a set of options leaves
benchmarks/ladder/quality_gate.py judges quality, by three seeds. The table of benchmarks/ladder/bench_options.py takes --out
as its --quality.
"""

import argparse
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.ladder.bench_options import in_order, order_of, required
from benchmarks.ladder.quality_gate import BETTER, Metrics, gpus_of, metrics_of
from nurec_lite.base.environment import choose_device, environment
from nurec_lite.base.errors import UserError
from nurec_lite.base.files import write_text
from nurec_lite.base.options import known_options, unknown_option
from nurec_lite.base.program import Parser
from nurec_lite.base.threads import share
from nurec_lite.cli.command import composed, mended

ALL = "all"


@dataclass
class Row:
    """Runs of one set of options, and their results."""

    name: str  # of the option it is about; "": of none
    options: tuple[str, ...]
    repeat: int = 1
    found: list[Metrics] = field(default_factory=list)
    error: str | None = None

    def as_row(self) -> dict[str, Any]:
        """Means over its runs."""
        known = {key: mean(run[key] for run in self.found) for key in _of_all(self.found)}
        error = {} if self.error is None else {"error": self.error}
        return {"name": self.name, "options": list(self.options), "runs": len(self.found)} | known | error


def _of_all(runs: Sequence[Metrics]) -> list[str]:
    """Metrics that every run has."""
    return [key for key in BETTER if runs and all(key in run for run in runs)]


def rows_of(order: Sequence[str], repeat: int, only: Sequence[str] | None) -> list[Row]:
    """The baseline, all together, then those of `all` in their order, then the others; of all these the chosen ones."""
    others = sorted(name for name in known_options() if name not in (ALL, *order))
    names = (*order, *others)
    rows = [Row("", (), repeat), Row(ALL, (ALL,))]
    rows += [Row(name, in_order(required(name), order)) for name in names]
    for name in only or ():
        if name not in (ALL, *names):
            raise unknown_option(name)
    return [row for row in rows if only is None or row.name in ("", *only)]


class Runs:
    """All runs, and the file with the results so far."""

    def __init__(self, args: argparse.Namespace, rows: list[Row], folder: Path) -> None:
        self.args, self.rows, self.folder, self.begin = args, rows, folder, time.monotonic()
        self.environment = environment(choose_device(composed("train", args.overrides).device))

    def make(self) -> None:
        """Repetitions begin at the same time, the rows in their order."""
        todo = [(row, k) for row in self.rows for k in range(row.repeat)]
        threads = share(min(self.args.jobs, len(todo)))
        given = [gpu | threads for gpu in gpus_of(self.args.gpus, len(todo))]
        with ThreadPoolExecutor(self.args.jobs) as pool:
            for _ in pool.map(self.run, todo, given):
                self.save()

    def run(self, one: tuple[Row, int], surroundings: dict[str, str]) -> None:
        row, k = one
        if self.args.limit is not None and time.monotonic() - self.begin > self.args.limit:
            row.error = f"it was not begun: {self.args.limit:g} s had gone (--limit)"
            return
        budget = [f"train.steps={self.args.steps}", "train.seconds=null", "train.evaluate=true"]
        arguments = [*self.args.overrides, *budget, f"+opt=[{','.join(row.options)}]"]
        try:
            known = metrics_of(self.folder / f"{row.name or 'none'}-{k}", arguments, surroundings)
        except UserError as error:
            row.error = str(error).rpartition(" failed: ")[2]  # without the command, which names folders of this run
        else:
            row.found.append({key: known[key] for key in BETTER if known.get(key) is not None})
        print(f"{row.name or 'none'}: {row.error or row.found[-1]}", file=sys.stderr, flush=True)

    def report(self) -> dict[str, Any]:
        baseline = self.rows[0].found
        spread = {key: max(m[key] for m in baseline) - min(m[key] for m in baseline) for key in _of_all(baseline)}
        return {
            "command": shlex.join(["python", "benchmarks/ladder/option_quality.py", *self.args.arguments]),
            "environment": self.environment, "steps": self.args.steps, "spread": spread, "rows": [row.as_row() for row in self.rows],
        }  # fmt: skip

    def save(self) -> None:
        if self.args.out:
            write_text(self.args.out, json.dumps(self.report(), indent=1) + "\n")


def table(report: dict[str, Any]) -> str:
    head = f"{'option':16}" + "".join(f"{key:>20}" for key in BETTER)
    lines = [head, *(_line(row["name"] or "none", row) for row in report["rows"])]
    return "\n".join([*lines, _line("spread", report["spread"])])


def _line(name: str, row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{name:16}    {row['error']}"
    cells = [f"{row[key]:.3f}" if key in row else "" for key in BETTER]
    return f"{name:16}" + "".join(f"{cell:>20}" for cell in cells)


def main(arguments: list[str]) -> None:
    p = Parser(__doc__)
    p.add_argument("--only", nargs="+", metavar="OPTION", help="these and the baseline (every one)")
    p.add_argument("--steps", type=int, default=600, help="of a run (%(default)s)")
    p.add_argument("--repeat", type=int, default=3, help="runs of the baseline (%(default)s)")
    p.add_argument("--jobs", type=int, default=1, help="runs at once (%(default)s)")
    p.add_argument("--gpus", type=int, default=1, help="that they are spread over (%(default)s)")
    p.add_argument("--limit", type=float, metavar="SECONDS", help="no run begins after so many seconds (none)")
    p.add_argument("--runs", type=Path, help="folder of the runs (one that is removed)")
    p.add_argument("--out", type=Path, metavar="FILE.json")
    p.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of nurec_lite.train, for all runs")
    args = p.parse_intermixed_args(arguments)
    args.arguments = arguments
    with mended("train"), tempfile.TemporaryDirectory() as temporary:
        rows = rows_of(order_of(args.overrides), args.repeat, args.only)
        runs = Runs(args, rows, args.runs or Path(temporary))
        runs.make()
    print(table(runs.report()))
    if any(row.error for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
