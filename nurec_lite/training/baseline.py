# SPDX-License-Identifier: Apache-2.0
"""The baseline's stages that have no module of their own: batches, loss, update, density control."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nurec_lite.capture.loader import Batch, BatchPlan
from nurec_lite.capture.types import Capture
from nurec_lite.scene.footprint import footprints
from nurec_lite.scene.gaussians import activate
from nurec_lite.splat.render import LidarReturns
from nurec_lite.splat.views import CameraView, LidarView, camera_view, lidar_view
from nurec_lite.training.density import Relocation, add_noise, by_node, relocate
from nurec_lite.training.losses import exposure_regulariser, image_loss, lidar_loss, regularisers, weighted_sum
from nurec_lite.training.optim import means_rate, replace_gaussians, schedule
from nurec_lite.training.state import TrainState

if TYPE_CHECKING:
    from nurec_lite.training.stages import Stages

PIXELS = (0.1, 400.0)  # limits of a Gaussian's weight when relocation draws it


def load_batch(plan: BatchPlan, step: int) -> Batch:
    """Decodes the step's image and sweep in this process."""
    return plan.load(step)


def total_loss(
    state: TrainState,
    batch: Batch,
    image: Tensor,  # [H, W, 3]
    target: Tensor,  # [H, W, 3]
    returns: LidarReturns | None,
    local: Mapping[str, Tensor] | None = None,  # activate(scene.gaussians), if it is known already
) -> tuple[Tensor, dict[str, Tensor]]:
    """Weighted sum of all terms, and the terms."""
    weights = state.config.loss
    terms = {"image": image_loss(image, target, weights.ssim)}
    if returns is not None and batch.sweep is not None:
        terms |= lidar_loss(returns, batch.sweep)
    local = activate(state.scene.gaussians) if local is None else local
    terms |= regularisers(local["opacities"], local["scales"])
    terms["exposure"] = exposure_regulariser(state.scene.exposure)
    return weighted_sum(terms, weights), terms


def optimize(state: TrainState) -> None:
    """One update of every parameter, at the rates of the present progress."""
    schedule(state.optimizer, state.config.lr, state.progress)
    state.optimizer.step()
    state.optimizer.zero_grad(set_to_none=True)


def density(
    state: TrainState,
    relocate: Callable[..., Relocation | None] = relocate,
    lasting: float | Tensor = 1.0,  # factor of the noise
) -> None:
    """After the update: relocation and growth now and then, noise at every step, fading as the means' rate does."""
    config, g = state.config.density, state.scene.gaussians
    due = (state.step + 1) % config.every == 0
    if due and config.start <= state.progress <= config.stop:
        n_new = max(0, min(config.cap, int(len(g) * config.growth)) - len(g))
        moved = relocate(g, n_new, state.generator, _pixels(state) if config.footprint else None, config.jitter)
        if moved is not None:
            replace_gaussians(state.scene, state.optimizer, by_node(moved))
    if config.noise > 0:
        fade = means_rate(state.config.lr, state.progress) / state.config.lr.means
        add_noise(g, config.noise * fade * lasting, state.generator)


def _pixels(state: TrainState) -> Tensor:
    """[N] that each Gaussian covers; unseen ones keep a tenth of one, and what fills the view counts as a patch of it."""
    capture = state.plan.capture
    assert capture.split is not None
    return footprints(state.scene, capture, capture.split.train_images).clamp(*PIXELS)


Moved = tuple[Batch, CameraView, LidarView | None]  # a batch, and where its image and its rays were taken from


def to_device(state: TrainState, batch: Batch) -> Moved:
    """Copies the batch to the device."""
    batch = batch.to(state.device)
    return batch, *views(state.plan.capture, batch, state.device)


def views(
    capture: Capture,
    batch: Batch,
    device: torch.device | str,
) -> tuple[CameraView, LidarView | None]:
    """Where the batch's image and rays were taken from."""
    camera = camera_view(capture, capture.images[batch.image_index], device)
    if batch.sweep is None:
        return camera, None
    assert batch.sweep_index is not None
    return camera, lidar_view(capture, capture.sweeps[batch.sweep_index], batch.sweep, device)


def nothing_to_settle(stages: "Stages", state: TrainState) -> None:
    """What the loop calls before it looks at the state, saves it or measures it; every step is done when it returns."""
