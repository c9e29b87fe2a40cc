# SPDX-License-Identifier: Apache-2.0
"""The operator view_colour: colours of Gaussians as an eye sees them.

Letters: S static Gaussians and A dynamic ones, K nodes.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.operators.shared import no_second_gradients
from nurec_lite.scene.gaussians import SplitGaussians


class PlacementArrays(NamedTuple):
    """Places of Gaussians, and rotations of their nodes: K nodes."""

    still_means: Tensor  # [S, 3] metres, world
    means: Tensor  # [A, 3]
    rotations: Tensor  # [K, 4] unit, world from node
    node: Tensor  # [A] int64 row of these


def view_colour(
    gaussians: SplitGaussians,
    eye: Tensor,  # [3] world; it gets no gradient
    seen: Tensor | None = None,  # [N] uint8; None: all are seen
) -> Tensor:  # [N, 3] at least 0
    """Returns the colours of Gaussians as an eye sees them, in one kernel; 0 for those that are not seen: their harmonics are not read."""
    g = gaussians
    return torch.ops.nurec_lite.view_colour(placement_args(g), g.sh0, g.sh_rest, eye, seen, None)


def placement_args(gaussians: SplitGaussians) -> PlacementArrays:
    g = gaussians
    return PlacementArrays(g.still_means, g.means, g.rotations, g.nodes)


def view_directions(
    means: Tensor,  # [N, 3] world, where they are of static Gaussians
    eyes: Tensor,  # [V, 3] world
    blocks: Tensor,  # [1 + blocks] int32 as by visible_blocks
    still: int,  # so many of the first Gaussians are static
    directions: Tensor,  # [V, N, 3]
) -> None:
    """Writes unit vectors from each eye to the static Gaussians of these blocks, as view_colour_rank1 has them. On CUDA alone."""
    torch.ops.nurec_lite.view_directions(means, eyes, blocks, still, directions)


def register() -> None:
    torch.library.register_autograd("nurec_lite::view_colour", _colour_gradients, setup_context=_keep_seen)
    torch.library.register_autograd("nurec_lite::view_colour_backward", no_second_gradients)
    torch.library.register_autograd("nurec_lite::view_colour_rank1", no_second_gradients)


def _keep_seen(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    placements, *others, _, blocks = inputs  # the gradient of an unseen colour is 0
    assert blocks is None, "gradients of colours are those of all blocks"
    ctx.save_for_backward(*placements, *others)


def _colour_gradients(ctx: Any, d_colour: Tensor) -> tuple[Any, ...]:
    *placements, sh, rest, eye = ctx.saved_tensors
    if ctx.needs_input_grad[3]:
        raise RuntimeError("view_colour gives the eye no gradient; nurec_lite.splat.render.local_directions does")
    with span("view_colour", within=BACKWARD):
        *d_placed, d_sh, d_rest = torch.ops.nurec_lite.view_colour_backward(
            placements, sh, rest, eye, d_colour.contiguous()
        )
    return [*d_placed, None], d_sh, None if rest is None else d_rest, None, None, None
