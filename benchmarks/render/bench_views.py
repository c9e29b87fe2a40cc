# SPDX-License-Identifier: Apache-2.0
"""Cost of rendering a scene without training: frames and lidar rays a second, for one view or several in one launch.

    python benchmarks/render/bench_views.py --workloads captured --checkpoint runs/NAME/checkpoint.pt --out benchmarks/results/NAME.json
    python benchmarks/render/bench_views.py --workloads random --gaussians 1000000 --views 1 4 16
    python benchmarks/render/bench_views.py --workloads captured --capture data=pack data.root=drive.pack --images own 1920x1080

benchmarks/render/workload.py has the scenes and their views; further views stand --step metres apart, 0.01 s apart. Each is
rendered from the scene to the sensor's output, everything between included: activations, actors at the view's time, lists, blending,
the sky.

together      nurec_lite/native/inference.py, as evaluate and render call it: as many views in one launch as --views says
one by one    the forward pass of a training with the options of --opt, without gradients
gsplat        its rasterization with harmonics, all cameras in one call, in the middle of their exposures and with actors where they are at
              the first (--peer; nurec_lite/peer/rasterize.py lists the other differences). Gaussians are at hand, and there is no sky

Views rendered together must agree with views rendered one by one to --tolerance before both are timed; else the exit code is 1. On a
CPU the two are the same. Rounds take all in turn, in both orders. Times are medians of CUDA events (on a CPU of the host's clock) around
whole calls. In them the host waits for the device as it does for a user.
"""

import nurec_lite.base.threads  # noqa: F401  before torch

# isort: split
import argparse
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isqrt
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from benchmarks.common.quiet import Others
from benchmarks.render.bench_render import described, find_peer
from benchmarks.render.contenders import TOLERANCE, Fill, relative, stages_with
from benchmarks.render.workload import Workload, add_arguments, make_workloads, size_of
from benchmarks.step.bench_step import mark, milliseconds, positive, spread
from nurec_lite.base.environment import choose_device, environment
from nurec_lite.base.errors import ConfigError, UserError
from nurec_lite.base.files import write_text
from nurec_lite.base.program import Parser
from nurec_lite.cli.command import mended
from nurec_lite.native.inference import BatchedRenderer
from nurec_lite.peer.rasterize import intrinsics, mid_exposure
from nurec_lite.scene.gaussians import WorldGaussians
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.project import NEAR
from nurec_lite.splat.render import CameraImage, LidarReturns
from nurec_lite.splat.view_row import view_row
from nurec_lite.splat.views import CameraView, LidarView
from nurec_lite.training.batches import render_views
from nurec_lite.training.stages import Stages

SCRIPT = "benchmarks/render/bench_views.py"
OPTIONS = {  # that render: those of conf/opt/all.yaml
    "cuda": "fused_interp,collect_once,warp_cull,tile_cull,balanced_tiles,fused_sky",
    "cpu": "fused_interp,collect_once",
}
APART_S = 0.01  # seconds from a view to the next
OWN = "own"  # size of an image: the camera's
View = CameraView | LidarView
Call = Callable[[], Any]


def bench(args: argparse.Namespace) -> dict[str, Any]:
    """All that goes into the file, conditions first."""
    device, load, others = choose_device(args.device), os.getloadavg(), Others()
    peer, why = find_peer(args.peer, device)
    stages = stages_with(args.opt, device)
    try:
        views = [
            bench_view(workload.scene, view, n, stages, peer, args) | {"workload": workload.name, **workload.described}
            for workload in make_workloads(args, device)
            for view in views_of(workload, args.sensors, args.images)
            for n in args.views
        ]
    finally:
        stages.close()
    return {
        "command": shlex.join(["python", SCRIPT, *args.arguments]),
        "environment": environment(device) | ({"gsplat": str(peer.__version__)} if peer else {}),
        "peer": why, "options": args.opt,
        "load_average_before": load, "cores_busy_with_others": others.cores(),
        "rounds": args.rounds, "warmup": args.warmup, "tolerance": args.tolerance, "step": args.step, "views": views,
    }  # fmt: skip


# ---- views


