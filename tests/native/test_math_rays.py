# SPDX-License-Identifier: Apache-2.0
"""kernels/math: responses of Gaussians along rays, and blending, against the formulas of docs/model.md."""

import torch
from kernel_math import F64, autograd, call, close, differences
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.geometry.se3 import quat_to_matrix
from nurec_lite.splat import project, reference

N = 257
ALPHA_MIN, NEAR, ALPHA_MAX, T_MIN = (  # the kernels keep them as float
    float(torch.tensor(x, dtype=torch.float32))
    for x in (project.ALPHA_MIN, project.NEAR, reference.ALPHA_MAX, reference.T_MIN)
)


def gaussians(smallest: float = -1, largest: float = 0.5) -> list[Tensor]:
    """Mean, quaternion, scales and velocity; scales are powers of ten."""
    s = 10 ** (smallest + (largest - smallest) * torch.rand(N, 3, dtype=F64))
    q = F.normalize(torch.randn(N, 4, dtype=F64), dim=-1)
    return [5 * torch.randn(N, 3, dtype=F64), q, s, torch.randn(N, 3, dtype=F64)]


def rays_at(mean: Tensor, q: Tensor, s: Tensor, v: Tensor) -> list[Tensor]:
    """Direction, origin and delay of rays that pass within about a standard deviation."""
    origin, delay = torch.randn(N, 3, dtype=F64), 0.1 * torch.randn(N, 1, dtype=F64)
    met = mean + v * delay + (quat_to_matrix(q) @ (0.7 * s * torch.randn(N, 3, dtype=F64))[:, :, None]).squeeze(-1)
    return [F.normalize(met - origin, dim=-1), origin, delay]


def opacities() -> Tensor:
    return torch.cat([torch.rand(N - 40, 1, dtype=F64), torch.full((40, 1), 3.0, dtype=F64)])  # 3 reaches the clamp


def respond(g: Tensor, e: Tensor, opacity: Tensor, k: Tensor) -> Tensor:
    """[n, 2] alpha and t."""
    ee, c = (e * e).sum(1, keepdim=True), torch.linalg.cross(g, e)
    D2 = k * (c * c).sum(1, keepdim=True) / ee
    alpha = (opacity * torch.exp(-0.5 * D2)).clamp(max=ALPHA_MAX)
    return torch.cat([alpha, -(g * e).sum(1, keepdim=True) / ee], dim=1)


def respond_as_written(*args: Tensor) -> Tensor:
    """g = S^-1 R^T (r - mu - v dt), e = S^-1 R^T d."""
    mean, q, s, v, opacity, d, r, dt = args
    M = quat_to_matrix(q).transpose(1, 2) / s[:, :, None]
    g, e = (M @ torch.stack([r - mean - v * dt, d], dim=-1)).unbind(-1)
    return respond(g, e, opacity, torch.ones_like(dt))


def frame_as_written(mean: Tensor, q: Tensor, s: Tensor, v: Tensor) -> Tensor:
    """[n, 16]: M = u S^-1 R^T with the smallest scale u, -M mu, -M v, 1 / u^2."""
    u = s.detach().amin(1)[:, None]
    M = quat_to_matrix(q).transpose(1, 2) * (u / s)[:, :, None]
    g, drift = (-(M @ a[:, :, None]).squeeze(-1) for a in (mean, v))
    return torch.cat([M.flatten(1), g, drift, 1 / (u * u)], dim=1)


# ---- frames


def test_frame() -> None:
    args = gaussians(-4, 2)
    found, expected = call("make_frame", *args), frame_as_written(*args)
    close(found[:, :15], expected[:, :15])
    close(found[:, 15:], expected[:, 15:])


def test_derivative_of_the_frame() -> None:
    """Rays take a frame's M, g and drift; the unit u has no gradient, because it cancels in their results."""
    args = gaussians(-4, 2)
    d_out = torch.randn(N, 16, dtype=F64)
    d_out[:, 15] = 0
    found, expected = call("make_frame_backward", *args, d_out), autograd(frame_as_written, args, d_out)
    for part in ([0, 1, 2], [3, 4, 5, 6], [7, 8, 9], [10, 11, 12]):  # scales' gradients are up to 1e4 times the others
        close(found[:, part], expected[:, part], 4e-12)


