# SPDX-License-Identifier: Apache-2.0
"""batch: a step learns from several images, those that were taken at one moment first, and from one sweep or several.

Idea: the work of a step that does not depend on its image (regularisers, the update of all Gaussians, noise, the lidar, with
`collect_once` also activations) is done once for several images; the loss is their mean. No image comes again before all have come.
Source: rates times the square root of the number of images, so that Adam's random walk keeps its pace while gradients get less noisy
(Malladi et al. 2022, On the SDEs and Scaling Rules for Adaptive Gradient Algorithms); betas to its power, so that moments remember as
many images as before, as Grendel-GS has both for Gaussians (Zhao et al. 2024, On Scaling Up 3D Gaussian Splatting Training). Epsilon is
1e-15, too small to be scaled.
Gain, code before and after, limits: docs/options/batch.md.
One launch: on a GPU, with warp_cull, fused_interp and collect_once, images of one size and sweeps of one lidar go through one projection,
one sort and one launch a stage (kernels/raster_warps/views/train.h). With fused_project one epilogue differentiates their Gaussians with
those of all other views; without it each view has its own. Numbers are those of one view after another up to rounding, and to the order
of sums. Other views are rendered one by one: an image with a size of its own, all views on a CPU or with one_launch=false, and, for
a reason that the log gives, views without these options or with poses that need gradients of rays.
Limits: a step's memory grows with its images; in one launch also the temporary memory of a view's lists, 150 bytes a Gaussian and
view. The capacity of lists belongs to a sensor, as without it, and all views of a launch share it. Steps count as before: train.steps,
density.every and the noise of a step count steps, and each step sees more images. The rule assumes independent gradients;
those of one moment are so only where they see different things. It scales the rates of the lidar's values, too, though a step may have
one sweep; scale_rates=false leaves rates and betas as they are. Class quality.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

from nurec_lite.base.errors import OptionError
from nurec_lite.base.ranges import span
from nurec_lite.native.batched_views import batch_key, render_batch, unsupported_reason
from nurec_lite.scene.gaussians import AnyGaussians
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.views import CameraView
from nurec_lite.training.optim import scaled_rates, set_memory
from nurec_lite.training.shots import ShotPlan
from nurec_lite.training.stages import AnyView, OnState, RenderAll, Seen, Stages
from nurec_lite.training.state import ListUse, TrainState, overflow_of
from nurec_lite.training.unseen import betas

CLASS = "quality"
REQUIRES: tuple[str, ...] = ()
RENDERING = ("project", "tile", "render_camera", "render_lidar")  # stages that one launch does without
log = logging.getLogger("nurec_lite")


def unavailable(stages: Stages) -> str | None:
    return None


@dataclass(frozen=True)
class Frames:
    """Replaces `frames` of the baseline."""

    images: int
    sweeps: int

    def __call__(self, plan: ShotPlan) -> ShotPlan:
        return replace(plan, images_a_step=self.images, sweeps_a_step=self.sweeps)


def scaled(inner: OnState) -> OnState:
    """Wraps `schedule`: rates and betas for as many images as a step of the plan has."""

    def schedule(stages: Stages, state: TrainState) -> None:
        images = state.plan.images.size
        lr = scaled_rates(state.config.lr, sqrt(images))
        inside = replace(state, config=replace(state.config, lr=lr))
        inner(stages, inside)
        set_memory(state.optimizer, betas(state), images)
        state.lr_and_noise = inside.lr_and_noise

    return schedule


class OneLaunch:
    """Wraps `render_all`: views with one key go into one launch."""

    def __init__(self, inner: RenderAll) -> None:
        self._inner = inner
        self._logged: set[str] = set()  # why not, once each

    def __call__(
        self, stages: Stages, scene: Scene, views: Sequence[AnyView], gaussians: Sequence[AnyGaussians]
    ) -> tuple[Seen, ...]:
        found: dict[int, Seen] = {}
        for group in _by_key(views):
            few = [views[k] for k in group], [gaussians[k] for k in group]
            found |= zip(group, self._rendered(stages, scene, *few), strict=True)
        return tuple(found[k] for k in range(len(views)))

    def _rendered(
        self, stages: Stages, scene: Scene, views: Sequence[AnyView], gaussians: Sequence[AnyGaussians]
    ) -> Sequence[Seen]:
        if len(views) == 1:
            return self._inner(stages, scene, views, gaussians)
        if (why := _unsupported_stages(stages) or unsupported_reason(views, gaussians)) is not None:
            self._log_once(why)
            return self._inner(stages, scene, views, gaussians)
        return launch_views(stages, scene, views, gaussians)

    def _log_once(self, why: str) -> None:
        if why not in self._logged:
            log.info("batch: views of a step are rendered one after another, not in one launch: %s", why)
            self._logged.add(why)


def _by_key(views: Sequence[AnyView]) -> list[list[int]]:
    """Numbers of the views that may go into one launch."""
    groups: dict[object, list[int]] = {}
    for k, view in enumerate(views):
        groups.setdefault(batch_key(view), []).append(k)
    return list(groups.values())


def _unsupported_stages(stages: Stages) -> str | None:
    """Returns the reason why these stages cannot render views in one launch, or None."""
    if stages.plan is None or not stages.plan.warp_tiles:
        return "it needs the option warp_cull"
    other = [name for name in RENDERING if name in stages.changes.claims or name in stages.changes.wrapped]
    return f"another option changes the stage '{other[0]}'" if other else None


def launch_views(stages: Stages, scene: Scene, views: Sequence[AnyView], gaussians: Any) -> list[Seen]:
    """Renders the views of a launch. The capacity of its lists is the sum over the views. Each view reports its need, so that
    capacities are learned as without a common launch; the step fails if a view needs more than its own."""
    assert stages.plan is not None
    capacities = [stages.render.capacity(view) for view in views]
    known = [capacity for capacity in capacities if capacity is not None]
    capacity = sum(known) if len(known) == len(capacities) else None
    with span("render_camera" if isinstance(views[0], CameraView) else "render_lidar"):
        launched = render_batch(gaussians, views, scene.sky, capacity, stages.plan)
    if capacity is None:
        listed = [ListUse(v.kind, n, None, None) for v, n in zip(views, launched.needed.tolist(), strict=True)]
    else:
        needed = launched.needed.split(1)
        listed = [
            ListUse(v.kind, n, need, overflow_of(need, n)) for v, n, need in zip(views, known, needed, strict=True)
        ]
    return list(zip(launched.seen, listed, strict=True))


def apply(stages: Stages, *, images: int, sweeps: int, scale_rates: bool, one_launch: bool) -> Stages:
    """`images` and `sweeps` a step, as far as there are as many; `scale_rates`: by the number of images; `one_launch`: for all views of a
    step that allow it."""
    for name, count in (("images", images), ("sweeps", sweeps)):
        if count < 1:
            raise OptionError(f"option 'batch': {name} is {count}, but must be at least 1")
    learning = stages.swap("batch", frames=Frames(images, sweeps))
    if one_launch and stages.device == "cuda":
        learning = learning.wrap(render_all=OneLaunch)
    return learning.wrap(schedule=scaled) if scale_rates else learning
