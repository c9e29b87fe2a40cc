# SPDX-License-Identifier: Apache-2.0
"""Time of the reference renderer by stage, camera and lidar, forward and backward, on the scene of a checkpoint or the initial one.

python benchmarks/render/bench_reference.py --out FILE.json
python benchmarks/render/bench_reference.py data=kitti_raw data.root=FOLDER data.downscale=4 model.points=95000 --out FILE.json
python benchmarks/render/bench_reference.py data=pack data.root=FILE --checkpoint runs/RUN/checkpoint.pt --out FILE.json
"""

import json
import os
import platform
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as nurec_lite.train does

import torch

from benchmarks.opt.bench_workers import RESULTS, processor, quantiles
from nurec_lite.base.environment import choose_device, device_name
from nurec_lite.base.program import Parser
from nurec_lite.base.version import commit
from nurec_lite.cli.command import composed, mended
from nurec_lite.readers import open_capture
from nurec_lite.scene.init import make_scene
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.views import CameraView, LidarView
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.checkpoint import load_checkpoint, scene_from_dict
from nurec_lite.training.optim import make_optimizer
from nurec_lite.training.shots import ShotPlan

PARTS = ("collect", "project", "tile", "render", "backward")


def timed(
    scene: Scene, view: CameraView | LidarView, wait: Callable[[], None]
) -> tuple[dict[str, float], dict[str, int]]:
    """Seconds of each stage of one rendering with gradients, and the numbers that explain them."""
    stages, marks = reference_stages(), [time.perf_counter()]

    def mark() -> None:
        wait()
        marks.append(time.perf_counter())

    (gaussians,) = stages.render.gather(stages, scene, (view,)).gaussians
    mark()
    projection = stages.render.project(gaussians, view)
    mark()
    pairs = stages.render.tile(projection, view)
    mark()
    camera = isinstance(view, CameraView)
    rendered = (
        stages.render.render_camera(gaussians, view, pairs, scene.sky).colour
        if camera
        else stages.render.render_lidar(gaussians, view, pairs).distance
    )
    mark()
    rendered.mean().backward()
    mark()
    seconds = {part: end - start for part, start, end in zip(PARTS, marks[:-1], marks[1:], strict=True)}
    rays = int((pairs.rays >= 0).sum())
    return seconds | {"all": marks[-1] - marks[0]}, {
        "rays": rays,
        "listed": len(projection.index),
        "tile_pairs": len(pairs.gaussians),
    }


def measure(scene: Scene, views: list[CameraView | LidarView], rounds: int, wait: Callable[[], None]) -> dict[str, Any]:
    timed(scene, views[0], wait)
    samples = [timed(scene, views[n % len(views)], wait) for n in range(rounds)]
    seconds = {part: quantiles([s[part] for s, _ in samples]) for part in (*PARTS, "all")}
    return {"seconds": seconds, "mean_of": {key: sum(c[key] for _, c in samples) / rounds for key in samples[0][1]}}


def views_of(
    plan: ShotPlan, device: torch.device, n: int
) -> tuple[list[CameraView | LidarView], list[CameraView | LidarView]]:
    """Cameras and lidar sectors of the first n training steps."""
    steps = [plan.load(step).copied(lambda tensor: tensor.to(device)) for step in range(n)]
    return [s.view for shots in steps for s in shots.images], [s.view for shots in steps for s in shots.sweeps]


def table(report: dict[str, Any]) -> str:
    lines = [f"{'ms':8}" + "".join(f"{part:>10}" for part in (*PARTS, "all"))]
    for sensor in ("camera", "lidar"):
        q = report[sensor]["seconds"]
        lines.append(f"{sensor:8}" + "".join(f"{1e3 * q[part]['median_s']:10.1f}" for part in (*PARTS, "all")))
        lines.append("        " + ", ".join(f"{value:.0f} {key}" for key, value in report[sensor]["mean_of"].items()))
    return "\n".join([f"{report['gaussians']} Gaussians, image {report['image']}, {report['device']}", *lines])


def run(args: Namespace) -> None:
    config, load = composed("train", args.overrides), os.getloadavg()
    device, capture = choose_device(config.device), open_capture(config.data)
    wait = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    if args.checkpoint:
        scene = scene_from_dict(load_checkpoint(args.checkpoint, device)["scene"])
    else:
        scene = make_scene(capture, config.model, config.seed, device)
    make_optimizer(scene, config.lr)  # marks parameters with gradients
    plan = ShotPlan(capture, config.seed, config.train.lidar_rays)
    cameras, lidars = views_of(plan, device, min(args.rounds, 10))
    camera = capture.cameras[0]
    report = {
        "command": shlex.join(["python", "benchmarks/render/bench_reference.py", *sys.argv[1:]]),
        "commit": commit(), "torch": torch.__version__, "python": platform.python_version(), "cpu": processor(),
        "threads": torch.get_num_threads(), "device": device_name(device), "load_average_before": load,
        "capture": capture.name, "image": [camera.width, camera.height], "gaussians": len(scene.gaussians),
        "rounds": args.rounds,
        "camera": measure(scene, cameras, args.rounds, wait), "lidar": measure(scene, lidars, args.rounds, wait),
    }  # fmt: skip
    (RESULTS / args.out).write_text(json.dumps(report, indent=1) + "\n")
    print(table(report))


def main() -> None:
    p = Parser(__doc__)
    p.add_argument("--checkpoint", type=Path, help="of a run on the same capture (default: the initial scene)")
    p.add_argument("--rounds", type=int, default=20, help="renderings of either sensor (%(default)s)")
    p.add_argument("--out", type=Path, required=True, help="name of the JSON file in benchmarks/results, or a path")
    p.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of nurec_lite.train")
    args = p.parse_intermixed_args()
    with mended("train"):
        run(args)


if __name__ == "__main__":
    main()