# ---- responses


def test_response() -> None:
    args = gaussians()
    d, r, dt = rays_at(*args)
    opacity = opacities()
    expected = respond_as_written(*args, opacity, d, r, dt)
    assert (expected[:, 0] == ALPHA_MAX).any() and (expected[:, 0] < 0.5).any()
    found = call("respond_moving", call("make_frame", *args), opacity, d, r, dt)
    close(found[:, [9, 10]], expected, 1e-11)


def test_an_approach_is_a_response_without_its_opacity() -> None:
    args = gaussians()
    frame, ray = call("make_frame", *args), rays_at(*args)
    found, whole = call("approach", frame, *ray), call("respond_moving", frame, opacities(), *ray)
    falloff, alpha = 8, 9
    assert not found[:, [falloff, alpha]].any() and whole[:, [falloff, alpha]].all()
    whole[:, [falloff, alpha]] = 0
    assert found.equal(whole)


def test_response_of_tiny_and_huge_gaussians() -> None:
    """Off by the rounding of positions in units of the smallest scale, which no formula avoids."""
    args = gaussians(-4, 2)
    d, r, dt = rays_at(*args)
    opacity = opacities()
    found = call("respond_moving", call("make_frame", *args), opacity, d, r, dt)
    limit = 1e-14 * (args[0] - r).norm(dim=1) / args[2].amin(1) + 1e-12
    assert limit.max() < 1e-8
    expected = respond_as_written(*args, opacity, d, r, dt)
    close(found[:, [9]], expected[:, :1], limit)
    close(found[:, [10]], expected[:, 1:], 1e-9)


def test_response_of_what_stands_still() -> None:
    args = gaussians()
    d, _, _ = rays_at(*args)
    frames, opacity, still = call("make_frame", *args), opacities(), torch.zeros(N, 3, dtype=F64)
    expected = call("respond_moving", frames, opacity, d, still, 0.0)
    close(call("respond_still", frames, opacity, d, torch.randn(N, 3, dtype=F64), 1.0), expected)


def test_derivative_of_the_response() -> None:
    args = gaussians()
    ray, opacity = rays_at(*args), opacities()
    frames = call("make_frame", *args)
    at = call("respond_moving", frames, opacity, *ray)
    d_out = torch.randn(N, 2, dtype=F64)
    inputs = [at[:, :3], at[:, 3:6], opacity]
    expected = autograd(lambda g, e, o: respond(g, e, o, frames[:, 15:]), inputs, d_out)
    close(call("respond_backward", frames, opacity, *ray, d_out), expected, 1e-11)


def gradients_of_rays(args: list[Tensor], opacity: Tensor, ray: list[Tensor], d_out: Tensor) -> list[Tensor]:
    """Gradients of mean, quaternion, scales, velocity, opacity, direction and origin, put together as the drivers do."""
    d, r, dt = ray
    frames = call("make_frame", *args)
    M = frames[:, :9].view(-1, 3, 3)
    dg, de, d_opacity = call("respond_backward", frames, opacity, *ray, d_out).split([3, 3, 1], dim=1)
    dM = de[:, :, None] * d[:, None] + dg[:, :, None] * r[:, None]
    d_frame = torch.cat([dM.flatten(1), dg, dt * dg, torch.zeros_like(dt)], dim=1)
    back = call("make_frame_backward", *args, d_frame).split([3, 4, 3, 3], dim=1)
    return [*back, d_opacity, call("transposed_times", M, de), call("transposed_times", M, dg)]


def test_derivatives_of_all_that_a_response_depends_on() -> None:
    args, opacity = gaussians(), opacities()
    ray = rays_at(*args)
    d_out = torch.randn(N, 2, dtype=F64)
    found = gradients_of_rays(args, opacity, ray, d_out)
    inputs = [*args, opacity, *ray[:2]]
    expected = autograd(lambda *x: respond_as_written(*x, ray[2]), inputs, d_out)
    close(torch.cat(found, dim=1), expected, 1e-11)


