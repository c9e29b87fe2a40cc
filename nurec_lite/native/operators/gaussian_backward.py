# SPDX-License-Identifier: Apache-2.0
"""The arguments of the operator gaussian_backward: the backward epilogue of all views of a step. On CUDA alone.

Letters: S static Gaussians and A dynamic ones, N = S + A; V views, K nodes.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from nurec_lite.native.operators.shared import no_second_gradients


class BackwardScene(NamedTuple):
    """Inputs of a scene's backward epilogue: S static and A moving Gaussians, N = S + A, at the times of V views."""

    means: Tensor  # [N, 3] metres, of which the first S are read
    quats: Tensor  # [N, 4] unit, of which the first S are read
    scales: Tensor  # [N, 3]
    opacities: Tensor  # [N] for cameras
    lidar_opacities: Tensor  # [N] for lidars, or [0]: they have none of their own
    lidar: Tensor  # [N, 2]
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


def register() -> None:
    torch.library.register_autograd("nurec_lite::render_backward_accumulate", no_second_gradients)
    torch.library.register_autograd("nurec_lite::gaussian_backward", no_second_gradients)
