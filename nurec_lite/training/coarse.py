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
from nurec_lite.splat.views import camera_view
from nurec_lite.training.shots import ImageShot, Shots
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState

FACTOR = 2
# `auto` reduces images of so many pixels or more, for this share of the run (benchmarks/LOG.md)
LARGE, AUTO_SHARE = 1_000_000, 0.5


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
        images = tuple(_reduced(state.plan.capture, shot) for shot in shots.images)
        return stages.feed.place(stages, state, replace(shots, images=images))


def _reduced(capture: Capture, shot: ImageShot) -> ImageShot:
    """The image where it is; its view on the host, which knows the frame's poses."""
    view = camera_view(capture, capture.images[shot.index], "cpu", FACTOR)
    return replace(shot, image=block_mean(shot.image, FACTOR), view=view)


def check_coarse(config: Config, capture: Capture) -> None:
    """Raises ConfigError for a camera whose images are too small to reduce."""
    for camera in capture.cameras if coarse_share(config, capture) else ():
        if min(camera.width, camera.height) < FACTOR:
            raise ConfigError(
                f"train.coarse is {config.train.coarse}, but {camera.name} has {camera.width}x{camera.height} pixels, which cannot be "
                "halved; leave train.coarse out"
            )
