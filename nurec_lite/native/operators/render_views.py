# SPDX-License-Identifier: Apache-2.0
"""The operators render_views and render_views_train: several views in one launch a stage. On CUDA alone.

Letters: V views, S static Gaussians and A dynamic ones, N = S + A; R rays of all views, P pixels of an image; K nodes.
"""

from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.operators.shared import Outputs, given_of, no_second_gradients


class SceneArrays(NamedTuple):
    """A scene at the times of V views, as one kind of sensor sees it; world, metres."""

    still_means: Tensor  # [S, 3]
    still_quats: Tensor  # [S, 4] unit, wxyz
    means: Tensor  # [V, A, 3]
    quats: Tensor  # [V, A, 4]
    velocities: Tensor  # [V, A, 3] metres a second
    scales: Tensor  # [N, 3]
    opacities: Tensor  # [S]
    moving_opacities: Tensor  # [V, A]
    frames: Tensor  # [V, A, 4] unit, world from node
    sh0: Tensor  # [N, 1, 3]
    sh_rest: Tensor  # [N, S_h - 1, 3]
    lidar: Tensor  # [N, 2]


class SensorRays(NamedTuple):
    """Rays of V views of a sensor: the P pixels of an image, or the R rays of all sweeps. Views of several cameras
    bring their pixels each, R = V P."""

    directions: Tensor  # [P, 3] or [R, 3] unit, sensor frame
    fractions: Tensor  # [P] or [R] 0 at the start of a view, 1 at its end; or [1] of all
    edges: Tensor  # [bands - 1] radians of elevation, ascending, of a lidar
    begins: Tensor  # [V + 1] int64 first ray of each sweep, of a lidar


class NodeRotations(NamedTuple):
    """Rotations of the K nodes of moving Gaussians at the times of V views."""

    rotations: Tensor  # [V, K, 4] unit, world from node
    node: Tensor  # [A] int64 row of these, a Gaussian's


class SavedViews(NamedTuple):
    """Results of the forward pass that the backward pass reads, for several views: A lists, P of the R rays each (32 of
    images, 16 of sweeps), L entries, H rows of Gaussians that a view may see, and the segments of lists."""

    directions: Tensor  # [R, 3] unit, world
    delays: Tensor  # [R] seconds after its middle
    table: Tensor  # [A, P] int64 rays of a list, -1 where it has fewer
    offsets: Tensor  # [A + 1] int64
    gaussians: Tensor  # [L] int32 rows, nearest first in each list
    row_index: Tensor  # [V N] int32 row of Gaussian i as view v sees it; -1: it has none
    first: Tensor  # this and the next three as Segments has them
    list_index: Tensor
    fields: Tensor
    rows: Tensor  # [H, 16] or [H, 20]


def register() -> None:
    torch.library.register_autograd("nurec_lite::render_views", _no_gradients)
    torch.library.register_autograd("nurec_lite::render_views_train", _view_gradients, setup_context=_keep_views)
    torch.library.register_autograd("nurec_lite::render_views_train_backward", no_second_gradients)


def _keep_views(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    scene, turned, views, _, _, targets, size, _, moving, ctx.length, *_ = inputs
    outputs, others, kept = output[:3], output[3:5], output[5:]
    ctx.moving, ctx.size = moving, size
    ctx.mark_non_differentiable(*others, *kept)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*scene, *turned, views, targets, *outputs, *kept)


def _view_gradients(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    saved = iter(ctx.saved_tensors)
    scene, turned, views, targets, outputs, kept = (
        SceneArrays(*islice(saved, 12)), NodeRotations(*islice(saved, 2)), next(saved), next(saved),
        Outputs(*islice(saved, 3)), SavedViews(*saved),
    )  # fmt: skip
    wants_pose_delta, given = ctx.needs_input_grad[3], given_of(grads, outputs)
    with span("render", within=BACKWARD):
        d_scene, d_rotations, d_pose_deltas = torch.ops.nurec_lite.render_views_train_backward(
            scene, turned, views, targets, ctx.moving, ctx.length, kept, outputs, *given, wants_pose_delta
        )
    unasked = {"frames", "lidar"} if ctx.size else {"frames", "sh0", "sh_rest"}
    d_each = [None if name in unasked else d for name, d in zip(SceneArrays._fields, d_scene, strict=True)]
    turns = [d_rotations if ctx.size else None, None]
    no_size: list[None] | None = None if ctx.size else []  # torch takes an empty list for one of tensors
    return d_each, turns, None, d_pose_deltas if wants_pose_delta else None, [None] * 4, None, no_size, *[None] * 5


def _no_gradients(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
    raise RuntimeError("render_views keeps nothing for gradients; the stages render_camera and render_lidar have them")
