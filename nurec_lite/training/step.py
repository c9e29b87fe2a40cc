# SPDX-License-Identifier: Apache-2.0
"""The training step, written once with the stages of a record: feed, resize, schedule, learn, density.

    shots  = stages.feed.fetch(stages, state)            next_batch, then place
    shots  = stages.feed.resize(stages, state, shots)    to the resolution of this part of the run
    stages.feed.schedule(stages, state)                  rates of the step
    result = stages.update.learn(stages, state, shots)   correct, gather, branches (render, loss, backward), reduce, keep_unseen,
                                                         optimize, noise
    stages.update.density(stages, state)

Options swap or wrap the stages of these names (`nurec_lite.training.stages`).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from nurec_lite.base.ranges import span
from nurec_lite.geometry.masks import blackened, seen_share
from nurec_lite.scene.gaussians import AnyGaussians
from nurec_lite.scene.scene import Exposure, Scene, exposed, exposure
from nurec_lite.splat.render import CameraImage, LidarReturns
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView
from nurec_lite.training.history import Figures
from nurec_lite.training.losses import backward, check_terms, with_range_targets
from nurec_lite.training.shots import ImageShot, Shots, SweepShot
from nurec_lite.training.stages import EXPOSURES, FIGURES, IMAGES, LISTS, SWEEPS, AnyView, Capacity, Stages
from nurec_lite.training.state import ListUse, Rendered, StepResult, TrainState, overflow_of


def step(stages: Stages, state: TrainState) -> StepResult:
    """One step: shots from the capture, an update of the scene."""
    shots = stages.feed.resize(stages, state, stages.feed.fetch(stages, state))
    state.consistent = False
    result = stages.update.try_step(stages, state, shots)
    state.consistent = True
    return result


def try_step(stages: Stages, state: TrainState, shots: Shots) -> StepResult:
    """Runs the part of a step that can be repeated with the same shots."""
    stages.feed.schedule(stages, state)
    result = stages.update.learn(stages, state, shots)
    with span("density"):
        stages.update.density(stages, state)
    return result


def fetch(stages: Stages, state: TrainState) -> Shots:
    """The step's images and sweeps with their views, on the device."""
    with span("next_batch"):
        shots = stages.feed.next_batch(state.plan, state.step)
    with span("place"):
        return stages.feed.place(stages, state, shots)


def learn(stages: Stages, state: TrainState, shots: Shots) -> StepResult:
    """Renders, compares, differentiates, updates."""
    assert state.lr_and_noise is not None
    state.entries = None
    state.lr_and_noise = stages.feed.upload(state.lr_and_noise, state.device)
    with stages.streams.fork(state.device):
        rendered = render(stages, state.scene, shots, state.config.loss.reach)
        state.image_lists = rendered.lists[: len(shots.images)]
        with span("loss"):
            terms = stages.loss.terms(stages, state, shots, rendered)
            check_terms(terms, state.config.loss)
        state.failed = stages.streams.run(LISTS, failed, state.failed, [listed.overflow for listed in rendered.lists])
        errors = stages.streams.run(FIGURES, _errors, rendered.exposed, rendered.targets, shots.images)
        with span("backward"):
            backward(terms, state.config.loss)
        if stages.ranks > 1:
            stages.streams.join(LISTS)  # messages say whether the step failed
        stages.update.reduce(state)  # while branches go on
    with span("optimize"):
        stages.update.keep_unseen(state)
        stages.update.optimize(state)
    with span("noise"):
        stages.update.noise(state)
    figures = Figures.of(terms, mean(errors) if errors else None, state.failed)
    return StepResult(figures, rendered.lists, _report(rendered.lists, state))


def _report(lists: tuple[ListUse, ...], state: TrainState) -> Tensor | None:
    """Report of a step as in StepResult."""
    if state.failed is None:
        return None
    needed = [listed.needed for listed in lists if listed.needed is not None]
    entries = [] if state.entries is None else [state.entries]
    return torch.cat([*needed, *entries, state.failed.ne(0).to(torch.int64)[None]])


def render(
    stages: Stages,
    scene: Scene,
    shots: Shots,
    reach: float = 0.0,  # as nurec_lite.training.losses.with_range_targets takes it
) -> Rendered:
    """Every view of the shots, from the scene to its sensor; images, their exposures and sweeps are branches."""
    shots = _corrected(stages, shots, scene)
    gathered = stages.render.gather(stages, scene, shots.views)
    n = len(shots.images)
    of_images, of_sweeps, run = gathered.gaussians[:n], gathered.gaussians[n:], stages.streams.run
    images = run(IMAGES, partial(_images, stages), scene, shots.images, of_images) if n else ()
    exposures = run(EXPOSURES, _exposures, scene, shots.images) if n else ()  # many small operators: images go on
    sweeps = run(SWEEPS, partial(_sweeps, stages, scene, reach), shots.sweeps, of_sweeps) if shots.sweeps else ()
    compared = run(IMAGES, partial(_compared, stages), scene, shots.images, images, exposures) if n else ()
    return Rendered(
        images=tuple(image for image, _ in images),
        exposed=tuple(seen for seen, _ in compared),
        targets=tuple(target for _, target in compared),
        returns=tuple(returns for returns, _ in sweeps),
        activated=gathered.activated,
        lists=(*(listed for _, listed in images), *(listed for _, listed in sweeps), *gathered.lists),
    )


def render_all(
    stages: Stages, scene: Scene, views: Sequence[AnyView], gaussians: Sequence[AnyGaussians]
) -> tuple[tuple[CameraImage | LidarReturns, ListUse], ...]:
    """Renders one view after another."""
    return tuple(_seen(stages, scene, view, g) for view, g in zip(views, gaussians, strict=True))


