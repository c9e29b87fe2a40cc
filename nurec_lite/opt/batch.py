# SPDX-License-Identifier: Apache-2.0
"""batch: a step learns from several images, those that were taken at one moment first, and from one sweep or several.

Idea: what a step does whatever it looks at (regularisers, the update of all Gaussians, noise, the lidar, with `collect_once` also
activations) is done once for several images, whose mean is the loss. No image comes again before all have come.
Source: rates times the square root of the number of images, by which Adam's random walk keeps its pace while gradients get less noisy
(Malladi et al. 2022, On the SDEs and Scaling Rules for Adaptive Gradient Algorithms); betas to its power, so that moments remember as
many images as before, as Grendel-GS has both for Gaussians (Zhao et al. 2024, On Scaling Up 3D Gaussian Splatting Training). Epsilon is
1e-15, too small to be scaled.
Gain: none. On an H200 1 000 steps of 2 images reach 23.8 dB where 2 000 of one reach 24.2 (KITTI drive 0009). On two cores an image costs a
quarter less with 4 a step, and as many images teach 0.9 dB less; that would be 1.8 dB without the rule, and is 0.6 dB where density.every
is divided by the images (benchmarks/LOG.md).
Limits: views are rendered one after another, each with a projection, a sort and launches of its own; only collecting is one call for all,
by `collect_once`. A step's memory grows with its images. Steps stay what the user says: train.steps, density.every and the noise of a
step count steps, each of which sees more images. The rule takes gradients for independent, which those of one moment are only where
they see other things, and scales the rates of the lidar's values too, whose sweeps may still be one a step; scale_rates=false leaves
rates and betas as they are. Class quality.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt

from nurec_lite.base.errors import OptionError
from nurec_lite.training.optim import scaled_rates, set_memory
from nurec_lite.training.shots import ShotPlan
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState

CLASS = "quality"
REQUIRES: tuple[str, ...] = ()
Schedule = Callable[[Stages, TrainState], None]


def unavailable(stages: Stages) -> str | None:
    return None


@dataclass(frozen=True)
class Frames:
    """Stands in for `frames` of the baseline."""

    images: int
    sweeps: int

    def __call__(self, plan: ShotPlan) -> ShotPlan:
        return replace(plan, images_a_step=self.images, sweeps_a_step=self.sweeps)


def scaled(inner: Schedule) -> Schedule:
    """Stands around `schedule`: rates and betas for as many images as a step of the plan has."""

    def schedule(stages: Stages, state: TrainState) -> None:
        images = state.plan.images.size
        set_memory(state.optimizer, images)
        lr = scaled_rates(state.config.lr, sqrt(images))
        inside = replace(state, config=replace(state.config, lr=lr))
        inner(stages, inside)
        state.pace = inside.pace

    return schedule


def apply(stages: Stages, *, images: int, sweeps: int, scale_rates: bool) -> Stages:
    """`images` and `sweeps` a step, as far as there are as many; `scale_rates`: by the number of images."""
    for name, count in (("images", images), ("sweeps", sweeps)):
        if count < 1:
            raise OptionError(f"option 'batch': {name} is {count}, but must be at least 1")
    learning = stages.swap("batch", frames=Frames(images, sweeps))
    return learning.wrap(schedule=scaled) if scale_rates else learning
