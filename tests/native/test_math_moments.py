# SPDX-License-Identifier: Apache-2.0
"""kernels/math/moments.cuh: the gradients of a Gaussian from the moments that rays add up, against those by way of its frame."""

import pytest
import torch
from kernel_math import F64, autograd, call, close
from test_math_rays import N, gaussians, gradients_of_rays, opacities, rays_at, respond_as_written
from torch import Tensor

ADDED = {False: "add_moments_alpha_moving", True: "add_moments_alpha_and_t_moving"}  # by whether t has a gradient


def by_moments(args: list[Tensor], opacity: Tensor, ray: list[Tensor], d_out: Tensor, with_t: bool) -> list[Tensor]:
    """Gradients of mean, quaternion, scales, velocity, opacity, direction and origin, put together as the kernels do."""
    frames, dt = call("make_frame", *args), ray[2]
    at = call("respond_moving", frames, opacity, *ray)
    passed = call("ray_moments_alpha_and_t" if with_t else "ray_moments_alpha", frames, opacity, *ray, d_out)
    moments = call(ADDED[with_t], torch.zeros(N, 13, dtype=F64), passed, at[:, 3:6], dt)
    _, w, n, d_opacity = passed.split([3, 3, 3, 1], dim=1)
    close(moments[:, 12:], d_opacity, 0)
    M = frames[:, :9].view(-1, 3, 3)
    back = call("moments_backward", *args, moments).split([3, 4, 3, 3], dim=1)
    rays = call("transposed_times", M, at[:, 10:] * w + n), call("transposed_times", M, w)
    return [*back, d_opacity, *rays]


@pytest.mark.parametrize("with_t", [False, True], ids=["alpha", "alpha_and_t"])
def test_the_same_gradients_as_by_the_frame(with_t: bool) -> None:
    args, opacity = gaussians(), opacities()
    ray, d_out = rays_at(*args), torch.randn(N, 2, dtype=F64) * torch.tensor([1.0, float(with_t)])
    found, expected = (f(args, opacity, ray, d_out, *x) for f, x in ((by_moments, [with_t]), (gradients_of_rays, [])))
    for a, b in zip(found, expected, strict=True):
        close(a, b, 1e-10)


def test_the_gradients_that_autograd_finds() -> None:
    args, opacity = gaussians(), opacities()
    ray, d_out = rays_at(*args), torch.randn(N, 2, dtype=F64)
    found = torch.cat(by_moments(args, opacity, ray, d_out, True), dim=1)
    expected = autograd(lambda *x: respond_as_written(*x, ray[2]), [*args, opacity, *ray[:2]], d_out)
    close(found, expected, 1e-10)


def test_moments_add_up() -> None:
    args, opacity = gaussians(), opacities()
    ray, d_out = rays_at(*args), torch.randn(N, 2, dtype=F64)
    frames = call("make_frame", *args)
    e, passed = (
        call("respond_moving", frames, opacity, *ray)[:, 3:6],
        call("ray_moments_alpha", frames, opacity, *ray, d_out),
    )
    before = torch.randn(N, 13, dtype=F64)
    once = call("add_moments_alpha_moving", torch.zeros_like(before), passed, e, ray[2])
    close(call("add_moments_alpha_moving", before, passed, e, ray[2]), before + once)
    still = call("add_moments_alpha", before, passed, e, ray[2])
    once[:, 9:12] = 0  # of the velocity, which rays without delay know nothing of
    close(still, before + once)


def test_a_ray_through_the_mean() -> None:
    """There alpha is stationary: only the opacity learns from it, and t moves with the mean along the ray."""
    args, opacity = gaussians(), torch.full((N, 1), 0.5, dtype=F64)
    d, r = torch.nn.functional.normalize(args[0], dim=1), torch.zeros(N, 3, dtype=F64)
    ones, zeros = torch.ones(N, 1, dtype=F64), torch.zeros(N, 1, dtype=F64)
    mean, q, s, v, d_opacity, *_ = by_moments(
        args, opacity, [d, r, zeros], torch.cat([ones, zeros], dim=1), with_t=False
    )
    close(torch.cat([mean, q, s, v], dim=1), torch.zeros(N, 13, dtype=F64), 1e-9)
    close(d_opacity, ones, 1e-9)
    mean, *_ = by_moments(args, opacity, [d, r, zeros], torch.cat([zeros, ones], dim=1), with_t=True)
    close((mean * d).sum(1, keepdim=True), ones, 1e-9)
