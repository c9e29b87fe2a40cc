# SPDX-License-Identifier: Apache-2.0
"""Coarse images first: for the first part of a run (train.coarse) images are learned at half of their width and height, a quarter of the
pixels, so that steps cost less while they place large structures."""

from dataclasses import replace

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.ranges import span
from nurec_lite.bounds import AUTO
from nurec_lite.capture.images import block_mean
from nurec_lite.capture.types import Capture
from nurec_lite.config import Config
from nurec_lite.training.shots import FACTOR, ImageShot, Shots
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState

# `auto` reduces images of more pixels, for this share of the run: the best of three on a drive of 30 s (benchmarks/LOG.md)
LARGE, AUTO_SHARE = 1_000_000, 0.65


def coarse_share(config: Config, capture: Capture) -> float:
    """Share of the run with reduced images."""
    if config.train.coarse != AUTO:
        return float(config.train.coarse)
    return AUTO_SHARE if max((c.width * c.height for c in capture.cameras), default=0) > LARGE else 0.0


def resize(stages: Stages, state: TrainState, shots: Shots) -> Shots:
    """Reduces images after the feed: decoded, kept and prefetched images are whole, because only the step itself knows the run's
    progress."""
    if state.progress >= coarse_share(state.config, state.plan.capture) or not shots.images:
        return shots
    with span("resize"):
        return replace(shots, images=tuple(map(_reduced, shots.images)))


def _reduced(shot: ImageShot) -> ImageShot:
    """The image with its reduced view, which the feed made beside the whole one: made here, it would cost the host a millisecond a step."""
    assert shot.reduced is not None, "ShotPlan.coarse asks for reduced views"
    return replace(shot, image=block_mean(shot.image, FACTOR), view=shot.reduced, reduced=None)


def check_coarse(config: Config, capture: Capture) -> None:
    """Raises ConfigError for a camera whose images are too small to reduce."""
    for camera in capture.cameras if coarse_share(config, capture) else ():
        if min(camera.width, camera.height) < FACTOR:
            raise ConfigError(
                f"train.coarse is {config.train.coarse}, but {camera.name} has {camera.width}x{camera.height} pixels, which cannot be "
                "halved; leave train.coarse out"
            )
