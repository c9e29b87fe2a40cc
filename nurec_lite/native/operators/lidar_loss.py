# SPDX-License-Identifier: Apache-2.0
"""The operator lidar_loss: range, intensity and ray drop."""

from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.operators.shared import no_second_gradients


def register() -> None:
    torch.library.register_autograd("nurec_lite::lidar_loss", _lidar_gradients, setup_context=_keep_lidar)
    torch.library.register_autograd("nurec_lite::lidar_loss_backward", no_second_gradients)


def _keep_lidar(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.with_targets = inputs
    *_, counts = output
    ctx.mark_non_differentiable(counts)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, counts)


def _lidar_gradients(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    *tensors, counts = ctx.saved_tensors
    d_range, d_intensity, d_drop, _ = grads
    with span("lidar_loss", within=BACKWARD):
        d_distance, d_features, d_transmittance = torch.ops.nurec_lite.lidar_loss_backward(
            *tensors, ctx.with_targets, counts, d_range, d_intensity, d_drop
        )
    asked = (d_range is not None, d_intensity is not None or d_drop is not None, d_drop is not None)
    found = zip((d_distance, d_features, d_transmittance), asked, strict=True)
    return *(d if wanted else None for d, wanted in found), *[None] * 5
