# SPDX-License-Identifier: Apache-2.0
"""Launch bounds that suit the split backward kernels, for the table of the option launch_bounds: threads x blocks, rays a thread,
staged rows and Gaussians looked at together, by sensor and architecture.

    python benchmarks/opt/bench_launch_bounds.py --checkpoint runs/NAME/checkpoint.pt --out benchmarks/results/NAME
    python benchmarks/opt/bench_launch_bounds.py --workloads random --threads 64 128 --rays 1 2 --out runs/sweep
    python benchmarks/opt/bench_launch_bounds.py --compile-only --architectures 80 90 120 --out runs/sweep

All variants are compiled, each alone; the compiler gives their registers, spills and shared memory. On a GPU every gradient of a variant is
compared with that of the shared kernel. The tolerance is 1e-3, or twice the change of that kernel's gradients if every mean moves to the
next float32. Variants that agree are timed: CUDA events around the kernel alone, after copies that empty the caches, in rounds that take
all in turn and in both orders. `--compile-only` needs no GPU and gives no times. --out names a folder for sweep.json (all, with
conditions), sweep.csv and sweep.md. The choice for each sensor goes into BOUNDED of kernels/raster_tiles/backward_table.h. Registers,
threads and shared memory limit occupancy. Scenes and views: benchmarks/render/workload.py (random Gaussians unless a checkpoint or a
capture is named); pairs are contributing ones (benchmarks/render/pair_counts.py).
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.quiet import Others
from benchmarks.opt.sweep_report import Row, choices, markdown, pick_of, write
from benchmarks.opt.sweep_variants import (
    SHARED,
    Library,
    Problem,
    Variant,
    compile_all,
    library_path,
    occupancy,
    problem_of,
    variants_of,
)
from benchmarks.render.contenders import DRAWS, TOLERANCE, Fill, limit, relative
from benchmarks.render.pair_counts import count_pairs
from benchmarks.render.workload import Workload, add_arguments, make_workloads, size_of
from benchmarks.step.bench_step import mark, milliseconds, positive, spread
from nurec_lite.backends import base_stages
from nurec_lite.base.environment import choose_device, environment
from nurec_lite.base.errors import ConfigError
from nurec_lite.base.program import Parser
from nurec_lite.cli.command import mended
from scripts.resources import ARCHITECTURES, Usage

# ---- rows


def described(variant: Variant, usage: Usage, architecture: str) -> Row:
    """A row without times; spills in bytes, shared memory in bytes a block."""
    return {
        "workload": None, "sensor": variant.sensor, "architecture": architecture,
        "threads": variant.threads, "min_blocks": variant.min_blocks, "rays": variant.rays, "rows": variant.rows,
        "ahead": variant.ahead,
        "registers": usage.registers, "spills": usage.spills, "shared": usage.shared,
        "occupancy": occupancy(usage, variant.threads, architecture), "status": None,
    }  # fmt: skip


def shared_row(sensor: str, usage: Usage, architecture: str) -> Row:
    """Row of the kernel that serves both sensors."""
    return described(Variant(sensor, 256, 1, 1, 256, 1), usage, architecture) | {
        "min_blocks": None,
        "status": "both sensors",
    }


# ---- on a GPU


def timed(
    workload: Workload, sensor: str, libraries: dict[str, Library], rows: dict[str, Row], args: argparse.Namespace
) -> list[Row]:
    """Rows of one view: checked, then timed. The others must agree with the first."""
    device = choose_device(args.device)
    problem, contributing = problem_of(workload, sensor, device), contributing_pairs(workload, sensor, device)
    found = {name: row | {"workload": workload.name} for name, row in rows.items()}
    first = next(iter(found))
    expected = libraries[first].gradients(problem)
    rounding = rounding_of(libraries[first], expected, workload, sensor, device)
    for name in list(found)[1:]:
        try:
            found[name] |= checked(libraries[name].gradients(problem), expected, rounding)
        except RuntimeError as error:  # such as too many resources
            found[name]["status"] = str(error)
    found[first]["difference"] = rounding
    able = [name for name in found if name == first or found[name]["status"] is None]
    taken = measure({name: libraries[name] for name in able}, problem, args.warmup, args.rounds, device)
    for name, samples in taken.items():
        s = spread(samples)
        found[name] |= {
            "ms": s["median"], "quarter": s["quarter"], "three_quarters": s["three_quarters"],
            "giga_pairs_per_s": contributing / s["median"] / 1e6, "single_ms": [round(t, 5) for t in samples],
        }  # fmt: skip
    return list(found.values())


def checked(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], rounding: float = 0) -> Row:
    off = difference(found, expected)
    return {
        "difference": off,
        "status": None if off <= limit(TOLERANCE, rounding) else f"disagrees: off by {off:.1e}",
    }


def difference(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """The largest of all gradients'."""
    return max(relative(found[k], v) for k, v in expected.items())


def rounding_of(
    library: Library, expected: dict[str, torch.Tensor], workload: Workload, sensor: str, device: torch.device
) -> float:
    """Change of the gradients when means are `perturbed`."""
    draws = (problem_of(workload, sensor, device, seed) for seed in range(DRAWS))
    return max(difference(library.gradients(problem), expected) for problem in draws)


