# SPDX-License-Identifier: Apache-2.0
"""kernels/math/activate.cuh in float64, against nurec_lite/scene/gaussians.py, training/losses.py and training/density.py."""

import math

import torch
from kernel_math import F64, autograd, call, close, differences
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.training.density import sgld_noise

BETA = 0.01  # of the smooth L1


def logits() -> Tensor:  # [n, 1] small ones, and some with a sigmoid of 0 or 1
    return torch.cat([3 * torch.randn(40, dtype=F64), torch.tensor([0, -40.0, 40, -800, math.inf], dtype=F64)])[:, None]


def opacities() -> tuple[
    Tensor, Tensor
]:  # [n, 1] far from one another, near, equal, and apart by exactly the rounding of the tie
    a, b = torch.rand(2, 60, 1, dtype=F64)
    b[:20] = a[:20] + 0.02 * (torch.rand(20, 1, dtype=F64) - 0.5)
    b[20:24], b[24], b[25] = a[20:24], a[24] + BETA, a[25] - BETA
    return a, b


def tie(a: Tensor, b: Tensor) -> Tensor:
    return F.smooth_l1_loss(a, b, reduction="none", beta=BETA)


def test_the_sigmoid_s_derivative_comes_from_its_value() -> None:
    x, d = logits(), torch.randn(45, 1, dtype=F64)
    close(call("sigmoid", x), torch.sigmoid(x))
    close(call("sigmoid_backward", torch.sigmoid(x), d), autograd(torch.sigmoid, [x], d))


def test_a_tie_is_round_below_and_straight_above() -> None:
    a, b = opacities()
    d = torch.ones(60, 1, dtype=F64)
    close(call("tie_of", a, b), tie(a, b))
    close(call("tie_slope", a, b), autograd(tie, [a, b], d)[:, :1], 1e-10)
    smooth = ((a - b).abs() - BETA).abs().squeeze(1) > 1e-4
    found = call("tie_slope", a, b)[smooth]
    close(torch.cat([found, -found], 1), differences(tie, [a[smooth], b[smooth]], d[smooth], 1e-6), 1e-6)


def test_noise_is_that_of_density() -> None:
    q, eta = torch.randn(50, 4, dtype=F64), torch.randn(50, 3, dtype=F64)
    log_scales, o = torch.randn(50, 3, dtype=F64), 0.02 * torch.rand(50, dtype=F64)
    q[0], o[1], o[2] = 0, 0, 1
    share = call("restless", o[:, None])
    close(share, torch.sigmoid(100 * (0.005 - o))[:, None])
    found = call("turned", q, 0.3 * share * log_scales.exp() * eta)
    close(found, sgld_noise(q, log_scales, o, 0.3, eta))
