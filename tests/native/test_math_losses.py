# SPDX-License-Identifier: Apache-2.0
"""kernels/math/ssim.cuh, lidar_loss.cuh and adam.cuh in float64."""

import torch
from kernel_math import F64, autograd, call, close, differences
from torch import Tensor

from nurec_lite.training.losses import drop_loss

C1, C2 = 0.01**2, 0.03**2


def pixels(n: int = 65) -> tuple[Tensor, Tensor]:  # [n, 20] a and b under a window; the last ones flat, black and equal
    a, b = torch.rand(2, n, 20, dtype=F64)
    a[-5:-2], b[-4:-2] = a[-5:-2, :1], b[-4:-2, :1]
    a[-3:-1], b[-2:-1] = 0, 0
    b[-1] = a[-1]
    return a, b


def moments(a: Tensor, b: Tensor) -> Tensor:  # [n, 4] means of u, v, u^2 and v^2
    u, v = a + b, a - b
    return torch.stack([m.mean(1) for m in (u, v, u * u, v * v)], dim=1)


def similarity(a: Tensor, b: Tensor) -> Tensor:  # [n, 1]
    """Similarity of blurred maps, by the formula of nurec_lite.training.losses.ssim."""
    mean_a, mean_b, aa, bb, ab = (m.mean(1) for m in (a, b, a * a, b * b, a * b))
    luminance = (2 * mean_a * mean_b + C1) / (mean_a**2 + mean_b**2 + C1)
    return (luminance * (2 * (ab - mean_a * mean_b) + C2) / (aa - mean_a**2 + bb - mean_b**2 + C2))[:, None]


def test_the_window_of_ssim() -> None:
    at = torch.arange(11, dtype=F64)
    expected = torch.softmax(-0.5 * ((at - 5) / 1.5).square(), 0)
    close(call("ssim_window", at[:, None]), expected[:, None], 1e-15)


def test_similarity() -> None:
    a, b = pixels()
    found = call("ssim_of", moments(a, b))
    close(found, similarity(a, b))
    assert found[-1] == 1 and found[-2] == 1  # equal ones, exactly


def test_derivatives_of_similarity() -> None:
    """Derivatives by each pixel under the window; they reach 1 / C2, so central differences are of tiny steps."""
    a, b = pixels()
    n, one = a.shape[1], torch.ones(len(a), 1, dtype=F64)
    slopes = call("ssim_of_backward", moments(a, b))[:, None].expand(-1, n, -1) / n
    found = call("ssim_backward", a.reshape(-1, 1), b.reshape(-1, 1), slopes.reshape(-1, 3)).view_as(a)
    close(found, autograd(lambda x: similarity(x, b), [a], one), 1e-11)
    close(found, differences(lambda x: call("ssim_of", moments(x, b)), [a], one, 1e-6), 1e-6)


def test_sign() -> None:
    x = torch.tensor([[-2.0], [-0.0], [0.0], [1e-300]], dtype=F64)
    assert torch.equal(call("sign_of", x), x.sign())


def probabilities() -> tuple[Tensor, Tensor]:  # [n, 1] of no return, and 1 where something returned
    odd = torch.tensor([0, 1, -0.1, 1.1, 1e-6, 1 - 1e-6, 0.9e-6, 1 - 0.9e-6], dtype=F64)
    drop = torch.cat([torch.rand(40, dtype=F64), odd])[:, None]
    return torch.cat([drop, drop]), torch.cat([torch.zeros_like(drop), torch.ones_like(drop)])


def surprise(drop: Tensor, returned: Tensor) -> Tensor:
    """Surprise ray by ray, by the formula of nurec_lite.training.losses.drop_loss."""
    return torch.stack([drop_loss(*one)[None] for one in zip(drop, returned > 0, strict=True)])


def test_surprise_by_a_return_or_by_none() -> None:
    drop, returned = probabilities()
    close(
        call("drop_cross_entropy", drop, returned), surprise(drop, returned), 1e-11
    )  # 1 - (1 - 1e-6) has eleven digits
    assert call("drop_cross_entropy", torch.tensor([[torch.nan]], dtype=F64), 1.0).isnan().all()


def test_slope_of_surprise() -> None:
    """The slope is the logarithm's within the limits and at them, and 0 beyond them."""
    drop, returned = probabilities()
    found = call("drop_cross_entropy_slope", drop, returned)
    one = torch.ones_like(drop)
    at = (drop == 1e-6) | (
        drop == 1 - 1e-6
    )  # where the slope of torch's clamp is 1 up to version 2.13, and 0 from 2.14 on
    slope = torch.where(returned > 0, 1 / (1 - drop), -1 / drop)
    close(found, torch.where(at, slope, autograd(lambda p: surprise(p, returned), [drop], one)), 1e-10)
    smooth = ((drop - 0.5).abs() < 0.49).squeeze(1) | (drop < 0).squeeze(1) | (drop > 1).squeeze(1)
    p, hit = drop[smooth], returned[smooth]
    close(found[smooth], differences(lambda p: call("drop_cross_entropy", p, hit), [p], one[smooth], 1e-6), 1e-6)


def test_a_step_of_adam() -> None:
    """Ten steps of torch's, with zeros among the gradients and among values that were never touched."""
    value = torch.nn.Parameter(torch.randn(33, 1, dtype=F64))
    optimizer = torch.optim.Adam([value], lr=0.02, betas=(0.9, 0.999), eps=1e-15)
    state = torch.cat([value.detach(), torch.zeros(33, 2, dtype=F64)], dim=1)
    for step in range(1, 11):
        gradient = torch.randn(33, 1, dtype=F64) * (torch.arange(33) % (step + 1) > 0)[:, None]
        state = call("adam_step", state, gradient, 0.02, step, 0.9, 0.999, 1e-15)
        value.grad = gradient
        optimizer.step()
        kept = optimizer.state[value]
        close(state, torch.cat([value, kept["exp_avg"], kept["exp_avg_sq"]], dim=1))
    assert (state[0, 1:] == 0).all()
