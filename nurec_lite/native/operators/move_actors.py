# SPDX-License-Identifier: Apache-2.0
"""The operator move_actors: Gaussians at the poses of their tracks.

Letters: A Gaussians; K tracks, M keyframes, Q query times.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.operators.shared import no_second_gradients


class ActorArrays(NamedTuple):
    """Gaussians in the frames of their tracks, keyframes, and when they are asked for."""

    means: Tensor  # [A, 3] metres
    quats: Tensor  # [A, 4] unit
    starts: Tensor  # [K + 1] int64 rows of track k: starts[k] to starts[k + 1]
    key_offsets: Tensor  # [K + 1] int64 rows of keyframes, as above; a track without any is at the origin
    key_times: Tensor  # [M] float64 seconds, ascending in each track
    translations: Tensor  # [M, 3] metres
    quaternions: Tensor  # [M, 4] of any length
    times: Tensor  # [Q] float64 seconds


class MovedGrads(NamedTuple):
    """Gradients of the moved Gaussians."""

    d_means: Tensor  # [Q, A, 3]
    d_quats: Tensor  # [Q, A, 4]
    d_velocities: Tensor  # [Q, A, 3]
    d_rotations: Tensor  # [Q, K, 4]


def register() -> None:
    torch.library.register_autograd("nurec_lite::move_actors", _move_gradients, setup_context=_keep_actors)
    torch.library.register_autograd("nurec_lite::move_actors_backward", no_second_gradients)


def _keep_actors(ctx: Any, inputs: tuple[list[Tensor]], output: Any) -> None:
    ctx.save_for_backward(*inputs[0])


def _move_gradients(ctx: Any, *grads: Tensor) -> list[Tensor | None]:
    d_moved = MovedGrads(*(grad.contiguous() for grad in grads))
    with span("move_actors", within=BACKWARD):
        found = torch.ops.nurec_lite.move_actors_backward(ActorArrays(*ctx.saved_tensors), d_moved)
    d_means, d_quats, d_translations, d_quaternions = found
    return [d_means, d_quats, None, None, None, d_translations, d_quaternions, None]
