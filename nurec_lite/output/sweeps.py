# SPDX-License-Identifier: Apache-2.0
"""Sweeps that a scene answers, for frames of any lidar."""

from collections.abc import Iterable, Iterator
from dataclasses import fields

import torch

from nurec_lite.capture.types import Capture, SweepFrame
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.output.points import RenderedSweep
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.render import LidarReturns
from nurec_lite.splat.views import LidarView, lidar_view
from nurec_lite.training.batches import render_views_in_batches
from nurec_lite.training.stages import Stages


def rendered_sweeps(
    stages: Stages,
    scene: Scene,
    capture: Capture,
    frames: Iterable[SweepFrame],
    device: torch.device | str = "cpu",  # of the result
) -> Iterator[RenderedSweep]:
    """All rays of each frame."""
    for (frame, rays), _, returns in render_views_in_batches(stages, scene, _views(scene, capture, frames)):
        there = LidarReturns(*(getattr(returns, f.name).to(device) for f in fields(LidarReturns)))
        yield RenderedSweep(frame, capture.lidar(frame.sensor), rays.to(device), there, capture.origin)


def _views(
    scene: Scene, capture: Capture, frames: Iterable[SweepFrame]
) -> Iterator[tuple[tuple[SweepFrame, Sweep], LidarView]]:
    for frame in frames:
        rays = frame.load()
        yield (frame, rays), lidar_view(capture, frame, rays, scene.sky.device)
