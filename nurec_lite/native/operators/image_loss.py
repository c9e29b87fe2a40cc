# SPDX-License-Identifier: Apache-2.0
"""The operator image_loss: L1 and SSIM."""

from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.operators.shared import no_second_gradients


def register() -> None:
    torch.library.register_autograd("nurec_lite::image_loss", _image_gradients, setup_context=_keep_images)
    torch.library.register_autograd("nurec_lite::image_loss_backward", no_second_gradients)


def _keep_images(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, Tensor]) -> None:
    rendered, target, ctx.weight = inputs
    _, slopes = output
    ctx.mark_non_differentiable(slopes)
    ctx.set_materialize_grads(False)  # slopes have none: zeros for three maps would be a launch
    ctx.save_for_backward(rendered, target, slopes)


def _image_gradients(ctx: Any, d_loss: Tensor, _: None) -> tuple[Tensor | None, Tensor | None, None]:
    """The loss is symmetric: the gradient of the target is that of the other one, with both exchanged."""
    rendered, target, slopes = ctx.saved_tensors
    d_rendered = d_target = None
    with span("image_loss", within=BACKWARD):
        if ctx.needs_input_grad[0]:
            d_rendered = torch.ops.nurec_lite.image_loss_backward(rendered, target, ctx.weight, slopes, d_loss)
        if ctx.needs_input_grad[1]:
            _, slopes = torch.ops.nurec_lite.image_loss(target, rendered, ctx.weight)
            d_target = torch.ops.nurec_lite.image_loss_backward(target, rendered, ctx.weight, slopes, d_loss)
    return d_rendered, d_target, None
