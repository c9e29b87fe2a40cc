# SPDX-License-Identifier: Apache-2.0
"""Scenes and the views that bench_render.py, bench_gradients.py and diagnose_backward.py render: each seen by a camera and by a lidar.

captured    a capture's own image and sweep, from the middle of the held-out frames; the scene of a checkpoint, or else the initial one
simulated   the project's own street with a camera of 1920x1080 and a lidar of 128 beams; its initial scene, or one that was trained on
            it for some steps; nothing has to be downloaded
random      Gaussians all around a camera and a lidar that stand still, by seed and count

Everything is deterministic except --train-steps on a GPU, where gradients are added up in any order.
"""

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.backends import base_stages
from nurec_lite.base.environment import choose_device
from nurec_lite.base.errors import UserError
from nurec_lite.capture.simulate import simulate
from nurec_lite.capture.simulate.world import SimulationConfig
from nurec_lite.capture.types import Capture
from nurec_lite.cli.command import composed, load_run
from nurec_lite.config import Config, DensityConfig, ModelConfig, TrainConfig
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar, unit_directions
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.readers import open_capture
from nurec_lite.scene.gaussians import BACKGROUND, Gaussians
from nurec_lite.scene.init import make_scene
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.view_row import view_row
from nurec_lite.splat.views import CameraView, LidarView, camera_view, lidar_view
from nurec_lite.training.checkpoint import scene_from_dict, scene_to
from nurec_lite.training.known_capture import check_known_capture, known_of
from nurec_lite.training.loop import one_step
from nurec_lite.training.optim import make_optimizer
from nurec_lite.training.shots import ShotPlan
from nurec_lite.training.state import TrainState

NAMES = ("captured", "simulated", "random")
SENSORS = ("camera", "lidar")


@dataclass(frozen=True)
class Size:
    """Size of the simulated and of the random workload."""

    width: int  # pixels
    height: int
    beams: int
    azimuth_steps: int  # rays a beam and revolution
    points: int  # Gaussians of the simulated street's measured surfaces, about
    guessed: int  # and of those above the beams and on the far shell, each
    random: int  # Gaussians of the random scene


SIZES = {
    "full": Size(1920, 1080, 128, 2048, 700_000, 150_000, 1_000_000),
    "small": Size(96, 56, 16, 128, 2_000, 300, 2_000),
}


@dataclass(frozen=True)
class Workload:
    """One scene, and a view of each kind of sensor at one moment or at two."""

    name: str
    scene: Scene
    views: dict[str, CameraView | LidarView]  # by `SENSORS`
    described: dict[str, Any]  # where it comes from, for reports


def make_workloads(args: argparse.Namespace, device: torch.device) -> list[Workload]:
    """Those that were asked for, in their order."""
    makers: dict[str, Callable[[], Workload]] = {
        "captured": lambda: enlarged(captured(args.checkpoint, args.capture, device), args.enlarge),
        "simulated": lambda: simulated(SIZES[args.size], args.seed, args.train_steps, device),
        "random": lambda: random(SIZES[args.size], args.seed, args.gaussians, device),
    }
    return [makers[name]() for name in args.workloads]


# ---- captured


def captured(checkpoint: Path | None, arguments: list[str], device: torch.device) -> Workload:
    """The scene of a checkpoint and the capture that it was made from (arguments say where it lies now), or the initial scene of the
    capture that the arguments name."""
    if checkpoint is None:
        config = composed("train", arguments)
        capture = open_capture(config.data)
        scene = make_scene(capture, config.model, config.seed, device)
    else:
        config, content = load_run("evaluate", [f"checkpoint={checkpoint}", *arguments])
        scene = scene_to(scene_from_dict(content["scene"]), device)
        capture = open_capture(config.data, scene.origin, known_of(content))
        check_known_capture(checkpoint, content, capture, config.data)
    state = "initial" if checkpoint is None else f"trained, {content['counters']['step']:.0f} steps"
    return Workload("captured", scene, held_out_views(capture, device), {"capture": capture.name, "scene": state})