def views_of(workload: Workload, sensors: Sequence[str], images: Sequence[str]) -> list[View]:
    """The camera's in every size, and the sweep."""
    found: list[View] = []
    for sensor in sensors:
        view = workload.views[sensor]
        found += [resized(view, size) for size in images] if isinstance(view, CameraView) else [view]
    return found


def resized(
    view: CameraView,
    size: str,  # own, or WIDTHxHEIGHT: of as wide an angle
) -> CameraView:
    if size == OWN:
        return view
    match = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", size)
    if match is None:
        raise UserError(f"--images holds '{size}', but takes own or WIDTHxHEIGHT, such as 1920x1080")
    c, width, height = view.camera, int(match[1]), int(match[2])
    factor = width / c.width
    camera = replace(
        c, width=width, height=height, fx=c.fx * factor, fy=c.fy * factor, cx=c.cx * factor, cy=0.5 * height
    )
    return _with_row(replace(view, camera=camera))


def beside(
    view: View,
    n: int,
    step: float,  # metres
) -> list[View]:
    """Returns n views of one sensor; each lies further along the world's y than the one before it, and is later."""
    found = []
    for k in range(n):
        ends = {name: getattr(view, name).clone() for name in ("T_world_sensor_start", "T_world_sensor_end")}
        for T in ends.values():
            T[1, 3] += k * step
        times = {name: getattr(view, name) + k * APART_S for name in ("time_start", "time_end")}
        found.append(_with_row(replace(view, **ends, **times)))
    return found


def _with_row(view: View) -> Any:
    device = view.T_world_sensor_start.device
    middle = torch.tensor(view.time_mid, dtype=torch.float64, device=device)
    return replace(view, row=view_row(view).to(device), middle=middle)


# ---- one number of views


def bench_view(
    scene: Scene, view: View, n: int, stages: Stages, peer: ModuleType | None, args: argparse.Namespace
) -> dict[str, Any]:
    views = beside(view, n, args.step)
    together = (
        BatchedRenderer() if stages.plan is not None and stages.plan.max_views > 1 else stages.render.render_views
    )
    calls: dict[str, Call] = {
        "together": lambda: together(stages, scene, views),
        "one by one": lambda: render_views(stages, scene, views),
    }
    with torch.no_grad():
        off = difference(*(call() for call in calls.values()))
        rows: dict[str, dict[str, Any]] = {name: {"status": None} for name in calls}
        if not off <= args.tolerance:
            rows["together"] = {"status": f"disagrees: off by {off:.1e}"}
            del calls["together"]
        if peer is not None and isinstance(view, CameraView):
            try:
                calls["gsplat"] = rasterized(peer, stages, scene, views)  # type: ignore[arg-type]
                rows["gsplat"] = {"status": None}
            except ConfigError as error:  # a lens that it does not know
                rows["gsplat"] = {"status": str(error)}
        taken = measure(calls, args.warmup, args.rounds, view.T_world_sensor_start.device)
    rays = view.camera.width * view.camera.height if isinstance(view, CameraView) else len(view.directions)
    for name, ms in taken.items():
        each = n * 1e3 / spread(ms)["median"]
        rows[name] |= {"ms": spread(ms), "single_ms": ms, "views_per_s": each, "rays_per_s": each * rays}
    return {
        "sensor": "camera" if isinstance(view, CameraView) else "lidar", "gaussians": len(scene.gaussians),
        "view": described(view), "rays": rays, "views": n, "difference": off, "rows": rows,
    }  # fmt: skip


def difference(found: Sequence[CameraImage | LidarReturns], expected: Sequence[CameraImage | LidarReturns]) -> float:
    """The largest of all views' outputs: norm of the difference over the norm."""
    return max(
        relative(getattr(one, name), getattr(two, name))
        for one, two in zip(found, expected, strict=True)
        for name in (("colour", "opacity") if isinstance(one, CameraImage) else ("distance", "intensity", "drop"))
    )


