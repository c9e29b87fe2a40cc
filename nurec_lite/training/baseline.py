# SPDX-License-Identifier: Apache-2.0
"""The readable stages in plain torch, as a good PyTorch programmer writes them first. Every option is measured against them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from nurec_lite.base.ranges import in_span, span
from nurec_lite.geometry.tracks import interpolate
from nurec_lite.native.capacity import Listed
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
from nurec_lite.training.density import Noise, Relocation, add_noise, by_node, mcmc_split, relocate, sgld_noise
from nurec_lite.training.losses import (
    calibration_terms,
    exposure_regulariser,
    image_loss,
    lidar_loss,
    regularisers,
)
from nurec_lite.training.optim import means_rate, overwrite_gaussians, replace_gaussians, set_memory, set_rates
from nurec_lite.training.shots import ShotPlan, Shots, as_it_is, as_planned
from nurec_lite.training.stages import AnyView, Capacity, FeedStages, LossStages, RenderStages, Stages, UpdateStages
from nurec_lite.training.state import Gathered, Rendered, TrainState
from nurec_lite.training.step import fetch, learn, mean, render_all, try_step
from nurec_lite.training.streams import IMAGES, SWEEPS, InOrder
from nurec_lite.training.unseen import betas, keep_unseen, sparse, sparse_parameters

PIXELS = (0.1, 400.0)  # limits of a Gaussian's weight when relocation draws it


def next_batch(plan: ShotPlan, step: int) -> Shots:
    """Decodes the step's images and sweeps in this process."""
    return plan.load(step)


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.to(device)


def place(stages: Stages, state: TrainState, shots: Shots) -> Shots:
    """Copies the shots to the device, one tensor after another."""
    return shots.copied(lambda tensor: stages.feed.upload(tensor, state.device))


def gather(stages: Stages, scene: Scene, views: Sequence[AnyView]) -> Gathered:
    """Gathers the Gaussians of one view after another."""
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
        return stages.render.collect(
            scene, times, in_span("interpolate", stages.render.interpolate), activated, by_lidar
        )


def capacity(view: Listed) -> Capacity:
    """Returns None: lists are as long as they need."""
    return None


def terms(stages: Stages, state: TrainState, shots: Shots, rendered: Rendered) -> dict[str, Tensor]:
    """Returns all terms of the loss; several images or sweeps count by their mean."""
    weights, run, by = state.config.loss, stages.streams.run, stages.loss
    pairs = zip(rendered.exposed, rendered.targets, strict=True)
    images = [run(IMAGES, by.image_loss, seen, target, weights.ssim) for seen, target in pairs]
    rays, with_targets = zip(rendered.returns, shots.sweeps, strict=True), weights.reach > 0
    sweeps = [run(SWEEPS, by.lidar_loss, returns, shot.sweep, shot.counted, with_targets) for returns, shot in rays]
    of_scene = _scene_terms(stages, state.scene, rendered.activated)
    if max(len(images), len(sweeps)) > 1:
        stages.streams.join()
    found = {"image": mean(images)} if images else {}
    found |= {name: mean([sweep[name] for sweep in sweeps]) for name in (sweeps[0] if sweeps else ())}
    return found | of_scene