def held_out_views(capture: Capture, device: torch.device) -> dict[str, CameraView | LidarView]:
    """The first camera's image and the whole sweep in the middle of those that are held out."""
    split = capture.split
    assert split is not None
    images = [capture.images[i] for i in split.test_images]
    images = [frame for frame in images if frame.sensor == images[0].sensor]
    sweeps = [capture.sweeps[i] for i in split.test_sweeps or split.train_sweeps]
    if not sweeps:
        raise UserError(f"capture {capture.name} has no sweep; name one with a lidar")
    image, sweep = images[len(images) // 2], sweeps[len(sweeps) // 2]
    return {
        "camera": camera_view(capture, image, device),
        "lidar": lidar_view(capture, sweep, sweep.load(), device),
    }


def enlarged(workload: Workload, factor: float) -> Workload:
    """The workload with `factor` times the pixels along either side of its image, seen from the same place."""
    if not factor > 0:
        raise UserError(f"--enlarge is {factor:g}, but must be more than 0")
    view = workload.views["camera"]
    if factor == 1 or not isinstance(view, CameraView):
        return workload
    c = view.camera
    camera = replace(
        c, width=round(c.width * factor), height=round(c.height * factor),
        fx=c.fx * factor, fy=c.fy * factor, cx=c.cx * factor, cy=c.cy * factor,
    )  # fmt: skip
    enlarged = replace(view, camera=camera)
    views = workload.views | {"camera": replace(enlarged, row=view_row(enlarged).to(view.T_world_sensor_start.device))}
    return replace(workload, views=views, described=workload.described | {"enlarged": factor})


# ---- simulated


def simulated(size: Size, seed: int, train_steps: int, device: torch.device) -> Workload:
    """Half a second of the street; the last of the five frames is held out."""
    drive = SimulationConfig(
        seed=seed, frames=5, cameras=1, width=size.width, height=size.height, samples=1,
        beams=size.beams, azimuth_steps=size.azimuth_steps,
    )  # fmt: skip
    capture = _kept(simulate(drive, device.type)).with_split("interp")
    model = ModelConfig(
        points=size.points, actor_points=max(20, size.points // 50), raised_points=size.guessed, far_points=size.guessed,
        sh_degree=3,
    )  # fmt: skip
    scene = make_scene(capture, model, seed, device)
    if train_steps:
        scene = trained(scene, capture, train_steps, seed, device)
    state = f"trained, {train_steps} steps" if train_steps else "initial"
    return Workload("simulated", scene, held_out_views(capture, device), {"capture": capture.name, "scene": state})


def _kept(capture: Capture) -> Capture:
    """Every frame is cast once."""
    images = tuple(replace(frame, load=cache(frame.load)) for frame in capture.images)
    return replace(capture, images=images, sweeps=tuple(replace(f, load=cache(f.load)) for f in capture.sweeps))


def trained(scene: Scene, capture: Capture, steps: int, seed: int, device: torch.device) -> Scene:
    """The scene after training by the baseline; the number of Gaussians stays."""
    rays = max(len(frame.load()) for frame in capture.sweeps)
    config = Config(seed=seed, train=TrainConfig(steps=steps, lidar_rays=rays))
    config.density = DensityConfig(cap=len(scene.gaussians))
    generator = torch.Generator(device).manual_seed(seed)
    plan = ShotPlan(capture, seed, rays)
    state = TrainState(plan, config, scene, make_optimizer(scene, config.lr), generator, device)
    stages, begin = base_stages("native", device), time.monotonic()
    for step in range(steps):
        state.progress = step / steps
        one_step(stages, state, begin)
    return state.scene


# ---- random


def random(size: Size, seed: int, count: int | None, device: torch.device) -> Workload:
    """Gaussians 2 to 80 m away, about three pixels in size at any distance."""
    n, generator = count or size.random, torch.Generator().manual_seed(seed)
    scene = Scene(
        _random_gaussians(n, 3 / _focal(size), generator, device), torch.zeros(3, 8, 16, device=device), Tracks.empty().to(device),
        torch.zeros(0, 3, device=device), torch.zeros(0, 4, device=device), torch.zeros(1, 2, 3, device=device),
    )  # fmt: skip
    return Workload("random", scene, _standing(size, device), {"seed": seed, "scene": f"{n} random Gaussians"})


def _focal(size: Size) -> float:  # pixels
    return 0.58 * (size.width * 2 // 3)  # as KITTI's cameras


def _random_gaussians(
    n: int,
    angle: float,  # radians that a standard deviation is seen under, about
    generator: torch.Generator,
    device: torch.device,
) -> Gaussians:
    def normal(*shape: int) -> Tensor:
        return torch.randn(n, *shape, generator=generator)

    def uniform(low: float, high: float) -> Tensor:  # [N]
        return low + (high - low) * torch.rand(n, generator=generator)

    metres = uniform(math.log(2), math.log(80)).exp()
    directions = unit_directions(torch.stack([uniform(-math.pi, math.pi), uniform(-0.45, 0.25)], dim=-1))
    parts = {
        "means": metres[:, None] * directions,
        "quats": F.normalize(normal(4), dim=-1),
        "log_scales": (angle * metres).log()[:, None] + 0.5 * normal(3),
        "opacity_logits": 1.5 * normal(),
        "sh0": 0.5 * normal(1, 3),
        "sh_rest": 0.05 * normal(15, 3),
        "lidar_logits": normal(2),
        "node": torch.full((n,), BACKGROUND),
    }
    return Gaussians(**{name: values.to(device) for name, values in parts.items()})


def _standing(size: Size, device: torch.device) -> dict[str, CameraView | LidarView]:
    """A camera of two thirds of the width and a third of the height, and a lidar of half the beams."""
    pose = torch.eye(4)
    ahead = torch.tensor([[0.0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]])  # world from camera
    width, height = size.width * 2 // 3, size.height // 3
    camera = Camera("random", width, height, _focal(size), _focal(size), width / 2, height / 2, ahead.double())
    lidar = Lidar(
        "random",
        pose.double(),
        torch.linspace(-0.43, 0.035, size.beams // 2).double(),
        azimuth_steps=size.azimuth_steps,
    )
    azimuth = math.pi - (torch.arange(size.azimuth_steps) + 0.5) * (2 * math.pi / size.azimuth_steps)
    grid = torch.cartesian_prod(azimuth, lidar.elevations.float())
    rays = unit_directions(grid).to(device), ((math.pi - grid[:, 0]) / (2 * math.pi)).to(device)
    views = {
        "camera": CameraView(ahead.to(device), ahead.to(device), 0.0, 0.0, camera),
        "lidar": LidarView(pose.to(device), pose.to(device), 0.0, 0.1, lidar, *rays),
    }
    return {name: replace(view, row=view_row(view).to(device)) for name, view in views.items()}


# ---- the command line


def size_of(args: argparse.Namespace) -> str:
    return args.size or ("full" if choose_device(args.device).type == "cuda" else "small")


def add_arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("--workloads", nargs="+", choices=NAMES, default=list(NAMES), help="(all)")
    p.add_argument("--sensors", nargs="+", choices=SENSORS, default=list(SENSORS), help="(both)")
    p.add_argument(
        "--checkpoint", type=Path, help="captured: a checkpoint of nurec_lite.train (none: the initial scene)"
    )
    p.add_argument(
        "--capture", nargs="*", default=[], metavar="KEY=VALUE", help="captured: of nurec_lite.train (bundled street)"
    )
    p.add_argument(
        "--enlarge", type=float, default=1, help="captured: the image's pixels along either side (%(default)s times)"
    )
    p.add_argument("--size", choices=SIZES, help="of simulated and random scenes (full; on a CPU small)")
    p.add_argument("--train-steps", type=int, default=0, help="simulated: before it is rendered (%(default)s)")
    p.add_argument("--gaussians", type=int, help="random: how many (those of the size)")
    p.add_argument("--seed", type=int, default=0, help="of simulated and random scenes (%(default)s)")
    p.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (%(default)s)")
