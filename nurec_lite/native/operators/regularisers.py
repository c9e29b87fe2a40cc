# SPDX-License-Identifier: Apache-2.0
"""The operator regularisers: means over Gaussians."""

from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.operators.shared import no_second_gradients


def register() -> None:
    torch.library.register_autograd("nurec_lite::regularisers", _regulariser_gradients, setup_context=_keep_regularised)
    torch.library.register_autograd("nurec_lite::regularisers_backward", no_second_gradients)


def _keep_regularised(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs)


def _regulariser_gradients(ctx: Any, *d_terms: Tensor | None) -> tuple[Tensor | None, ...]:
    """Gradient of a mean: one number for all Gaussians. Code that adds it to other gradients reads that number
    alone."""
    *values, blocks = ctx.saved_tensors
    opacities, lidar_opacities, scales = values
    with span("regularisers", within=BACKWARD):
        d_opacities, d_lidar, d_scales = torch.ops.nurec_lite.regularisers_backward(*values, *d_terms, blocks)
    d_opacity, d_scale, d_tie = d_terms
    sizes = None if d_scale is None else d_scales.expand_as(scales)
    if d_opacity is None and d_tie is None:
        return None, None, sizes, None
    return d_opacities.expand_as(opacities), None if lidar_opacities is None else d_lidar, sizes, None
