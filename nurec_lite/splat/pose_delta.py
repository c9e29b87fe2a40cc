# SPDX-License-Identifier: Apache-2.0
"""The gradient of a pose delta, a small rotation w and translation v of a view's sensor, from the gradients of its Gaussians: moving the
sensor moves all of them the other way. So no kernel has to give rays a gradient. With r = mu - centre, in the world's axes

    mu' = mu - w x r - v,   q' = (1, -w / 2) q
    dL/dv = -sum dL/dmu,    dL/dw = -sum r x dL/dmu - 1/2 sum (q0 dq - dq0 q + q x dq)

to first order, which a gradient needs. Two effects are left out: the sensor moves between the rays of a view, and colours depend on the
direction of view.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nurec_lite.scene.gaussians import AnyGaussians, SplitGaussians

PoseVjp = Callable[[Tensor, list[Tensor], list[Tensor]], Tensor]
_WORLD, _SPLIT = ("means", "quats"), ("still_means", "still_quats", "means", "quats")


def with_pose_grad(
    gaussians: AnyGaussians,
    pose_delta: Tensor | None,  # [6] w and v of the sensor, which its poses contain; None: the poses are given
    centre: Tensor,  # [3] of the rotation
    pose_vjp: PoseVjp | None = None,  # the gradient of the delta; None: by torch
) -> AnyGaussians:
    """Returns the same Gaussians. The gradients of their means and rotations reach the pose delta, too."""
    if pose_delta is None or not pose_delta.requires_grad:
        return gaussians
    names = _SPLIT if isinstance(gaussians, SplitGaussians) else _WORLD
    same = _WithPoseGrad.apply(
        pose_vjp or pose_vjp_by_torch, pose_delta, centre, *(getattr(gaussians, name) for name in names)
    )
    values: dict[str, Any] = dict(zip(names, same, strict=True))
    return replace(gaussians, **values)


class _WithPoseGrad(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, pose_vjp: PoseVjp, pose_delta: Tensor, centre: Tensor, *gaussians: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.pose_vjp = pose_vjp
        ctx.save_for_backward(centre, *gaussians)
        return tuple(tensor.view_as(tensor) for tensor in gaussians)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        centre, *gaussians = ctx.saved_tensors
        return None, ctx.pose_vjp(centre, gaussians, list(grads)), None, *grads


def pose_vjp_by_torch(
    centre: Tensor,  # [3]
    gaussians: list[Tensor],  # means [N, 3] and unit quaternions [N, 4], of one set of Gaussians or two
    grads: list[Tensor],  # of these
) -> Tensor:  # [6] dL/dw, dL/dv
    """Returns the gradient of the pose delta, by the formulas above."""
    found = [_pose_vjp(centre, *gaussians[k : k + 2], *grads[k : k + 2]) for k in range(0, len(gaussians), 2)]
    return torch.stack(found).sum(0)


def _pose_vjp(centre: Tensor, means: Tensor, quats: Tensor, d_means: Tensor, d_quats: Tensor) -> Tensor:
    torque = _axial((means - centre).T @ d_means)
    q = quats.T @ d_quats
    spin = q[0, 1:] - q[1:, 0] + _axial(q[1:, 1:])
    return -torch.cat([torque + 0.5 * spin, d_means.sum(0)])


def _axial(
    m: Tensor,  # [3, 3] sum of a b^T
) -> Tensor:  # [3] sum of a x b
    return torch.stack([m[1, 2] - m[2, 1], m[2, 0] - m[0, 2], m[0, 1] - m[1, 0]])
