# SPDX-License-Identifier: Apache-2.0
"""The readable stages, in plain torch: what a good PyTorch programmer writes first, and what every option is measured against."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from nurec_lite.base.ranges import in_span, span
from nurec_lite.geometry.tracks import interpolate
from nurec_lite.scene.bilateral import sliced
from nurec_lite.scene.boxes import outside_boxes
from nurec_lite.scene.collect import collect_at
from nurec_lite.scene.footprint import footprints
from nurec_lite.scene.gaussians import AnyGaussians, activate
from nurec_lite.scene.scene import Scene, exposed_by
from nurec_lite.splat.corrected import corrected
from nurec_lite.splat.project import project
from nurec_lite.splat.render import render_camera, render_lidar
from nurec_lite.splat.tiles import tile
from nurec_lite.splat.views import LidarView
from nurec_lite.training.batches import render_views
from nurec_lite.training.coarse import resize
from nurec_lite.training.density import Relocation, add_noise, by_node, explored, parted, relocate
from nurec_lite.training.losses import (
    calibration_terms,
    exposure_regulariser,
    image_loss,
    lidar_loss,
    regularisers,
)
from nurec_lite.training.optim import means_rate, overwrite_gaussians, replace_gaussians, set_rates
from nurec_lite.training.shots import ShotPlan, Shots
from nurec_lite.training.stages import IMAGES, SWEEPS, AnyView, Room, Stages
from nurec_lite.training.state import Gathered, Rendered, TrainState
from nurec_lite.training.step import attempt, feed, learn, mean, render_all

T = TypeVar("T")
PIXELS = (0.1, 400.0)  # limits of a Gaussian's weight when relocation draws it


def next_batch(plan: ShotPlan, step: int) -> Shots:
    """Decodes the step's images and sweeps in this process."""
    return plan.load(step)


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.to(device)


def place(stages: Stages, state: TrainState, shots: Shots) -> Shots:
    """One tensor after another."""
    return shots.copied(lambda tensor: stages.upload(tensor, state.device))


def branches(device: torch.device) -> AbstractContextManager[None]:
    """All in one row."""
    return nullcontext()


def beside(branch: str, work: Callable[..., T], *given: object) -> T:
    """Now."""
    return work(*given)


def join() -> None:
    """All is done when its turn has come."""


def gather(stages: Stages, scene: Scene, views: Sequence[AnyView]) -> Gathered:
    """One view after another."""
    return Gathered(tuple(gaussians for view in views for gaussians in collected(stages, scene, (view,))), None)


def collected(
    stages: Stages,
    scene: Scene,
    views: Sequence[AnyView],
    activated: Mapping[str, Tensor] | None = None,  # activate(scene.gaussians), if it is known already
) -> tuple[AnyGaussians, ...]:
    """The Gaussians in world space in the middle of each view, as its sensor sees them, by one call of `collect`."""
    times = torch.stack([view.moment() for view in views])
    by_lidar = [isinstance(view, LidarView) for view in views]
    with span("collect"):
        return stages.collect(scene, times, in_span("interpolate", stages.interpolate), activated, by_lidar)


def room(view: AnyView) -> Room:
    """None: lists are as long as they need."""
    return None


def loss(stages: Stages, state: TrainState, shots: Shots, rendered: Rendered) -> dict[str, Tensor]:
    """All terms; several images or sweeps count by their mean."""
    weights = state.config.loss
    image, sweep = partial(stages.beside, IMAGES, stages.image_loss), partial(stages.beside, SWEEPS, stages.lidar_loss)
    pairs = zip(rendered.exposed, rendered.targets, strict=True)
    images = [image(seen, target, weights.ssim) for seen, target in pairs]
    rays = zip(rendered.returns, shots.sweeps, strict=True)
    sweeps = [sweep(returns, shot.sweep, shot.counted, weights.reach > 0) for returns, shot in rays]
    of_scene = _scene_terms(stages, state.scene, rendered.activated)
    if max(len(images), len(sweeps)) > 1:
        stages.join()
    terms = {"image": mean(images)} if images else {}
    terms |= {name: mean([sweep[name] for sweep in sweeps]) for name in (sweeps[0] if sweeps else ())}
    return terms | of_scene