def test_derivatives_by_differences() -> None:
    args, opacity = gaussians(), opacities().clamp(max=0.9)  # below the clamp
    ray = rays_at(*args)
    d_out = torch.randn(N, 2, dtype=F64)
    found = torch.cat(gradients_of_rays(args, opacity, ray, d_out), dim=1)

    def forward(*x: Tensor) -> Tensor:
        return call("respond_moving", call("make_frame", *x[:4]), *x[4:], ray[2])[:, [9, 10]]

    close(found, differences(forward, [*args, opacity, *ray[:2]], d_out, 1e-6), 2e-6)


def test_a_clamped_response_has_no_gradient_but_its_distance_has() -> None:
    args = gaussians()
    ray, opacity = rays_at(*args), torch.full((N, 1), 50.0, dtype=F64)
    frames = call("make_frame", *args)
    clamped = call("respond_moving", frames, opacity, *ray)[:, 9] == ALPHA_MAX
    assert clamped.sum() > 100
    only_alpha, both = ([torch.ones(N, 1, dtype=F64), d_t * torch.ones(N, 1, dtype=F64)] for d_t in (0, 1))
    assert not call("respond_backward", frames, opacity, *ray, *only_alpha)[clamped].any()
    assert call("respond_backward", frames, opacity, *ray, *both)[clamped][:, :6].any(1).all()


# ---- blending


def ray_of(n: int) -> tuple[Tensor, Tensor]:
    """alpha and t of n Gaussians: some too faint, some too near, some at the clamp."""
    alpha, t = 0.3 * torch.rand(n, dtype=F64), torch.linspace(9, 0, n, dtype=F64)
    alpha[1::7], alpha[3::11] = ALPHA_MIN / 2, ALPHA_MAX
    return alpha, t[torch.randperm(n)]


