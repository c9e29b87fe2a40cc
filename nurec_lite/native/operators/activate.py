# SPDX-License-Identifier: Apache-2.0
"""The operator activate: from stored parameters to values."""

from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.ranges import BACKWARD, span
from nurec_lite.native.operators.shared import no_second_gradients
from nurec_lite.scene.gaussians import LIDAR_VALUES, Gaussians


def activate(g: Gaussians) -> dict[str, Tensor]:
    """Activates Gaussians, as nurec_lite.scene.gaussians.activate does, in one kernel."""
    found = torch.ops.nurec_lite.activate(g.quats, g.log_scales, g.opacity_logits, g.lidar_logits)
    quats, scales, opacities, lidar, lidar_opacities = found
    return {
        "means": g.means,
        "quats": quats,
        "scales": scales,
        "opacities": opacities,
        "lidar": lidar,
        "lidar_opacities": lidar_opacities if g.lidar_logits.shape[1] > LIDAR_VALUES else opacities,
    }


def register() -> None:
    torch.library.register_autograd("nurec_lite::activate", _activate_gradients, setup_context=_keep_activated)
    torch.library.register_autograd("nurec_lite::activate_backward", no_second_gradients)


def _keep_activated(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    quats, _, _, lidar_logits, blocks = inputs
    assert blocks is None, "gradients of activations are those of all blocks"
    _, *values = output
    ctx.columns = lidar_logits.shape[1]
    ctx.set_materialize_grads(False)  # unused outputs get no gradient, as in plain torch
    ctx.save_for_backward(quats, *values)


def _activate_gradients(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    given = [None if grad is None else grad.contiguous() for grad in grads]
    with span("activate", within=BACKWARD):
        found = torch.ops.nurec_lite.activate_backward(*ctx.saved_tensors, ctx.columns, *given)
    d_unit, d_scales, d_opacities, *d_lidar = given
    asked = (d_unit is not None, d_scales is not None, d_opacities is not None, any(d is not None for d in d_lidar))
    return *(d if wanted else None for d, wanted in zip(found, asked, strict=True)), None