def contributing_pairs(workload: Workload, sensor: str, device: torch.device) -> int:
    stages, view = base_stages("native", device), workload.views[sensor]
    with torch.no_grad():
        (gaussians,) = stages.render.gather(stages, workload.scene, (view,)).gaussians
        return count_pairs(
            gaussians, view, stages.render.tile(stages.render.project(gaussians, view), view)
        ).contributing


def measure(
    libraries: dict[str, Library], problem: Problem, warmup: int, rounds: int, device: torch.device
) -> dict[str, list[float]]:  # milliseconds of the kernel alone
    fill, taken = Fill(device), {name: [] for name in libraries}  # type: dict[str, list[float]]
    for n in range(warmup + rounds):
        for name in libraries if n % 2 == 0 else reversed(libraries):
            fill()
            begun = mark(device)
            libraries[name](problem)
            taken[name].append(milliseconds(begun, mark(device)))
    return {name: samples[warmup:] for name, samples in taken.items()}


# ---- the whole


def sweep(args: argparse.Namespace) -> dict[str, Any]:
    """All that goes into the file, conditions first."""
    device, load, others = choose_device(args.device), os.getloadavg(), Others()
    if device.type != "cuda" and not args.compile_only:
        raise ConfigError("the variants can only be timed on a GPU; give --compile-only for their registers alone")
    rows = compiled_rows(args) if args.compile_only else timed_rows(args, device)
    return {
        "command": shlex.join(["python", "benchmarks/opt/bench_launch_bounds.py", *args.arguments]),
        "environment": environment(device),
        "load_average_before": load, "cores_busy_with_others": others.cores(),
        "rounds": args.rounds, "warmup": args.warmup, "tolerance": TOLERANCE,
        "rows": rows, "choices": choices(rows),
    }  # fmt: skip


def asked_for(args: argparse.Namespace, sensor: str) -> dict[str, Variant]:  # by name
    found = variants_of(sensor, args.threads, args.resident, args.rays, args.rows, args.ahead)
    return {variant.name: variant for variant in found}


def compiled_rows(args: argparse.Namespace) -> list[Row]:
    rows = []
    for sensor in args.sensors:
        variants = asked_for(args, sensor)
        named = {"both sensors": SHARED} | {name: v.defines(moving=True) for name, v in variants.items()}
        usages = compile_all(named, args.architectures, None, args.jobs)
        for a in args.architectures:
            rows.append(shared_row(sensor, usages["both sensors"][a], a))
            rows += [described(v, usages[name][a], a) for name, v in variants.items()]
    return rows


def timed_rows(args: argparse.Namespace, device: torch.device) -> list[Row]:
    architecture, rows = "".join(map(str, torch.cuda.get_device_capability(device))), []  # type: str, list[Row]
    for workload in make_workloads(args, device):
        for sensor in args.sensors:
            moving = problem_of(workload, sensor, device).moving
            variants = asked_for(args, sensor)
            named = {"both sensors": SHARED} | {name: v.defines(moving) for name, v in variants.items()}
            with tempfile.TemporaryDirectory() as folder:
                usages = compile_all(named, [architecture], Path(folder), args.jobs)
                libraries = {name: Library(library_path(Path(folder), name)) for name in named}
            table = {"both sensors": shared_row(sensor, usages["both sensors"][architecture], architecture)}
            table |= {name: described(v, usages[name][architecture], architecture) for name, v in variants.items()}
            rows += timed(workload, sensor, libraries, table, args)
    return rows


# ---- the command


def parser() -> argparse.ArgumentParser:
    p = Parser(__doc__)
    add_arguments(p)
    p.set_defaults(workloads=None)
    p.add_argument("--threads", nargs="+", type=positive, default=[32, 64, 128, 256], help="of a block (%(default)s)")
    p.add_argument(
        "--resident", nargs="+", type=positive, default=[256, 512, 640, 768, 1024, 1152, 1280],
        help="threads that are to fit on a multiprocessor, which gives the blocks (%(default)s)",
    )  # fmt: skip
    p.add_argument("--rays", nargs="+", type=positive, default=[1, 2, 4], help="a thread (%(default)s)")
    p.add_argument("--rows", nargs="+", type=positive, default=[64, 128, 256], help="staged at a time (%(default)s)")
    p.add_argument(
        "--ahead", nargs="+", type=positive, default=[1, 4], help="Gaussians looked at together (%(default)s)"
    )
    p.add_argument(
        "--compile-only", action="store_true", help="registers, spills and shared memory alone: no GPU needed"
    )
    p.add_argument(
        "--architectures", nargs="+", choices=ARCHITECTURES, default=["90"], help="with --compile-only (%(default)s)"
    )
    p.add_argument("--jobs", type=positive, default=os.cpu_count() or 1, help="compilers at a time (%(default)s)")
    p.add_argument("--rounds", type=positive, default=20, help="samples of each variant (%(default)s)")
    p.add_argument("--warmup", type=int, default=3, help="rounds before them (%(default)s)")
    p.add_argument("--out", type=Path, help="folder, such as benchmarks/results/NAME")
    return p


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    args.arguments = arguments
    args.workloads = args.workloads or (["captured"] if args.checkpoint or args.capture else ["random"])
    with mended("train"):
        args.size = size_of(args)
        report = sweep(args)
        if args.out:
            write(args.out, report)
    print(markdown(report["rows"]), end="")
    print(*[pick_of(row) for row in report["choices"]], sep="\n")
    if any((row["status"] or "").startswith("disagrees") for row in report["rows"]):
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
