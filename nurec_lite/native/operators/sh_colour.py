# SPDX-License-Identifier: Apache-2.0
"""The operator sh_colour: colours of spherical harmonics."""

from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.operators.shared import keep_inputs, no_second_gradients
from nurec_lite.scene.gaussians import AnyGaussians, SplitGaussians


def sh_colour(
    gaussians: AnyGaussians,
    directions: Tensor,  # [N, 3] unit
) -> Tensor:  # [N, 3] at least 0
    """Returns the colours of Gaussians seen along these directions."""
    g = gaussians
    bands = (g.sh0, g.sh_rest) if isinstance(g, SplitGaussians) else (g.sh, None)
    return torch.ops.nurec_lite.sh_colour(*bands, directions)


def register() -> None:
    torch.library.register_autograd("nurec_lite::sh_colour", _sh_gradients, setup_context=keep_inputs)
    torch.library.register_autograd("nurec_lite::sh_colour_backward", no_second_gradients)


def _sh_gradients(ctx: Any, d_colour: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
    sh, rest, directions = ctx.saved_tensors
    with span("sh_colour", within=BACKWARD):
        d_sh, d_rest, d_directions = torch.ops.nurec_lite.sh_colour_backward(
            sh, rest, directions, d_colour.contiguous()
        )
    return d_sh, None if rest is None else d_rest, d_directions
