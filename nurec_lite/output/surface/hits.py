# SPDX-License-Identifier: Apache-2.0
"""Ends of rendered rays of the static scene, from where the drive's sensors were."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from nurec_lite.capture.types import Capture
from nurec_lite.evaluation.measure import completed
from nurec_lite.output.surface.fusion import Hits
from nurec_lite.scene.edit import ALL_ACTORS, without_actors
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.corrected import corrected
from nurec_lite.splat.views import CameraView, LidarView, camera_view, lidar_view
from nurec_lite.training.batches import render_views_in_batches
from nurec_lite.training.stages import Stages

MOST_VIEWS = 150  # of cameras, and as many of lidars, evenly over the drive
MOST_RAYS = 60_000  # of a view, evenly over it
FARTHEST = 50.0  # metres: rendered depth beyond tells little
OPAQUE = 0.9  # least opacity of a pixel with a depth that counts
Frame = TypeVar("Frame")
AnyView = TypeVar("AnyView", CameraView, LidarView)


def hits_of(stages: Stages, scene: Scene, capture: Capture) -> Iterator[Hits]:
    """The ends of rays of cameras and, if the renderer draws them, of lidars; actors are left out."""
    static = completed(without_actors(scene, (ALL_ACTORS,)), capture)
    device = scene.sky.device
    views = [camera_view(capture, frame, device) for frame in _some(capture.images)]
    for _, view, image in render_views_in_batches(stages, static, ((None, view) for view in views)):
        solid = image.opacity >= OPAQUE
        ranges = torch.where(solid, image.distance / image.opacity.clamp(min=OPAQUE), 0)
        yield _hits(static, view, ranges.flatten(), image.colour.clamp(0, 1).flatten(0, 1))
    sweeps = _some(capture.sweeps) if stages.renders_lidar else []
    turns = [lidar_view(capture, frame, frame.load(), device) for frame in sweeps]
    for _, turn, returns in render_views_in_batches(stages, static, ((None, turn) for turn in turns)):
        yield _hits(static, turn, torch.where(returns.drop <= 0.5, returns.median, 0), None)


def _some(frames: Sequence[Frame]) -> list[Frame]:
    step = max(1, -(-len(frames) // MOST_VIEWS))
    return list(frames[::step])


def _hits(scene: Scene, view: AnyView, ranges: Tensor, colours: Tensor | None) -> Hits:
    """The hits of a view on the host, fewer than it has rays if these are many."""
    seen = torch.nonzero((ranges > 0) & (ranges <= FARTHEST)).squeeze(1)
    seen = seen[:: max(1, -(-len(seen) // MOST_RAYS))]
    true = corrected(view, scene.calibration)
    rays, centre = true.rays(), true.centre()
    origins, directions = rays.origins[seen].double() + centre.double(), rays.directions[seen].double()
    hits = Hits(origins, directions, ranges[seen], None if colours is None else colours[seen])
    return replace(hits, **{k: v.cpu() for k, v in vars(hits).items() if v is not None})
