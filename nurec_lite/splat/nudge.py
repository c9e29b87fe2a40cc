# SPDX-License-Identifier: Apache-2.0
"""The gradient of a view's pose, from those of the Gaussians that it sees: moving the sensor is moving all of them the other way.

So no kernel has to give rays a gradient. With r = mu - centre, for a small rotation w and translation v of the sensor in the world's axes

    mu' = mu - w x r - v,   q' = (1, -w / 2) q
    dL/dv = -sum dL/dmu,    dL/dw = -sum r x dL/dmu - 1/2 sum (q0 dq - dq0 q + q x dq)

to first order, which is all that a gradient asks for. Left out: that rays of a view have origins apart by what the sensor travels
meanwhile, and that colours depend on where they are seen from.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nurec_lite.scene.gaussians import AnyGaussians, PartedGaussians

Felt = Callable[[Tensor, list[Tensor], list[Tensor]], Tensor]
_WHOLE, _PARTED = ("means", "quats"), ("still_means", "still_quats", "means", "quats")


def nudged(
    gaussians: AnyGaussians,
    nudge: Tensor | None,  # [6] w and v of the sensor that looks, already in its poses; None: its poses are given
    centre: Tensor,  # [3] about which it turns
    felt: Felt | None = None,  # the gradient of the nudge; None: the one below
) -> AnyGaussians:
    """The very same Gaussians; whatever gradient their means and rotations get, the nudge gets, too."""
    if nudge is None or not nudge.requires_grad:
        return gaussians
    names = _PARTED if isinstance(gaussians, PartedGaussians) else _WHOLE
    same = _Nudged.apply(felt or felt_by_torch, nudge, centre, *(getattr(gaussians, name) for name in names))
    values: dict[str, Any] = dict(zip(names, same, strict=True))
    return replace(gaussians, **values)


class _Nudged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, felt: Felt, nudge: Tensor, centre: Tensor, *placed: Tensor) -> tuple[Tensor, ...]:
        ctx.felt = felt
        ctx.save_for_backward(centre, *placed)
        return tuple(tensor.view_as(tensor) for tensor in placed)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        centre, *placed = ctx.saved_tensors
        return None, ctx.felt(centre, placed, list(grads)), None, *grads


def felt_by_torch(
    centre: Tensor,  # [3]
    placed: list[Tensor],  # means [N, 3] and unit quaternions [N, 4], of one set of Gaussians or two
    grads: list[Tensor],  # as above
) -> Tensor:  # [6] dL/dw, dL/dv
    """Pose gradient by the formulas above."""
    found = [_felt(centre, *placed[k : k + 2], *grads[k : k + 2]) for k in range(0, len(placed), 2)]
    return torch.stack(found).sum(0)


def _felt(centre: Tensor, means: Tensor, quats: Tensor, d_means: Tensor, d_quats: Tensor) -> Tensor:
    torque = _axial((means - centre).T @ d_means)
    q = quats.T @ d_quats
    spin = q[0, 1:] - q[1:, 0] + _axial(q[1:, 1:])
    return -torch.cat([torque + 0.5 * spin, d_means.sum(0)])


def _axial(
    m: Tensor,  # [3, 3] sum of a b^T
) -> Tensor:  # [3] sum of a x b
    return torch.stack([m[1, 2] - m[2, 1], m[2, 0] - m[0, 2], m[0, 1] - m[1, 0]])
