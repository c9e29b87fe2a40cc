# SPDX-License-Identifier: Apache-2.0
"""Views of a step that are rendered in one launch or one after another, and the scene's learning by either way
(nurec_lite/native/batched_views.py, the option batch)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from look_scenes import View
from parity import OUTPUTS
from torch import Tensor
from warp_tile_scenes import PLAN

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.native.bind import native_stages
from nurec_lite.opt.lab.batch import OneLaunch
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.view_row import view_row
from nurec_lite.splat.views import CameraView
from nurec_lite.training.stages import Stages
from nurec_lite.training.step import render_all

Render = Callable[..., Any]
LOOP = render_all


def one_launch(*given: Any) -> Any:
    """Fails where it would go on by the loop."""

    def none(*_: Any) -> Any:
        raise AssertionError("these views were rendered one after another")

    return OneLaunch(none)(*given)


def stages_for(device: torch.device, part: int = 8, **more: Any) -> Stages:
    """Stages with warp tiles, whose lists are cut into segments, and with Gaussians that views share."""
    plan = replace(PLAN, segment_entries=part, **more)
    native = replace(base_stages("native", device).compiled(plan, native_stages), device="cuda")
    return build_stages({"fused_interp": {}, "collect_once": {}}, native)


@dataclass(frozen=True)
class Learned:
    """Outputs of each view by name, gradients by the names of parameters, and how long the lists are."""

    values: list[dict[str, Tensor]]
    gradients: dict[str, Tensor]
    lists: list[Any]


def learn(
    render: Render,
    stages: Stages,
    scene: Scene,
    views: Sequence[View],
    weights: Sequence[dict[str, Tensor]] | None = None,  # of outputs; None: random ones
    with_pose_delta: bool = False,
    distance: bool = True,  # whether anything depends on it
) -> Learned:
    """Parameters -> collect -> render -> weighted sum -> backward."""
    leaves = {k: v.detach().clone().requires_grad_() for k, v in scene.parameters().items() if k != "exposure"}
    scene = replace(
        scene,
        gaussians=replace(scene.gaussians, **{k: leaves[k] for k in Gaussians.trained()}),
        **{k: leaves[k] for k in ("sky", "track_translations", "track_quaternions")},
    )
    if with_pose_delta:
        pose_deltas = [torch.zeros(6, device=v.T_world_sensor_start.device, requires_grad=True) for v in views]
        views = [replace(view, pose_delta=pose_delta) for view, pose_delta in zip(views, pose_deltas, strict=True)]
        leaves |= {f"pose delta {k}": pose_delta for k, pose_delta in enumerate(pose_deltas)}
    for _ in range(2):  # once more, as then it is known which Gaussians stand still
        gathered = stages.render.gather(stages, scene, views)
    found = render(stages, scene, views, gathered.gaussians)
    values = [
        {name: getattr(seen, name) for name in OUTPUTS[type(v)]} for (seen, _), v in zip(found, views, strict=True)
    ]
    weights = random_weights(values) if weights is None else weights
    terms = [
        (w.to(one[name]).view_as(one[name]) * one[name]).sum()
        for one, of_view in zip(values, weights, strict=True)
        for name, w in of_view.items()
        if distance or name != "distance"
    ]
    loss = torch.stack(terms).sum() + 0 * sum(leaf.sum() for leaf in leaves.values())
    loss.backward()
    gradients = {k: torch.zeros_like(v) if v.grad is None else v.grad for k, v in leaves.items()}
    medians = [{"median": seen.median} if hasattr(seen, "median") else {} for seen, _ in found]
    values = [{k: v.detach() for k, v in (one | m).items()} for one, m in zip(values, medians, strict=True)]
    return Learned(values, gradients, [listed for _, listed in found])


def random_weights(values: Sequence[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
    """Distances are of a few metres, so that all outputs matter alike."""
    seed = torch.Generator().manual_seed(11)
    return [
        {k: torch.randn(v.shape, generator=seed) / (6 if k == "distance" else 1) for k, v in one.items()}
        for one in values
    ]


def by_other_cameras(views: Sequence[View]) -> list[View]:
    """Each of a camera of its own, with images of one size."""
    made: list[View] = []
    for k, view in enumerate(views):
        assert isinstance(view, CameraView)
        camera = replace(view.camera, name=f"c{k}", fx=view.camera.fx * (1 + 0.2 * k), cx=view.camera.cx - k)
        moved = replace(view, camera=camera)
        made.append(replace(moved, row=view_row(moved).to(view.T_world_sensor_start.device)))
    return made
