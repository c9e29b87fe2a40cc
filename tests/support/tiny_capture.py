# SPDX-License-Identifier: Apache-2.0
"""The smallest drive that has everything: two cameras, a lidar, moving and parked cars. And a configuration that trains on it fast."""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from nurec_lite.capture.simulate import simulate
from nurec_lite.capture.simulate.world import SimulationConfig
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.config import Config, DensityConfig, MeasureConfig, ModelConfig, TrainConfig
from nurec_lite.scene.calibration import none_known
from nurec_lite.scene.gaussians import LIDAR_VALUES
from nurec_lite.scene.init import make_scene
from nurec_lite.scene.scene import Scene
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.coarse import coarse_share
from nurec_lite.training.optim import make_optimizer
from nurec_lite.training.shots import ImageShot, ShotPlan, Shots, SweepShot
from nurec_lite.training.state import TrainState

ROOT = Path(__file__).resolve().parents[2]
TINY = SimulationConfig(
    frames=10, width=40, height=24, beams=8, azimuth_steps=64, samples=1, moving_cars=2, parked_cars=2
)


@dataclass(frozen=True)
class Loaded:
    """Stands in for the decoder of a frame."""

    value: Any

    def __call__(self) -> Any:
        return self.value


@lru_cache(maxsize=8)
def tiny_capture(config: SimulationConfig = TINY) -> Capture:
    """Frames are cast once a session; nothing may be written into them."""
    capture = simulate(config)
    images = tuple(replace(frame, load=Loaded(frame.load())) for frame in capture.images)
    sweeps = tuple(replace(frame, load=Loaded(frame.load())) for frame in capture.sweeps)
    assert all(isinstance(f, ImageFrame) for f in images) and all(isinstance(f, SweepFrame) for f in sweeps)
    return replace(capture, images=images, sweeps=sweeps).with_split("interp")


def tiny_config(steps: int | None = 12, **changes: Any) -> Config:
    """About 500 Gaussians, and relocation at every fourth step."""
    parts = {
        "device": "cpu",
        "measure": MeasureConfig(seconds=0),
        "model": ModelConfig(points=300, actor_points=40, raised_points=100, far_points=80, sky_height=8),
        "train": TrainConfig(steps=steps, lidar_rays=128, checkpoint_seconds=1e9),
        "density": DensityConfig(every=4, start=0.0, stop=1.0, cap=560, growth=1.05),
    }
    return Config(**(parts | changes))


@lru_cache(maxsize=1)
def _tiny_scene() -> Scene:
    return make_scene(tiny_capture(), tiny_config().model, 0, "cpu")


def tiny_scene() -> Scene:
    """A copy of its own, made once a session."""
    scene = _tiny_scene()
    gaussians = replace(
        scene.gaussians, **{f: getattr(scene.gaussians, f).clone() for f in scene.gaussians.__dataclass_fields__}
    )
    own = ("sky", "track_translations", "track_quaternions", "exposure")
    return replace(scene, gaussians=gaussians, **{name: getattr(scene, name).detach().clone() for name in own})


def tiny_state(config: Config | None = None) -> TrainState:
    """The state that `nurec_lite.training.start.make_state` gives for a fresh run, at the pace of the first step, so that parts of a step
    can be called one by one."""
    config = config or tiny_config()
    scene, plan = tiny_scene(), tiny_plan(config)
    if not config.model.lidar_opacity:
        scene.gaussians.lidar_logits = scene.gaussians.lidar_logits[:, :LIDAR_VALUES].clone()
    if config.model.calibrate:
        scene.calibration = none_known(tiny_capture(), config.model.knot_seconds, "cpu", config.model.bilateral_grid)
    generator = torch.Generator().manual_seed(config.seed)
    state = TrainState(plan, config, scene, make_optimizer(scene, config.lr), generator, torch.device("cpu"))
    stages = reference_stages()
    stages.feed.schedule(stages, state)
    return state


def tiny_plan(config: Config) -> ShotPlan:
    capture = tiny_capture()
    return ShotPlan(capture, config.seed, config.train.lidar_rays, coarse=coarse_share(config, capture) > 0)


def tiny_shots(
    images: tuple[int, ...],  # steps of the plan whose images are taken
    sweeps: tuple[int, ...],  # and whose sweeps
    lidar_rays: int = 128,
    coarse: bool = False,
) -> Shots:
    """Any number of either in one step; the plan itself has one of each."""
    plan = ShotPlan(tiny_capture(), tiny_config().seed, lidar_rays, coarse=coarse)
    loaded_images: list[ImageShot] = [plan.load(step).images[0] for step in images]
    loaded_sweeps: list[SweepShot] = [plan.load(step).sweeps[0] for step in sweeps]
    return Shots(0, tuple(loaded_images), tuple(loaded_sweeps))
