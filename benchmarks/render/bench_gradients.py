# SPDX-License-Identifier: Apache-2.0
"""Distance of outputs and gradients of the kernels from float64, camera and lidar.

    python benchmarks/render/bench_gradients.py --checkpoint runs/NAME/checkpoint.pt --out benchmarks/results/NAME.json
    python benchmarks/render/bench_gradients.py --workloads captured --capture data=kitti_raw data.root=FOLDER data.downscale=4
    python benchmarks/render/bench_gradients.py --opt '' split_backward split_backward,launch_bounds
    python benchmarks/render/bench_gradients.py --opt warp_cull,tile_cull,balanced_tiles    # in a call of its own

benchmarks/render/workload.py has the scenes and views. The first set of options that --opt names collects the Gaussians and makes the
lists; every set renders these, and so does the torch reference in float64 (benchmarks/render/truth.py); its gradients are the truth:
those of a random loss on an image's colour, on a sweep's range, intensity and ray drop. A distance is the norm of the difference over
the norm of the truth, of an output or (`d means`) of a gradient; of a quaternion's gradient, without the part along the quaternion.

`perturbed` is the first set when every mean goes to the next float32, from float64; `rounding` is how far that is from the first set itself
(each the largest of three draws). A set that is further from float64 than --tolerance and than twice `rounding` ends the benchmark with
exit code 1; `perturbed` does not count there, since an error of the first set is in it, too. `hidden` Gaussians have a colour so
close to 0, where it is clamped, that float32 does not decide; they are invisible for all. `worst share` is the share of the worst
Gaussian in the first set's squared error: near 1 that one makes the distance, near 0 all of them do. --out has its index
under `worst`.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.render.bench_render import described
from benchmarks.render.contenders import DRAWS, ROOM, TOLERANCE, limit, relative, stages_with
from benchmarks.render.truth import PAIRS, Problem, Rendered, groups, problem_of, rendered, truth, unclamped
from benchmarks.render.workload import Workload, add_arguments, make_workloads, size_of
from benchmarks.step.bench_step import positive
from nurec_lite.base.environment import choose_device, environment
from nurec_lite.base.errors import UserError
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser
from nurec_lite.cli.command import mended
from nurec_lite.scene.gaussians import SplitGaussians
from nurec_lite.splat.views import CameraView
from nurec_lite.training.stages import Stages

Distances = dict[str, float]  # by the name of an output, or `d` and the name of a gradient


def bench(args: argparse.Namespace) -> dict[str, Any]:
    """All that goes into the file, conditions first."""
    device = choose_device(args.device)
    sets = {name: stages_with(name, device) for name in args.opt}
    try:
        check_lists(sets)
        views = [
            bench_view(workload, sensor, sets, args)
            for workload in make_workloads(args, device)
            for sensor in args.sensors
        ]
    finally:
        for stages in sets.values():
            stages.close()
    return {
        "command": shlex.join(["python", "benchmarks/render/bench_gradients.py", *args.arguments]),
        "environment": environment(device), "tolerance": args.tolerance, "room": ROOM, "draws": DRAWS,
        "pairs_at_once": args.pairs, "views": views,
    }  # fmt: skip


def check_lists(sets: dict[str, Stages]) -> None:
    """UserError where some sets list by tiles and others by warp tiles: all render the lists of the first."""
    warp_tiled = [name for name, stages in sets.items() if stages.plan is not None and stages.plan.warp_tiles]
    if 0 < len(warp_tiled) < len(sets):
        raise UserError(
            f"--opt: '{warp_tiled[0]}' renders lists of warp tiles (warp_cull), others those of tiles; give them one after another"
        )


# ---- one view


def bench_view(workload: Workload, sensor: str, sets: dict[str, Stages], args: argparse.Namespace) -> dict[str, Any]:
    first = next(iter(sets.values()))
    problem = problem_of(first, workload, sensor)
    found = {f"own {name}".strip(): rendered(stages, problem) for name, stages in sets.items()}
    draws = [rendered(first, problem.perturbed(seed)) for seed in range(DRAWS)]
    exact = truth(problem, args.pairs)
    return {
        "workload": workload.name, "sensor": sensor, **workload.described, "gaussians": len(problem.gaussians),
        "view": described(problem.view), "entries": int(problem.pairs.offsets[-1]), "hidden": problem.hidden,
        "groups": sum(1 for _ in groups(problem.pairs, args.pairs)),
        **compared(found, draws, exact, args.tolerance), "worst": worst(problem, next(iter(found.values())), exact),
    }  # fmt: skip


def compared(
    found: dict[str, Rendered],  # by sets of options
    draws: list[Rendered],  # of the first, on perturbed means
    exact: Rendered,
    tolerance: float,
) -> dict[str, Any]:
    first = next(iter(found.values()))
    rounding = largest([distances(draw, first) for draw in draws])
    limits = {name: limit(tolerance, value) for name, value in rounding.items()}
    rows = {name: distances(one, exact) for name, one in found.items()}
    return {
        "rows": {name: {"status": status(row, limits), "distance": row} for name, row in rows.items()},
        "perturbed": largest([distances(draw, exact) for draw in draws]), "rounding": rounding, "limit": limits,
    }  # fmt: skip


def distances(found: Rendered, exact: Rendered) -> Distances:
    expected = exact.tensors()
    return {name: relative(tensor, expected[name]) for name, tensor in found.tensors().items()}


def largest(draws: list[Distances]) -> Distances:
    return {name: max(draw[name] for draw in draws) for name in draws[0]}


def status(row: Distances, limits: Distances) -> str | None:
    """The outputs and gradients that are too far, or None."""
    far = [f"{name} {off:.1e} (limit {limits[name]:.1e})" for name, off in row.items() if not off <= limits[name]]
    return "too far from float64: " + ", ".join(far) if far else None


def squares_of(found: Tensor, exact: Tensor) -> Tensor:  # [N] of [N, ...] each: a Gaussian's squared error
    return (found - exact).flatten(1).square().sum(1) if found.ndim > 1 else (found - exact).square()


@torch.no_grad()
def worst(problem: Problem, found: Rendered, exact: Rendered) -> dict[str, Any]:
    """For each gradient the Gaussian with the largest error, and its share of the squared error: the place to look for
    the reason."""
    shown = {}
    for name, gradient in found.gradients.items():
        squares = squares_of(gradient, exact.gradients[name])
        if len(squares) and squares.max() > 0:
            row = int(squares.argmax())  # those that stand still come first, and have tensors of their own
            first = 0 if name.startswith("still") else len(problem.gaussians) - len(squares)
            error = {"share": float(squares[row] / squares.sum()), "error": float(squares[row]) ** 0.5}
            norm = float(exact.gradients[name][row].norm())
            shown[f"d {name}"] = error | {"norm": norm} | _of_one(problem, first + row)
    return shown


def _of_one(problem: Problem, index: int) -> dict[str, Any]:
    g, view = problem.gaussians, problem.view
    means = torch.cat([g.still_means, g.means]) if isinstance(g, SplitGaussians) else g.means
    found = {
        "gaussian": index, "opacity": float(g.opacities[index]), "scales": g.scales[index].tolist(),
        "metres": float((means[index] - view.eye()).norm()),
    }  # fmt: skip
    return found | ({"colour": unclamped(g, view)[0][index].tolist()} if isinstance(view, CameraView) else {})


# ---- the report


def text(report: dict[str, Any]) -> str:
    lines = [report["environment"]["device"]]
    for view in report["views"]:
        lines += ["", *_view_lines(view)]
    return "\n".join(lines)


def _view_lines(view: dict[str, Any]) -> list[str]:
    what = ", ".join(f"{k} {v}" for k, v in view["view"].items())
    rows = {name: row["distance"] for name, row in view["rows"].items()}
    rows |= {name: view[name] for name in ("perturbed", "rounding")}
    shown = [name for name in view["rounding"] if any(row[name] for row in rows.values())]  # some play no part
    width = max(len(name) for name in (*rows, "worst share"))
    share = "".join(f"{view['worst'][name]['share']:14.2f}" if name in view["worst"] else " " * 14 for name in shown)
    return [
        f"{view['workload']}, {view['sensor']} ({view['scene']}): {view['gaussians']} Gaussians, {view['hidden']} hidden, {what}, "
        f"{view['entries']} entries",
        " " * width + "".join(f"{name:>14}" for name in shown),
        *(f"{name:{width}}" + "".join(f"{row[key]:14.1e}" for key in shown) for name, row in rows.items()),
        f"{'worst share':{width}}{share}",
        *(f"{name} is {row['status']}" for name, row in view["rows"].items() if row["status"]),
    ]


# ---- the command


def parser() -> argparse.ArgumentParser:
    p = Parser(__doc__)
    add_arguments(p)
    p.add_argument("--opt", nargs="+", default=[""], metavar="A,B", help="sets of options, '' is none (one set: none)")
    p.add_argument("--tolerance", type=float, default=TOLERANCE, help="of distances from float64 (%(default)s)")
    p.add_argument("--pairs", type=positive, default=PAIRS, help="(ray, entry) pairs of a group of tiles (%(default)s)")
    p.add_argument("--out", type=Path, help="JSON file, such as benchmarks/results/NAME.json")
    return p


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    args.arguments = arguments
    with mended("train"):
        args.size = size_of(args)
        report = bench(args)
        if args.out:
            write_text(args.out, json.dumps(report, indent=1) + "\n")
    print(text(report))
    if any(row["status"] for view in report["views"] for row in view["rows"].values()):
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
