# SPDX-License-Identifier: Apache-2.0
"""The arguments of the operator gaussian_backward: the backward epilogue of all views of a step. On CUDA alone.

Letters: S static Gaussians and A dynamic ones, N = S + A; V views, K nodes.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from nurec_lite.native.operators.shared import GaussianArrays, no_second_gradients

LIDAR_FEATURES = 2  # intensity and ray drop


class BackwardScene(NamedTuple):
    """Inputs of a scene's backward epilogue: S static and A moving Gaussians, N = S + A, at the times of V views."""

    means: Tensor  # [N, 3] or [S, 3] metres; the first S are read
    quats: Tensor  # [N, 4] or [S, 4] unit; the first S are read
    scales: Tensor  # [N, 3]
    opacities: Tensor  # [N] for cameras
    lidar_opacities: Tensor  # [N] for lidars, or [0]: they have none of their own
    lidar: Tensor  # [N, 2], or [0, 2] where gradients are those of activations
    stored_quats: Tensor  # [N, 4] of any length, or [0, 4]: gradients are those of activations


class MovedArrays(NamedTuple):
    """Moving Gaussians in the world."""

    means: Tensor  # [V, A, 3]
    quats: Tensor  # [V, A, 4] unit
    velocities: Tensor  # [V, A, 3]
    rotations: Tensor  # [V, K, 4] unit, of K nodes


class UpstreamGrads(NamedTuple):
    """Gradients that come by other ways than rays."""

    still_means: Tensor | None  # [S, 3]
    still_quats: Tensor | None  # [S, 4]
    scales: Tensor | None  # [3 N], or [1] that stands for all, as of the next three
    opacities: Tensor | None  # [N]
    lidar_opacities: Tensor | None  # [N]
    lidar: Tensor | None  # [2 N]


def view_gradients(
    gaussians: GaussianArrays,
    moments: Tensor,  # [grad_accum_floats(N)] of the view
    view: Tensor,  # [84]
    by_lidar: bool,
    moving: bool,  # rays have origins or delays
) -> tuple[GaussianArrays, Tensor]:
    """Returns the gradients of the Gaussians of a single view, and of a lidar's features [N, 2]."""
    g, none = gaussians, gaussians.scales.new_empty
    scene = BackwardScene(
        g.still_means, g.still_quats, g.scales, g.opacities, none(0), none(0, LIDAR_FEATURES), none(0, 4)
    )
    moved = MovedArrays(g.means[None], g.quats[None], g.velocities[None], none(1, 0, 4))
    found, d_moved, _ = torch.ops.nurec_lite.gaussian_backward(
        scene, moved, [view], [moments], [by_lidar], [moving], [False], [None] * 6, [None] * 4,
        [True, True, True, True, False, by_lidar], 0, False,
    )  # fmt: skip
    means, quats, scales, opacities, _, lidar = found
    s, (d_means, d_quats, d_velocities, _) = len(g.still_means), (d[0] for d in d_moved)
    return GaussianArrays(means[:s], quats[:s], d_means, d_quats, d_velocities, scales, opacities), lidar


def register() -> None:
    torch.library.register_autograd("nurec_lite::gaussian_backward", no_second_gradients)
