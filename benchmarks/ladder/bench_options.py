# SPDX-License-Identifier: Apache-2.0
"""Worth of every option: alone, with its requirements, and as a rung, after all options that `+opt=all` applies before
it.

    python benchmarks/ladder/bench_options.py data=pack data.root=FILE +size=large train.resume=CHECKPOINT --out FILE.json
    python benchmarks/ladder/bench_options.py --only fused_adam cuda_graph
    python benchmarks/ladder/bench_options.py --rungs                                    # the chain alone
    python benchmarks/ladder/bench_options.py --from FILE.json --quality QUALITY.json    # the table of both files, nothing is run

Arguments are those of nurec_lite.train but for +opt. All rows run in one process, one after another, each as
benchmarks/step/bench_step.py measures a step: its own options, a scene made anew, a window that is timed and one that
torch.profiler counts. So a row takes seconds, where one of benchmarks/ladder/ladder.py, a process of its own in several rounds, takes
a minute; the price is one sample a row. A row that fails stays with its error, and the exit status is 1. --quality adds a column
of benchmarks/ladder/option_quality.py to the table: docs/ladder.md names both files, and `make figures` writes its table.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import gc
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.ladder.options_table import table
from benchmarks.step.bench_step import bench, parser
from nurec_lite.base.environment import choose_device
from nurec_lite.base.errors import UserError
from nurec_lite.base.files import write_text
from nurec_lite.base.options import known_options, option_module, unknown_option
from nurec_lite.cli.command import composed, mended

CONDITIONS = ("environment", "steps", "warmup", "progress", "capture", "image", "gaussians")
COLUMNS = {  # of a row, by where bench_step has it
    "ms": ("step_ms", "median"),
    "wall_ms": ("wall_ms_a_step",),
    "launches": ("profile", "launch_calls"),
    "kernels": ("profile", "kernels"),
    "gpu_ms": ("profile", "gpu_busy_ms"),
    "waits": ("profile", "syncs"),
    "copied_bytes": ("profile", "copied_bytes"),
    "peak_bytes": ("peak_memory_bytes",),
}


@dataclass(frozen=True)
class Row:
    name: str  # of the option it is about; "": of none
    rung: bool  # after the others of `all`; else alone
    options: tuple[str, ...]


def required(name: str) -> list[str]:
    """Returns the option after all that it requires, in an order that works."""
    found: list[str] = []
    for other in option_module(name).REQUIRES:
        found += [o for o in required(other) if o not in found]
    return [*found, name]


def in_order(names: Sequence[str], order: Sequence[str]) -> tuple[str, ...]:
    """Options in the order of `all`, then the others, each after its requirements."""
    return tuple(sorted(names, key=lambda name: order.index(name) if name in order else len(order)))


def order_of(overrides: Sequence[str]) -> list[str]:
    """Options that +opt=all applies on the device of these arguments, in its order."""
    config = composed("train", [*overrides, "+opt=all"])
    names: list[str] = config.opt["all"][choose_device(config.device).type]
    return names


def rows_of(order: Sequence[str], others: Sequence[str]) -> Iterator[Row]:
    """The baseline, the rungs in their order, then each option alone; `others` are in no rung."""
    yield Row("", True, ())
    for n, name in enumerate(order, 1):
        yield Row(name, True, tuple(order[:n]))
    for name in (*order, *others):
        yield Row(name, False, in_order(required(name), order))


def measured(row: Row, args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """The row with its figures, or its error, and their conditions."""
    chosen = [f"+opt=[{','.join(row.options)}]"] if row.options else []
    try:
        report = bench(composed("train", [*args.overrides, *chosen]), args)
    except (UserError, RuntimeError) as error:
        return asdict(row) | {"error": str(error).splitlines()[0]}, {}
    finally:
        gc.collect()
        torch.cuda.empty_cache()  # does nothing where there is no GPU
    figures = {name: within(report, path) for name, path in COLUMNS.items()}
    return asdict(row) | figures, {name: report[name] for name in CONDITIONS}


def within(tree: Any, path: Sequence[str]) -> float | None:
    """None where the profiler saw nothing, as on a CPU."""
    for name in path:
        tree = None if tree is None else tree.get(name)
    return tree


def all_measured(args: argparse.Namespace) -> dict[str, Any]:
    """Conditions and rows, all or the chosen ones; the file gets them a row at a time."""
    order = order_of(args.overrides)
    for name in (*args.others, *(args.only or ())):
        if name not in known_options():
            raise unknown_option(name)
    others = [name for name in args.others if name not in order]
    report: dict[str, Any] = {"command": shlex.join(["python", "benchmarks/ladder/bench_options.py", *args.arguments])}
    report["rows"] = []
    for row in rows_of(order, others):
        if is_asked(row, args.only, args.rungs):
            figures, conditions = measured(row, args)
            report = conditions | report
            report["rows"].append(figures)
            print(sentence(figures), file=sys.stderr, flush=True)
            if args.out:  # so that nothing is lost if a later one never ends
                write_text(args.out, json.dumps(report, indent=1) + "\n")
    return report


def is_asked(row: Row, only: Sequence[str] | None, rungs: bool) -> bool:
    """Returns whether a row is measured: one of these options or the baseline, and with `rungs` only if it is in the chain."""
    return (only is None or row.name in ("", *only)) and (row.rung or not rungs)


def read(file: Path) -> dict[str, Any]:
    """Contents of a file of this benchmark or of option_quality.py."""
    try:
        return {"rows": json.loads(file.read_text())["rows"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} holds no rows of options ({error}); name the file of the benchmark's --out") from error


def sentence(row: dict[str, Any]) -> str:
    """A line about a finished row, printed while others still run."""
    name = f"{row['name'] or 'none'}, {'a rung' if row['rung'] else 'alone'}"
    return f"{name}: {row['error']}" if "error" in row else f"{name}: {row['wall_ms']:.1f} ms a step"


def main(arguments: list[str]) -> None:
    p = parser()
    p.description = __doc__
    p.add_argument("--only", nargs="+", metavar="OPTION", help="these and the baseline (all)")
    p.add_argument("--rungs", action="store_true", help="the chain from the baseline to `all` alone")
    p.add_argument("--others", nargs="+", default=[], metavar="OPTION", help="that no rung has, each alone")
    p.add_argument("--from", type=Path, dest="measured", metavar="FILE.json", help="of an earlier run: nothing is run")
    p.add_argument("--quality", type=Path, metavar="FILE.json", help="of option_quality.py")
    args = p.parse_intermixed_args(arguments)
    args.arguments = arguments
    with mended("train"):
        report = read(args.measured) if args.measured else all_measured(args)
        quality = read(args.quality)["rows"] if args.quality else ()
    print(table(report["rows"], quality))
    if any("error" in row for row in report["rows"]):
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