def _corrected(stages: Stages, shots: Shots, scene: Scene) -> Shots:
    known = scene.calibration
    images = tuple(replace(shot, view=stages.render.correct(shot.view, known)) for shot in shots.images)
    sweeps = tuple(replace(shot, view=stages.render.correct(shot.view, known)) for shot in shots.sweeps)
    return replace(shots, images=images, sweeps=sweeps)


def _images(
    stages: Stages, scene: Scene, shots: Sequence[ImageShot], gaussians: Sequence[AnyGaussians]
) -> tuple[tuple[CameraImage, ListUse], ...]:
    found: Any = stages.render.render_all(stages, scene, [shot.view for shot in shots], gaussians)
    return tuple(found)


def _exposures(scene: Scene, shots: Sequence[ImageShot]) -> tuple[Exposure, ...]:
    return tuple(exposure(scene, shot.camera, shot.view.drift, shot.view.moment()) for shot in shots)


def _compared(
    stages: Stages,
    scene: Scene,
    shots: Sequence[ImageShot],
    images: Sequence[tuple[CameraImage, ListUse]],
    exposures: Sequence[Exposure],
) -> tuple[tuple[Tensor, Tensor], ...]:
    """Each image as exposed, and its target."""
    each = zip(shots, images, exposures, strict=True)
    return tuple((_exposed(stages, scene, shot, image, through), _target(shot)) for shot, (image, _), through in each)


def _target(shot: ImageShot) -> Tensor:  # [H, W, 3] 0 to 1
    """The captured image, black where it is masked."""
    return blackened(shot.image / 255, shot.view.camera.mask)  # uint8 to float32


def _sweeps(
    stages: Stages, scene: Scene, reach: float, shots: Sequence[SweepShot], gaussians: Sequence[AnyGaussians]
) -> tuple[tuple[LidarReturns, ListUse], ...]:
    """Renders sweeps; the lidar needs nothing of the scene but the Gaussians."""
    found: Any = stages.render.render_all(
        stages, scene, [with_range_targets(shot.view, shot.sweep, reach) for shot in shots], gaussians
    )
    return tuple(found)


def _seen(
    stages: Stages, scene: Scene, view: AnyView, gaussians: AnyGaussians
) -> tuple[CameraImage | LidarReturns, ListUse]:
    found: CameraImage | LidarReturns
    with span("render_camera" if isinstance(view, CameraView) else "render_lidar"):
        pairs = list_pairs(stages, gaussians, view, stages.render.capacity(view))
        capacity = len(pairs.gaussians)
        # on a stream of its own, so that the result is known early
        overflow = None if pairs.needed is None else stages.streams.run(LISTS, overflow_of, pairs.needed, capacity)
        if isinstance(view, CameraView):
            found = stages.render.render_camera(gaussians, view, pairs, scene.sky)
        else:
            found = stages.render.render_lidar(gaussians, view, pairs)
    return found, ListUse(view.kind, capacity, pairs.needed, overflow)


def _exposed(stages: Stages, scene: Scene, shot: ImageShot, image: CameraImage, through: Exposure) -> Tensor:
    """The image as its camera sees it, black where it is masked, so that no term of the loss says anything of these pixels."""
    by = stages.loss.expose, stages.loss.slice_grid
    seen = exposed(scene, shot.camera, image.colour, through, *by)
    return blackened(seen, shot.view.camera.mask)


def list_pairs(stages: Stages, gaussians: AnyGaussians, view: AnyView, capacity: Capacity = None) -> PairList:
    """Lists of the Gaussians of each of the view's tiles."""
    with span("project"):
        projection = stages.render.project(gaussians, view, capacity)
    with span("tile"):
        return stages.render.tile(projection, view, capacity)


def render_frame(stages: Stages, scene: Scene, view: CameraView) -> CameraImage:
    """One exposure, from the scene to the image, without training."""
    view = stages.render.correct(view, scene.calibration)
    with span("render_camera"):
        (gaussians,) = stages.render.gather(stages, scene, (view,)).gaussians
        return stages.render.render_camera(gaussians, view, list_pairs(stages, gaussians, view), scene.sky)


def render_sweep(stages: Stages, scene: Scene, view: LidarView) -> LidarReturns:
    """The rays of one sweep, from the scene to the returns, without training."""
    view = stages.render.correct(view, scene.calibration)
    with span("render_lidar"):
        (gaussians,) = stages.render.gather(stages, scene, (view,)).gaussians
        return stages.render.render_lidar(gaussians, view, list_pairs(stages, gaussians, view))


def failed(
    before: Tensor | None,  # [] not 0: an earlier step failed
    overflow: Sequence[Tensor | None],  # of the step's lists, as ListUse has it
) -> Tensor | None:  # [] the same with these lists; None if none has a capacity
    for short in overflow:
        if short is not None:
            before = short if before is None else torch.maximum(before, short)
    return before


def mean(
    values: list[Tensor],  # [] each, one or more
) -> Tensor:  # []
    return values[0] if len(values) == 1 else torch.stack(values).mean()


def _errors(exposed: tuple[Tensor, ...], targets: tuple[Tensor, ...], shots: tuple[ImageShot, ...]) -> list[Tensor]:
    """Mean square errors of images, over the pixels that are not masked."""
    triples = zip(exposed, targets, shots, strict=True)
    return [_error(seen.detach().clamp(0, 1), target, shot.view.camera.mask) for seen, target, shot in triples]


def _error(seen: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    whole = mse_loss(seen, target)
    return whole if mask is None else whole / seen_share(mask)