def walk(alpha: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """Weights by blend_weight, one Gaussian after the other, and the transmittance before each and behind the last."""
    T, open_, weights, before = 1.0, 1.0, [], []
    for a, depth in zip(alpha, t, strict=True):
        before.append(T)
        weight, T, open_ = call("blend_weight", a.view(1, 1), float(depth), T, open_)[0].tolist()
        weights.append(weight)
    return torch.tensor(weights, dtype=F64), torch.tensor([*before, T], dtype=F64)


def blend_as_written(alpha: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """w = T alpha, T <- T (1 - alpha); a Gaussian that would take T below T_MIN ends the ray."""
    T, weights = torch.ones((), dtype=F64), []
    for k, (a, depth) in enumerate(zip(alpha, t, strict=True)):
        weights.append(torch.zeros_like(T))
        if a < ALPHA_MIN or depth < NEAR:
            continue
        if T * (1 - a) < T_MIN:
            weights += [torch.zeros_like(T)] * (len(t) - k - 1)
            break
        weights[-1], T = T * a, T * (1 - a)
    return torch.stack(weights), T


def test_weights() -> None:
    for n in (1, 5, 33, 65):
        alpha, t = ray_of(n)
        weights, T = walk(alpha, t)
        expected, T_end = blend_as_written(alpha, t)
        close(weights[None], expected[None])
        close(T[None, -1:], T_end.view(1, 1))
    assert (expected == 0).sum() > 20, "no ray has ended"


def test_limits_of_a_weight() -> None:
    """Columns: alpha, t, T, open; then weight, T, open."""
    cases = torch.tensor(
        [
            [ALPHA_MIN, 1, 1, 1, ALPHA_MIN, 1 - ALPHA_MIN, 1],  # just seen
            [ALPHA_MIN * (1 - 1e-7), 1, 1, 1, 0, 1, 1],
            [0.5, NEAR, 1, 1, 0.5, 0.5, 1],
            [0.5, NEAR * (1 - 1e-7), 1, 1, 0, 1, 1],
            [0.5, -3, 1, 1, 0, 1, 1],
            [0.5, 1, 2 * T_MIN, 1, T_MIN, T_MIN, 1],  # just kept
            [0.5, 1, 2 * T_MIN * (1 - 1e-7), 1, 0, 2 * T_MIN * (1 - 1e-7), 0],  # ends the ray
            [0.5, 1, 1, 0, 0, 1, 0],  # ended before
        ],
        dtype=F64,
    )
    close(call("blend_weight", cases[:, :4]), cases[:, 4:], 1e-15)


def test_what_reaches_a_ray() -> None:
    """From 1/255 of alpha and the near plane on, both included."""
    alpha, t = (
        torch.tensor([x], dtype=F64).T
        for x in ([ALPHA_MIN, ALPHA_MIN, 0.5, 0.999 * ALPHA_MIN, 0.5], [NEAR, 7, 7, 7, 0.999 * NEAR])
    )
    close(call("reaches", alpha, t), torch.tensor([[1.0, 1, 1, 0, 0]], dtype=F64).T, 0)


def test_derivative_of_blending() -> None:
    for n in (1, 5, 33, 65):
        alpha, t = ray_of(n)
        weights, T = walk(alpha, t)
        s, s_end = torch.randn(n, dtype=F64), torch.randn((), dtype=F64)
        behind, found = (weights * s).sum() + T[-1] * s_end, torch.zeros(n, dtype=F64)
        for i in weights.nonzero().flatten().tolist():
            row = call(
                "blend_backward", alpha[i].view(1, 1), weights[i].item(), T[i].item(), s[i].item(), behind.item()
            )
            found[i], behind = row[0]
        leaf = alpha.clone().requires_grad_()
        expected, T_end = blend_as_written(leaf, t)
        ((expected * s).sum() + T_end * s_end).backward()
        assert leaf.grad is not None
        close(found[None], leaf.grad[None])


def test_derivative_of_blending_by_differences() -> None:
    alpha, t = 0.05 + 0.2 * torch.rand(9, dtype=F64), torch.linspace(1, 9, 9, dtype=F64)  # far from every threshold
    s, s_end, step = torch.randn(9, dtype=F64), torch.randn((), dtype=F64), 1e-5

    def total(values: Tensor) -> Tensor:
        weights, T = walk(values, t)
        return (weights * s).sum() + T[-1] * s_end

    weights, T = walk(alpha, t)
    behind = total(alpha)
    for i, shift in enumerate(step * torch.eye(9, dtype=F64)):
        row = call("blend_backward", alpha[i].view(1, 1), weights[i].item(), T[i].item(), s[i].item(), behind.item())
        found, behind = row[0]
        expected = (total(alpha + shift) - total(alpha - shift)) / (2 * step)
        close(found.view(1, 1), expected.view(1, 1), 1e-8)


# ---- targets


def test_what_misses_a_target() -> None:
    """Columns: t, target and most; then the term that adds up, and its slope."""
    limit = 3.4e38
    cases = torch.tensor(
        [
            [7, 0, limit, 7, 1],  # no target
            [7, 5, 3, 2, 1],
            [3, 5, 3, 2, -1],
            [9, 5, 3, 3, 0],
            [1, 5, 3, 3, 0],
            [5, 5, 0, 0, 1],  # at the target the slope of the side behind it
            [6, 5, 0, 0, 0],  # did not return
        ],
        dtype=F64,
    )
    close(call("range_residual", cases[:, :1], cases[:, 1:3]), cases[:, 3:4], 0)
    close(call("range_residual_backward", cases[:, :3], 2.0), 2 * cases[:, 4:], 0)


def test_derivative_of_what_misses_a_target() -> None:
    t = 0.5 + 30 * torch.rand(50, 1, dtype=F64)
    target = torch.stack([0.5 + 30 * torch.rand(50, dtype=F64), 1 + 8 * torch.rand(50, dtype=F64)], dim=-1)
    leaf = t.clone().requires_grad_()
    torch.minimum((leaf - target[:, :1]).abs(), target[:, 1:]).sum().backward()
    assert leaf.grad is not None and 5 < (leaf.grad == 0).sum() < 45
    close(call("range_residual_backward", t, target, 1.0), leaf.grad)
