# SPDX-License-Identifier: Apache-2.0
"""kernels/math/view_direction.cuh in float64, against local_directions of nurec_lite/splat/render.py."""

import torch
from kernel_math import F64, autograd, call, close, differences
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.geometry.se3 import quat_conjugate, quat_rotate

N = 60


def places() -> Tensor:  # [N, 3] near, far, and along the axes
    sizes = 10 ** torch.linspace(-3, 5, N - 6, dtype=F64)[:, None]
    return torch.cat([torch.randn(N - 6, 3, dtype=F64) * sizes, torch.eye(3, dtype=F64), -torch.eye(3, dtype=F64)])


def rotations() -> Tensor:
    return F.normalize(torch.randn(N, 4, dtype=F64), dim=-1)


def towards(r: Tensor) -> Tensor:
    return F.normalize(r, dim=-1)


def towards_in(q: Tensor, r: Tensor) -> Tensor:
    return quat_rotate(quat_conjugate(q), towards(r))


def test_directions_and_their_derivatives() -> None:
    r, q, d = places(), rotations(), torch.randn(N, 3, dtype=F64)
    close(call("view_direction", r), towards(r))
    close(call("local_view_direction", q, r), towards_in(q, r))
    close(call("view_direction_backward", r, d), autograd(towards, [r], d), 1e-11)
    found = call("local_view_direction_backward", q, r, d)
    close(found, autograd(towards_in, [q, r], d), 1e-11)
    near = r.norm(dim=1) > 0.01  # differences of less than that need smaller steps
    close(found[near], differences(towards_in, [q[near], r[near]], d[near]), 1e-4)


def test_at_the_eye_itself() -> None:
    """torch has it so: nothing is divided by zero."""
    r = torch.tensor([[0.0, 0, 0], [1e-13, 0, 0], [0, -1e-300, 0]], dtype=F64)
    d = torch.randn(3, 3, dtype=F64)
    close(call("view_direction", r), towards(r))
    assert bool(call("view_direction_backward", r, d).isfinite().all())
    close(call("view_direction_backward", r, d) * 1e-12, autograd(towards, [r], d) * 1e-12)