def rasterized(gsplat: ModuleType, stages: Stages, scene: Scene, views: Sequence[CameraView]) -> Call:
    """Rasterizes the Gaussians at the time of the first view; they are at hand, so only gsplat's own work is timed."""
    (gathered,) = stages.render.gather(stages, scene, views[:1]).gaussians
    g: WorldGaussians = gathered.whole()
    centre, camera = views[0].centre(), views[0].camera
    K = intrinsics(camera, g.means.device).to(g.means)
    viewmats = torch.stack([_about(mid_exposure(view), view.centre() - centre) for view in views])
    means, degree = (g.means - centre).contiguous(), isqrt(g.sh.shape[1]) - 1
    sh = g.sh.contiguous()
    return lambda: gsplat.rasterization(
        means, g.quats, g.scales, g.opacities, sh, viewmats, K.expand(len(views), 3, 3).contiguous(), camera.width,
        camera.height, near_plane=NEAR, packed=False, sh_degree=degree, render_mode="RGB",
    )  # fmt: skip


def _about(
    T_cam_world: Tensor,  # [4, 4] from the world's axes about the view's own centre
    shift: Tensor,  # [3] metres, of that from another one
) -> Tensor:  # [4, 4] about the other
    moved = T_cam_world.clone()
    moved[:3, 3] -= T_cam_world[:3, :3] @ shift
    return moved


def measure(
    calls: dict[str, Call], warmup: int, rounds: int, device: torch.device
) -> dict[str, list[float]]:  # milliseconds
    taken: dict[str, list[float]] = {name: [] for name in calls}
    fill = Fill(device)
    for n in range(warmup + rounds):
        for name in calls if n % 2 == 0 else reversed(calls):
            fill()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            first = mark(device)
            found = calls[name]()
            last = mark(device)
            taken[name].append(milliseconds(first, last))
            del found
    return {name: samples[warmup:] for name, samples in taken.items()}


# ---- the report


def text(report: dict[str, Any]) -> str:
    lines = [report["environment"]["device"]]
    lines += [f"gsplat left out: {report['peer']}"] if report["peer"] else []
    for view in report["views"]:
        what = ", ".join(f"{k} {v}" for k, v in view["view"].items())
        head = f"{view['workload']}, {view['sensor']} ({view['scene']}): {view['gaussians']} Gaussians, {what}"
        lines += ["", f"{head}; {view['views']} at once, {view['rays']} rays each"]
        lines += [_line(name, row) for name, row in view["rows"].items()]
    return "\n".join(lines)


def _line(name: str, row: dict[str, Any]) -> str:
    if row["status"]:
        return f"{name:12} {row['status']}"
    ms, views, rays = row["ms"]["median"], row["views_per_s"], row["rays_per_s"]
    return f"{name:12}{ms:12.3f} ms{views:12.1f} views/s{rays / 1e6:12.2f} M rays/s"


# ---- the command


def parser() -> argparse.ArgumentParser:
    p = Parser(__doc__)
    add_arguments(p)
    p.add_argument("--views", nargs="+", type=positive, default=[1, 4, 16], help="at once (%(default)s)")
    p.add_argument(
        "--images", nargs="+", default=[OWN, "1920x1080"], metavar="WxH", help="sizes of the camera's (%(default)s)"
    )
    p.add_argument("--step", type=float, default=0.1, help="metres from a view to the next (%(default)s)")
    p.add_argument("--opt", metavar="A,B", help="options of views rendered one by one (those that render)")
    p.add_argument("--peer", action=argparse.BooleanOptionalAction, help="also gsplat (if it is installed and can run)")
    p.add_argument("--rounds", type=positive, help="samples of each (20; on a CPU 3)")
    p.add_argument("--warmup", type=int, help="rounds before them (5; on a CPU 1)")
    p.add_argument("--tolerance", type=float, default=TOLERANCE, help="of differences (%(default)s)")
    p.add_argument("--out", type=Path, help="JSON file, such as benchmarks/results/NAME.json")
    return p


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    args.arguments = arguments
    with mended("train"):
        kind = choose_device(args.device).type
        args.size, args.opt = size_of(args), OPTIONS[kind] if args.opt is None else args.opt
        args.rounds = args.rounds or (20 if kind == "cuda" else 3)
        args.warmup = (5 if kind == "cuda" else 1) if args.warmup is None else args.warmup
        report = bench(args)
        if args.out:
            write_text(args.out, json.dumps(report, indent=1) + "\n")
    print(text(report))
    if any((row["status"] or "").startswith("disagrees") for view in report["views"] for row in view["rows"].values()):
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
