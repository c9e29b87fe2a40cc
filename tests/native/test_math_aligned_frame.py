# SPDX-License-Identifier: Apache-2.0
"""kernels/math/aligned_frame.cuh in double precision: a ray has the same response there as in a Gaussian's own frame."""

import pytest
import torch
from kernel_math import F64, call, close
from test_math_rays import N, gaussians, opacities
from torch import Tensor
from torch.nn import functional as F

SECONDS = 0.1
BY_T = {  # whether t has a gradient
    False: ("ray_moments_alpha", "add_moments_alpha_moving", "aligned_moments_alpha_moving"),
    True: ("ray_moments_alpha_and_t", "add_moments_alpha_and_t_moving", "aligned_moments_alpha_and_t_moving"),
}
KINDS = ("moving", "standing", "at once", "in its plane")


def path_of(kind: str) -> Tensor:  # [N, 14]
    """A sensor's axes at the start and its turn, which rays have in their directions; where it begins and ends, and the seconds."""
    q, start = F.normalize(torch.randn(N, 4, dtype=F64), dim=1), torch.randn(N, 3, dtype=F64)
    end = start if kind in ("standing", "at once") else start + torch.randn(N, 3, dtype=F64)
    seconds = torch.full((N, 1), 0.0 if kind == "at once" else SECONDS, dtype=F64)
    return torch.cat([q, torch.zeros(N, 3, dtype=F64), start, end, seconds], dim=1)


def rays_on(path: Tensor, args: list[Tensor]) -> list[Tensor]:
    """Direction, origin and delay of rays that pass within about a standard deviation."""
    fraction, (start, end) = torch.rand(N, 1, dtype=F64), (path[:, 7:10], path[:, 10:13])
    origin, delay = start + fraction * (end - start), (fraction - 0.5) * path[:, 13:]
    met = args[0] + args[3] * delay + 0.7 * args[2].amin(1)[:, None] * torch.randn(N, 3, dtype=F64)
    return [F.normalize(met - origin, dim=-1), origin, delay]


