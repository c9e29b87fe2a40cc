# SPDX-License-Identifier: Apache-2.0
"""collect_once: what a step needs of the scene is collected once, for the times of all its sensors together.

Idea: the baseline calls `collect_gaussian_parameters` for the camera, again for the lidar, and activates all Gaussians a third time for
the regularisers. One call with two query times interpolates all tracks once and activates once; everybody shares the result.
Source: NVIDIA's Nsight post on Omniverse NuRec, where the collection dominated the forward pass and was called several times in it.
Gain: collecting 9.2 -> 6.8 ms of a step of 56.2 ms, which becomes 51.2 ms; with fused_interp 1.7 -> 1.1 ms and 43.8 -> 40.1 ms (H200,
KITTI drive 0009, 1 M Gaussians). More in docs/story-1-timeline.md.
Limits: world-space means and rotations of both times are alive together. Class exact: the same operations on the same numbers; gradients
are added up in another order.
"""

from nurec_lite.base.ranges import span
from nurec_lite.capture.loader import Batch
from nurec_lite.scene.gaussians import activate
from nurec_lite.training.stages import Stages, collected, learn, render_frame, render_sweep
from nurec_lite.training.state import StepResult, TrainState

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()


def unavailable(stages: Stages) -> str | None:
    return None


def step(stages: Stages, state: TrainState, batch: Batch) -> StepResult:
    """`train_step` with one collection."""
    with span("to_device"):
        batch, camera, lidar = stages.to_device(state, batch)
    with span("activate"):
        local = activate(state.scene.gaussians)
    times = (camera.time_mid,) if lidar is None else (camera.time_mid, lidar.time_mid)
    gaussians = collected(stages, state.scene, times, local)
    rendered = render_frame(stages, state.scene, camera, gaussians[0])
    returns = None if lidar is None else render_sweep(stages, state.scene, lidar, gaussians[1])
    return learn(stages, state, batch, rendered, returns, local)


def apply(stages: Stages) -> Stages:
    return stages.swap("collect_once", step=step)