def _scene_terms(stages: Stages, scene: Scene, activated: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
    """Loss terms that need no sensor."""
    known = stages.activate(scene.gaussians) if activated is None else activated
    terms = stages.regularisers(*(known[name] for name in ("opacities", "lidar_opacities", "scales")))
    return terms | {"exposure": exposure_regulariser(scene.exposure)} | calibration_terms(scene.calibration)


def reduce(state: TrainState) -> None:
    """One process has nothing to add up."""


def schedule(stages: Stages, state: TrainState) -> None:
    """Rates of the present progress, on the host; noise fades as the means' rate does."""
    lr = state.config.lr
    set_rates(state.optimizer, lr, state.progress)
    noise = state.config.density.noise * means_rate(lr, state.progress) / lr.means
    numbers = [*(group["lr"] for group in state.optimizer.param_groups), noise]
    state.pace = torch.tensor(numbers, dtype=torch.float32)


def optimize(state: TrainState) -> None:
    """One update of every parameter, at the rates of its group."""
    with _unless(state.failed, state.optimizer):
        state.optimizer.step()
    state.optimizer.zero_grad(set_to_none=True)


@contextmanager
def _unless(failed: Tensor | None, optimizer: torch.optim.Adam) -> Iterator[None]:
    """Within the block, the optimizer does nothing where `failed` is not 0: torch's fused kernels ask for `found_inf`, which is how
    gradients that overflowed are skipped."""
    if failed is None:
        yield
        return
    optimizer.found_inf = failed  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del optimizer.found_inf  # type: ignore[attr-defined]


def noise(state: TrainState, shift: Callable[..., Tensor] = explored) -> None:
    """After the update, in every step: scales keep the thickness below which none is of use, and transparent Gaussians explore."""
    assert state.pace is not None
    state.scene.gaussians.clamp_min_scale_()
    if state.config.density.noise > 0:
        amount = state.pace[-1]
        lasting = amount if state.failed is None else amount * (1 - state.failed)  # a step that failed changes nothing
        add_noise(state.scene.gaussians, lasting, state.generator, shift)


def density(stages: Stages, state: TrainState) -> None:
    """After the update: relocation and growth, now and then."""
    config, g = state.config.density, state.scene.gaussians
    due = (state.step + 1) % config.every == 0
    if due and config.start <= state.progress <= config.stop:
        stages.rearrange(stages, state, max(0, min(config.cap, int(len(g) * config.growth)) - len(g)))


def rearrange(
    stages: Stages,
    state: TrainState,
    n_new: int,  # Gaussians to add
) -> None:
    """A relocation, from what images see of each Gaussian to what is stored."""
    config = state.config.density
    weights = _pixels(stages, state) if config.footprint else None
    lost = None if config.box is None else outside_boxes(state.scene, config.box)
    g, how = state.scene.gaussians, (config.jitter, lost, stages.order, stages.part)
    moved = stages.relocate(g, n_new, state.generator, weights, *how)
    if moved is not None:
        _store(stages, state, moved)


def _store(stages: Stages, state: TrainState, moved: Relocation) -> None:
    """Stores the tensors in place, unless there are more Gaussians than before."""
    if len(moved.node) != len(state.scene.gaussians):
        replace_gaussians(state.scene, state.optimizer, moved)
        return
    against = [veto(state.scene, moved.node) for veto in stages.vetoes]
    if state.failed is not None:
        against.append(state.failed != 0)
    void = torch.stack(against).any() if against else None
    overwrite_gaussians(state.scene, state.optimizer, moved, void)


def _pixels(stages: Stages, state: TrainState) -> Tensor:
    """[N] that each Gaussian covers; unseen ones keep a tenth of one, and what fills the view counts as a patch of it."""
    capture = state.plan.capture
    assert capture.split is not None
    pixels = stages.footprints(state.scene, capture, capture.split.train_images)
    return pixels.clamp(*PIXELS).nan_to_num_(nan=0.0)  # of a mean that is no number: nobody becomes its copy


def settle(stages: Stages, state: TrainState) -> None:
    """Every step is done when it returns."""


def reference_stages(device: str = "cpu") -> Stages:
    """All of these, in plain torch."""
    return Stages(
        next_batch=next_batch, upload=upload, place=place, feed=feed, resize=resize, schedule=schedule,
        correct=corrected, expose=exposed_by, slice_grid=sliced,
        branches=branches, beside=beside, join=join,
        activate=activate, interpolate=interpolate, collect=collect_at, gather=gather,
        room=room, project=project, tile=tile, render_camera=render_camera, render_lidar=render_lidar,
        render_all=render_all, render_views=render_views,
        image_loss=image_loss, lidar_loss=lidar_loss, regularisers=regularisers,
        loss=loss, reduce=reduce, optimize=optimize, noise=noise, learn=learn,
        footprints=footprints, relocate=relocate, order=by_node, part=parted, rearrange=rearrange,
        density=density, attempt=attempt, settle=settle, device=device,
    )  # fmt: skip
