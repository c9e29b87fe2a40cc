# SPDX-License-Identifier: Apache-2.0
"""Cost of rendering, camera and lidar: project, tile, forward and backward, and contributing (ray, Gaussian) pairs a
second.

    python benchmarks/render/bench_render.py --checkpoint runs/NAME/checkpoint.pt --out benchmarks/results/NAME.json
    python benchmarks/render/bench_render.py --workloads captured --capture data=kitti_raw data.root=FOLDER --peer
    python benchmarks/render/bench_render.py --opt '' split_backward split_backward,launch_bounds

benchmarks/render/workload.py has the scenes and views. Each set of options that --opt names renders every view. Outputs and gradients of
all sets must agree with those of the first before they are timed: to --tolerance, or to twice the first set's own change if every mean
moves to the next float32 (up to 1e-2 in a trained scene with Gaussians of millimetres). gsplat's kernels render a camera's Gaussians, too,
in the same process (benchmarks/render/peer.py). Rounds take all in turn, in both orders. Times are medians of CUDA events (on a CPU of the
host's clock); forward and backward are those of blending alone, with the gradients of the Gaussians' parameters. Pairs are counted by the
operator count_pairs (benchmarks/render/pair_counts.py): rates are contributing pairs over the median time. In the table `lanes` is the lane
efficiency, `longest` the most entries that one warp takes over the mean; `whole` is all that a step's forward pass does, project, tile and
forward. Tables of a sweep's rays are made before, as in training, where sweeps stay on the device. Tiles of a CPU have 16 rays, two
to a warp.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from benchmarks.common.quiet import Others
from benchmarks.render.contenders import (
    DRAWS,
    TOLERANCE,
    Contender,
    Fill,
    Own,
    Recorder,
    difference,
    limit,
    stages_with,
)
from benchmarks.render.peer import VARIANTS, Gsplat
from benchmarks.render.workload import Workload, add_arguments, make_workloads, size_of
from benchmarks.step.bench_step import positive, spread
from nurec_lite.base.environment import choose_device, environment
from nurec_lite.base.errors import ConfigError
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser
from nurec_lite.base.ranges import switch
from nurec_lite.cli.command import mended
from nurec_lite.peer.rasterize import load_peer
from nurec_lite.splat.views import CameraView, LidarView
from nurec_lite.training.stages import Stages

SCRIPT = "benchmarks/render/bench_render.py"
PHASES = ("project", "tile", "forward", "backward")
WHOLE = PHASES[:3]  # the forward pass of a step


def bench(args: argparse.Namespace) -> dict[str, Any]:
    """All that goes into the file, conditions first."""
    device, load, others = choose_device(args.device), os.getloadavg(), Others()
    peer, why = find_peer(args.peer, device)
    sets = {name: stages_with(name, device) for name in args.opt}
    try:
        views = [
            bench_view(workload, sensor, sets, peer, args, device)
            for workload in make_workloads(args, device)
            for sensor in args.sensors
        ]
    finally:
        for stages in sets.values():
            stages.close()
    return {
        "command": shlex.join(["python", args.script, *args.arguments]),
        "environment": environment(device) | ({"gsplat": str(peer.__version__)} if peer else {}),
        "peer": why,
        "load_average_before": load, "cores_busy_with_others": others.cores(),
        "rounds": args.rounds, "warmup": args.warmup, "tolerance": args.tolerance, "views": views,
    }  # fmt: skip


def find_peer(wanted: bool | None, device: torch.device) -> tuple[ModuleType | None, str | None]:
    """gsplat, or else why it is not there; None: only if it can run here."""
    if wanted is False:
        return None, "not asked for"
    try:
        load_peer(device)
    except ConfigError as error:
        if wanted:
            raise
        return None, str(error)
    import gsplat

    return gsplat, None


# ---- one view


def bench_view(
    workload: Workload,
    sensor: str,
    sets: dict[str, Stages],
    peer: ModuleType | None,
    args: argparse.Namespace,
    device: torch.device,
) -> dict[str, Any]:
    own = {f"own {name}".strip(): Own(stages, workload, sensor) for name, stages in sets.items()}
    first = next(iter(own.values()))
    rounding = max(difference(Own(first.stages, workload, sensor, seed), first) for seed in range(DRAWS))
    tolerance = limit(args.tolerance, rounding)
    rows = {name: checked(contender, first, tolerance) for name, contender in own.items()}
    contenders: dict[str, Contender] = {name: own[name] for name, row in rows.items() if row["status"] is None}
    if peer is not None and isinstance(first.view, CameraView):
        peers = {f"gsplat {v}": Gsplat(peer, v, first.gaussians.whole(), first.view) for v in VARIANTS}
        mine = first.image()
        rows |= {
            name: {"status": None, "image_difference": mean_difference(p.image(), mine)} for name, p in peers.items()
        }
        contenders |= peers
    taken = measure(contenders, args.warmup, args.rounds, device)
    for name, samples in taken.items():
        rows[name] |= figures(samples, contenders[name].counts().to_dict())
    return {
        "workload": workload.name, "sensor": sensor, **workload.described, "gaussians": len(first.gaussians),
        "view": described(first.view), "rounding": rounding, "rows": rows,
    }  # fmt: skip


def described(view: CameraView | LidarView) -> dict[str, Any]:
    if isinstance(view, CameraView):
        return {"image": [view.camera.width, view.camera.height], "shutter": view.camera.shutter}
    return {"beams": len(view.lidar.elevations), "azimuth_steps": view.lidar.azimuth_steps}


def checked(contender: Own, first: Own, tolerance: float) -> dict[str, Any]:
    """Why it is not timed (None if it is), and how far it is from the first."""
    off = 0.0 if contender is first else difference(contender, first)
    return {"status": None if off <= tolerance else f"disagrees: off by {off:.1e}", "difference": off}


def mean_difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().mean())


def measure(
    contenders: dict[str, Contender], warmup: int, rounds: int, device: torch.device
) -> dict[str, list[dict[str, float]]]:  # milliseconds of every phase, by round
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    fill, recorder = Fill(device), Recorder(device)
    for n in range(warmup + rounds):
        for name in contenders if n % 2 == 0 else reversed(contenders):
            with switch(timing=recorder):
                contenders[name].sample(fill)
            taken[name].append(recorder.read())
    return {name: samples[warmup:] for name, samples in taken.items()}


def figures(samples: list[dict[str, float]], counts: dict[str, Any]) -> dict[str, Any]:
    ms = {phase: spread([sample[phase] for sample in samples]) for phase in PHASES}
    rates = {phase: 1e3 * counts["contributing"] / ms[phase]["median"] for phase in ("forward", "backward")}
    ms["whole"] = spread([sum(sample[phase] for phase in WHOLE) for sample in samples])
    single = {phase: [round(sample[phase], 5) for sample in samples] for phase in PHASES}
    return {"counts": counts, "ms": ms, "contributing_pairs_per_s": rates, "single_ms": single}


# ---- the report


def text(report: dict[str, Any]) -> str:
    lines = [report["environment"]["device"]]
    lines += [f"gsplat left out: {report['peer']}"] if report["peer"] else []
    for view in report["views"]:
        lines += ["", *_view_lines(view)]
    return "\n".join(lines)


def _view_lines(view: dict[str, Any]) -> list[str]:
    what = ", ".join(f"{k} {v}" for k, v in view["view"].items())
    width = max(len(name) for name in view["rows"])
    head = "".join(f"{phase + ' ms':>13}" for phase in (*PHASES, "whole"))
    counts = f"{'entries M':>10}{'pairs M':>9}{'executed M':>11}{'lanes':>7}{'G/s fwd':>9}{'bwd':>8}{'longest':>9}"
    return [
        f"{view['workload']}, {view['sensor']} ({view['scene']}): {view['gaussians']} Gaussians, {what}; rounding {view['rounding']:.1e}",
        f"{'':{width}}{head}{counts}",
        *(_line(name, row, width) for name, row in view["rows"].items()),
    ]


def _line(name: str, row: dict[str, Any], width: int) -> str:
    if row["status"]:
        return f"{name:{width}} {row['status']}"
    c, rates = row["counts"], row["contributing_pairs_per_s"]
    ms = "".join(f"{row['ms'][phase]['median']:13.3f}" for phase in (*PHASES, "whole"))
    pairs = f"{c['entries'] / 1e6:10.3f}{c['contributing'] / 1e6:9.2f}{c['executed'] / 1e6:11.2f}"
    lanes = "-" if c["lane_efficiency"] is None else f"{100 * c['lane_efficiency']:.1f}%"
    longest = "-" if c["longest_to_mean_warp"] is None else f"{c['longest_to_mean_warp']:.1f}x"
    return f"{name:{width}}{ms}{pairs}{lanes:>7}{rates['forward'] / 1e9:9.3f}{rates['backward'] / 1e9:8.3f}{longest:>9}"


def compared(report: dict[str, Any], phase: str, pairs: Sequence[tuple[str, str]]) -> str:
    """A line for every view and pair of sets of options: the second's time relative to the first's."""
    lines = []
    for view in report["views"]:
        for before, after in pairs:
            rows = [view["rows"][f"own {name}".strip()] for name in (before, after)]
            known = [row["ms"][phase]["median"] for row in rows if row["status"] is None]
            found = f"{known[0]:.3f} -> {known[1]:.3f} ms" if len(known) == 2 else "not timed"
            lines.append(f"{view['workload']}, {view['sensor']}: {phase} {found} by {after or 'none'}")
    return "\n".join(lines)


# ---- the command


def parser(about: str | None, sets: Sequence[str]) -> argparse.ArgumentParser:
    p = Parser(about)
    add_arguments(p)
    p.add_argument(
        "--opt", nargs="+", default=list(sets), metavar="A,B", help="sets of options, '' is none (%(default)s)"
    )
    p.add_argument("--peer", action=argparse.BooleanOptionalAction, help="also gsplat (if it is installed and can run)")
    p.add_argument("--rounds", type=positive, help="samples of each (20; on a CPU 3)")
    p.add_argument("--warmup", type=int, help="rounds before them (5; on a CPU 1)")
    p.add_argument("--tolerance", type=float, default=TOLERANCE, help="of differences between sets (%(default)s)")
    p.add_argument("--out", type=Path, help="JSON file, such as benchmarks/results/NAME.json")
    return p


def main(
    arguments: list[str],
    script: str = SCRIPT,  # that the report names
    about: str | None = __doc__,
    sets: Sequence[str] = ("",),  # of options, unless --opt names others
    pairs: Sequence[tuple[str, str]] = (),  # of these: their backward passes are compared at the end
) -> None:
    args = parser(about, sets).parse_args(arguments)
    args.arguments, args.script = arguments, script
    with mended("train"):
        gpu = choose_device(args.device).type == "cuda"
        args.size = size_of(args)
        args.rounds = args.rounds or (20 if gpu else 3)
        args.warmup = (5 if gpu else 1) if args.warmup is None else args.warmup
        report = bench(args)
        if args.out:
            write_text(args.out, json.dumps(report, indent=1) + "\n")
    print(text(report))
    found = [pair for pair in pairs if set(pair) <= set(args.opt)]
    if found:
        print("", compared(report, "backward", found), sep="\n")
    if any((row["status"] or "").startswith("disagrees") for view in report["views"] for row in view["rows"].values()):
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
