# SPDX-License-Identifier: Apache-2.0
"""The operator over_sky: images over the environment map."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.operators.shared import no_second_gradients


def over_sky(
    features: Tensor,  # [R, 3]
    transmittance: Tensor,  # [R]
    sky: Tensor,  # [3, H, W] logits
    directions: Tensor,  # [R, 3] unit, world
    fallback: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],  # used if directions want a gradient
) -> Tensor:  # [R, 3]
    """Blends features over the sky, as nurec_lite.scene.sky.over_sky does, in one kernel. It gives directions no gradient."""
    if directions.requires_grad:
        return fallback(features, transmittance, sky, directions)
    return torch.ops.nurec_lite.over_sky(
        features.contiguous(), transmittance.contiguous(), sky.contiguous(), directions.contiguous()
    )


def register() -> None:
    torch.library.register_autograd("nurec_lite::over_sky", _sky_gradients, setup_context=_keep_sky)
    torch.library.register_autograd("nurec_lite::over_sky_backward", no_second_gradients)


def _keep_sky(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:])


def _sky_gradients(ctx: Any, d_image: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
    if ctx.needs_input_grad[3]:
        raise RuntimeError("over_sky gives directions no gradient; nurec_lite.scene.sky.over_sky, in plain torch, does")
    d_image = d_image.contiguous()
    with span("over_sky", within=BACKWARD):
        d_transmittance, d_sky = torch.ops.nurec_lite.over_sky_backward(*ctx.saved_tensors, d_image)
    return d_image, d_transmittance, d_sky, None