def _scene_terms(stages: Stages, scene: Scene, activated: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
    """Loss terms that need no sensor."""
    known = stages.render.activate(scene.gaussians) if activated is None else activated
    terms = stages.loss.regularisers(*(known[name] for name in ("opacities", "lidar_opacities", "scales")))
    return terms | {"exposure": exposure_regulariser(scene.exposure)} | calibration_terms(scene.calibration)


def reduce(state: TrainState) -> None:
    """Does nothing: one process has no other gradients to add."""


def schedule(stages: Stages, state: TrainState) -> None:
    """Rates of the present progress, on the host, and Adam's betas; noise fades as the means' rate does."""
    lr = state.config.lr
    set_memory(state.optimizer, betas(state))
    set_rates(state.optimizer, lr, state.progress)
    noise = state.config.density.noise * means_rate(lr, state.progress) / lr.means
    numbers = [*(group["lr"] for group in state.optimizer.param_groups), noise]
    state.lr_and_noise = torch.tensor(numbers, dtype=torch.float32)


def optimize(state: TrainState) -> None:
    """One update of every parameter, at the rates of its group."""
    with _unless(state.failed, state.optimizer), sparse(state.optimizer, sparse_parameters(state)):
        state.optimizer.step()
    state.optimizer.zero_grad(set_to_none=True)


@contextmanager
def _unless(failed: Tensor | None, optimizer: torch.optim.Adam) -> Iterator[None]:
    """Block whose optimizer does nothing where `failed` is not 0: torch's fused kernels read `found_inf`, which skips gradients that
    overflowed."""
    if failed is None:
        yield
        return
    optimizer.found_inf = failed  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del optimizer.found_inf  # type: ignore[attr-defined]


def noise(state: TrainState, shift: Noise = sgld_noise) -> None:
    """Clamps scales to the least useful thickness, and moves transparent Gaussians at random; after the update of every step."""
    assert state.lr_and_noise is not None
    state.scene.gaussians.clamp_min_scale_()
    if state.config.density.noise > 0:
        amount = state.lr_and_noise[-1]
        lasting = amount if state.failed is None else amount * (1 - state.failed)  # a step that failed changes nothing
        add_noise(state.scene.gaussians, lasting, state.generator, shift)


def density(stages: Stages, state: TrainState) -> None:
    """Relocates and adds Gaussians now and then, after the update."""
    config, g = state.config.density, state.scene.gaussians
    due = (state.step + 1) % config.every == 0
    if due and config.start <= state.progress <= config.stop:
        stages.update.rearrange(stages, state, max(0, min(state.cap, int(len(g) * config.growth)) - len(g)))


def rearrange(
    stages: Stages,
    state: TrainState,
    n_new: int,  # Gaussians to add
) -> None:
    """Relocates: from the images' view of each Gaussian to the new store."""
    config = state.config.density
    weights = _pixels(stages, state) if config.footprint else None
    lost = None if config.box is None else outside_boxes(state.scene, config.box)
    g, how = state.scene.gaussians, (config.jitter, lost, stages.update.order, stages.update.mcmc_split)
    moved = stages.update.relocate(g, n_new, state.generator, weights, *how)
    if moved is not None:
        _store(stages, state, moved)


def _store(stages: Stages, state: TrainState, moved: Relocation) -> None:
    """Stores the tensors in place, unless there are more Gaussians than before."""
    if len(moved.node) != len(state.scene.gaussians):
        replace_gaussians(state.scene, state.optimizer, moved)
        return
    against = [stage.forbids_inplace_relocation(state.scene, moved.node) for stage in stages.changes.capturable]
    if state.failed is not None:
        against.append(state.failed != 0)
    void = torch.stack(against).any() if against else None
    overwrite_gaussians(state.scene, state.optimizer, moved, void)


def _pixels(stages: Stages, state: TrainState) -> Tensor:
    """Returns the pixels [N] that each Gaussian covers: a tenth for unseen ones, at most a patch for one that fills the view."""
    capture = state.plan.capture
    assert capture.split is not None
    pixels = stages.update.footprints(state.scene, capture, capture.split.train_images)
    return pixels.clamp(*PIXELS).nan_to_num_(nan=0.0)  # of a NaN mean: no Gaussian becomes its copy


def begin_frames(stages: Stages, plan: ShotPlan, device: torch.device) -> None:
    """Does nothing: steps decode their frames."""


def synchronize(stages: Stages, state: TrainState) -> None:
    """Returns at once: every step is complete when it returns."""


def reference_stages(device: str = "cpu") -> Stages:
    """Returns all of these stages, in plain torch."""
    return Stages(
        FeedStages(as_planned, begin_frames, next_batch, upload, place, fetch, resize, group_rays=as_it_is, schedule=schedule),
        RenderStages(
            corrected, activate, interpolate, collect=collect_at, gather=gather, capacity=capacity, project=project, tile=tile,
            render_camera=render_camera, render_lidar=render_lidar, render_all=render_all, render_views=render_views,
        ),
        LossStages(exposed_by, sliced, image_loss, lidar_loss, regularisers, terms),
        UpdateStages(
            reduce, keep_unseen, optimize, noise, learn, footprints, relocate, order=by_node, mcmc_split=mcmc_split, rearrange=rearrange,
            density=density, try_step=try_step, synchronize=synchronize,
        ),
        InOrder(),
        device,
    )  # fmt: skip