def seen(kind: str) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Trajectory, frame and opacity of Gaussians, and a ray each."""
    path, args = path_of(kind), gaussians(-2, 0.5)
    if kind == "in its plane":  # the Gaussian comes straight towards the sensor
        middle = 0.5 * (path[:, 7:10] + path[:, 10:13])
        args[3] = (path[:, 10:13] - path[:, 7:10]) / SECONDS - 3 * (args[0] - middle)
    return path, call("make_frame", *args), opacities(), rays_on(path, args)


@pytest.mark.parametrize("kind", KINDS)
def test_a_ray_of_a_moving_sensor(kind: str) -> None:
    path, frame, opacity, ray = seen(kind)
    expected = call("respond_moving", frame, opacity, *ray)
    found = call("evaluate_moving", path, frame, opacity, ray[0], ray[2])
    close(found[:, 1:], expected[:, 9:], 1e-9)
    close(found[:, :1], opacity * expected[:, 8:9], 1e-9)  # not clamped


def test_a_ray_from_the_centre() -> None:
    path, frame, opacity, (d, _, delay) = seen("moving")
    nothing = torch.zeros(N, 3, dtype=F64)
    expected = call("respond_still", frame, opacity, d, nothing, delay)
    close(call("evaluate_still", path, frame, opacity, d, delay)[:, 1:], expected[:, 9:], 1e-9)


@pytest.mark.parametrize("with_t", [False, True], ids=["alpha", "alpha and t"])
@pytest.mark.parametrize("kind", KINDS)
def test_moments_of_a_moving_sensor(kind: str, with_t: bool) -> None:
    path, frame, opacity, ray = seen(kind)
    d_alpha, d_t = torch.randn(2, N, 1, dtype=F64)
    pass_, add, turned = BY_T[with_t]
    at = call("respond_moving", frame, opacity, *ray)
    passed = call(pass_, frame, opacity, *ray, d_alpha, d_t)
    expected = call(add, torch.zeros(N, 13, dtype=F64), passed, at[:, 3:6], ray[2])
    found = call(turned, path, frame, opacity, ray[0], ray[2], d_alpha, d_t)
    close(found, expected, 1e-8)


def test_moments_of_rays_from_the_centre() -> None:
    path, frame, opacity, (d, _, delay) = seen("moving")
    nothing, d_alpha = torch.zeros(N, 3, dtype=F64), torch.randn(N, 1, dtype=F64)
    at = call("respond_still", frame, opacity, d, nothing, delay)
    passed = call("ray_moments_alpha", frame, opacity, d, nothing, 0.0, d_alpha, 0.0)
    expected = call("add_moments_alpha", torch.zeros(N, 13, dtype=F64), passed, at[:, 3:6], delay)
    close(call("aligned_moments_alpha", path, frame, opacity, d, delay, d_alpha, 0.0), expected, 1e-8)


@pytest.mark.parametrize("kind", ["at the sensor", "still", "straight", "nearly straight", "upright"])
def test_a_turn_is_a_rotation_wherever_the_gaussian_is(kind: str) -> None:
    args = gaussians()
    if kind == "at the sensor":
        args[0][:] = 0
    if kind == "still":
        args[3][:] = 0
    if "straight" in kind:
        args[3] = -2 * args[0] + ("nearly" in kind) * 1e-5 * torch.randn(N, 3, dtype=F64)
    frame = call("make_frame", *args)
    if kind == "upright":
        frame[:, 9:12] = torch.tensor([0.0, 0.0, 1.0]) * frame[:, 9:12].norm(dim=1, keepdim=True)
    Q = call("alignment_of", frame).view(N, 3, 3)
    close(Q @ Q.transpose(1, 2), torch.eye(3, dtype=F64).expand(N, 3, 3), 1e-12)
    close(torch.linalg.det(Q)[:, None], torch.ones(N, 1, dtype=F64), 1e-12)
    g, drift = (Q @ a[:, :, None] for a in (frame[:, 9:12], frame[:, 12:15]))
    close(g[:, 1:], torch.zeros(N, 2, 1, dtype=F64), 1e-12)
    speed = frame[:, 12:15].norm(dim=1, keepdim=True)[:, :, None]
    close(drift[:, 2:], torch.zeros(N, 1, 1, dtype=F64), 1e-12 + ("straight" in kind) * 1e-6 * speed.flatten())


def test_what_lies_across_an_axis() -> None:
    x, a = F.normalize(torch.randn(N, 3, dtype=F64), dim=1), torch.randn(N, 3, dtype=F64)
    close(call("across", x, a), F.normalize(a - (x * a).sum(1, keepdim=True) * x, dim=1))
    close((x * call("across", x, x + 1e-5 * a)).sum(1, keepdim=True), torch.zeros(N, 1, dtype=F64), 1e-14)


@pytest.mark.parametrize(
    "names", [("closest_point_still", "evaluate_still"), ("closest_point_moving", "evaluate_moving")]
)
def test_where_a_ray_passes(names: tuple[str, str]) -> None:
    """Its distance is the square root of the exponent that takes alpha down."""
    path, frame, opacity, ray = seen("moving")
    at, peak = (call(name, path, frame, opacity, ray[0], ray[2]) for name in names)
    close(opacity * torch.exp2(-(at * at).sum(1, keepdim=True)), peak[:, :1], 1e-9)


def test_nothing_comes_from_what_cannot_be_seen() -> None:
    path, frame, _, ray = seen("moving")
    opacity = torch.zeros(N, 1, dtype=F64)
    assert (call("evaluate_moving", path, frame, opacity, ray[0], ray[2])[:, :2] == 0).all()
    one = torch.ones(N, 1, dtype=F64)
    assert (call("aligned_moments_alpha_and_t_moving", path, frame, opacity, ray[0], ray[2], one, 0 * one) == 0).all()
