# SPDX-License-Identifier: Apache-2.0
"""The operator slice_grid: bilateral grids of images."""

from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.operators.shared import keep_inputs, no_second_gradients
from nurec_lite.scene.bilateral import sliced


def slice_grid(
    grid: Tensor,  # [12, Z, Y, X]
    image: Tensor,  # [H, W, 3]
) -> Tensor:  # [H, W, 3]
    """Applies a bilateral grid, as nurec_lite.scene.bilateral.sliced does, in one kernel."""
    if grid.dtype != torch.float32:
        return sliced(grid, image)
    return torch.ops.nurec_lite.slice_grid(grid.contiguous(), image.contiguous())


def register() -> None:
    torch.library.register_autograd("nurec_lite::slice_grid", _grid_gradients, setup_context=keep_inputs)
    torch.library.register_autograd("nurec_lite::slice_grid_backward", no_second_gradients)


def _grid_gradients(ctx: Any, d_sliced: Tensor) -> tuple[Tensor, Tensor]:
    with span("slice_grid", within=BACKWARD):
        found: tuple[Tensor, Tensor] = torch.ops.nurec_lite.slice_grid_backward(
            *ctx.saved_tensors, d_sliced.contiguous()
        )
    return found
