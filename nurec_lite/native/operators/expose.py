# SPDX-License-Identifier: Apache-2.0
"""The operator expose: gain, offset and vignetting of images."""

from typing import Any

import torch
from torch import Tensor

from nurec_lite.native.operators.shared import no_second_gradients
from nurec_lite.scene.scene import exposed_by


def expose(
    image: Tensor,  # [H, W, 3]
    log_gain: Tensor,  # [3]
    offset: Tensor,  # [3]
    vignetting: Tensor | None,  # [3]
) -> Tensor:  # [H, W, 3]
    """Exposes an image, as nurec_lite.scene.scene.exposed_by does, in one kernel."""
    if image.dtype != torch.float32:
        return exposed_by(image, log_gain, offset, vignetting)
    few = (None if t is None else t.contiguous() for t in (log_gain, offset, vignetting))
    return torch.ops.nurec_lite.expose(image.contiguous(), *few)


def register() -> None:
    torch.library.register_autograd("nurec_lite::expose", _exposure_gradients, setup_context=_keep_exposed)
    torch.library.register_autograd("nurec_lite::expose_backward", no_second_gradients)


def _keep_exposed(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    image, log_gain, _, vignetting = inputs
    ctx.save_for_backward(image, log_gain, vignetting)


def _exposure_gradients(ctx: Any, d_exposed: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    image, log_gain, vignetting = ctx.saved_tensors
    d_image, d_log_gain, d_offset, d_vignetting = torch.ops.nurec_lite.expose_backward(
        image, log_gain, vignetting, d_exposed.contiguous()
    )
    return d_image, d_log_gain, d_offset, None if vignetting is None else d_vignetting
