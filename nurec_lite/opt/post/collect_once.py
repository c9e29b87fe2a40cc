# SPDX-License-Identifier: Apache-2.0
"""collect_once: a step collects the scene once, for the times of all its sensors together.

Idea: the baseline calls `collect_gaussian_parameters` for the camera, again for the lidar, and activates all Gaussians a third time for
the regularisers. One call with two query times interpolates all tracks once and activates once; everybody shares the result.
Source: NVIDIA's Nsight post on Omniverse NuRec, where the collection dominated the forward pass and was called several times in it.
Gain, code before and after, limits: docs/options/collect_once.md.
Limits: world-space means and rotations of both times are alive together. Class exact: the same operations on the same numbers; gradients
are added up in another order.
"""

from collections.abc import Sequence

from nurec_lite.base.ranges import span
from nurec_lite.scene.scene import Scene
from nurec_lite.training.baseline import collected
from nurec_lite.training.stages import AnyView, Stages
from nurec_lite.training.state import Gathered

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()


def unavailable(stages: Stages) -> str | None:
    return None


def gather(stages: Stages, scene: Scene, views: Sequence[AnyView]) -> Gathered:
    """All views together."""
    with span("activate"):
        activated = stages.render.activate(scene.gaussians)
    return Gathered(collected(stages, scene, views, activated), activated)


def apply(stages: Stages) -> Stages:
    return stages.swap("collect_once", gather=gather)
