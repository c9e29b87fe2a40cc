# SPDX-License-Identifier: Apache-2.0
"""Looking at a scene without training it: one view after another, or as many at once as the stages render together."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar, overload

import torch

from nurec_lite.scene.scene import Scene
from nurec_lite.splat.render import CameraImage, LidarReturns
from nurec_lite.splat.views import CameraView, LidarView
from nurec_lite.training.stages import AnyView, Stages
from nurec_lite.training.step import render_frame, render_sweep

Shot = TypeVar("Shot")


def render_views(stages: Stages, scene: Scene, views: Sequence[AnyView]) -> tuple[CameraImage | LidarReturns, ...]:
    """Renders one view after another."""
    return tuple(
        render_frame(stages, scene, view) if isinstance(view, CameraView) else render_sweep(stages, scene, view)
        for view in views
    )


@overload
def render_views_in_batches(
    stages: Stages, scene: Scene, shots: Iterable[tuple[Shot, CameraView]]
) -> Iterator[tuple[Shot, CameraView, CameraImage]]: ...


@overload
def render_views_in_batches(
    stages: Stages, scene: Scene, shots: Iterable[tuple[Shot, LidarView]]
) -> Iterator[tuple[Shot, LidarView, LidarReturns]]: ...


def render_views_in_batches(
    stages: Stages,
    scene: Scene,
    shots: Iterable[tuple[Any, Any]],  # anything that belongs to a view, and the view
) -> Iterator[tuple[Any, Any, Any]]:
    """The render of each view, in their order. Takes as many shots at a time as are rendered together."""
    coming = iter(shots)
    at_once = 1 if stages.plan is None else stages.plan.max_views
    while some := list(islice(coming, at_once)):
        with torch.no_grad():
            found = stages.render.render_views(stages, scene, [view for _, view in some])
        yield from ((shot, view, one) for (shot, view), one in zip(some, found, strict=True))
