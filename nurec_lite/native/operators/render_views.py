# SPDX-License-Identifier: Apache-2.0
"""The operators render_views and render_views_train: several views in one launch a stage. On CUDA alone. Gradients:
nurec_lite/native/batched_backward.py.

Letters: V views, S static Gaussians and A dynamic ones, N = S + A; R rays of all views, P pixels of an image; K nodes.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor


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
    numbers: Tensor  # [H] int32 instance of each row: N v + i of Gaussian i as view v sees it
    counts: Tensor  # [2] int64 rows that are filled, and entries that all lists need
    first: Tensor  # this and the next three as Segments has them
    list_index: Tensor
    fields: Tensor
    rows: Tensor  # [H, 16] or [H, 20]


def register() -> None:
    for name in ("render_views", "render_views_train"):
        torch.library.register_autograd(f"nurec_lite::{name}", _no_gradients)


def _no_gradients(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
    raise RuntimeError("render_views keeps nothing for gradients; the stages render_camera and render_lidar have them")
