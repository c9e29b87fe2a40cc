# SPDX-License-Identifier: Apache-2.0
"""kernels/math/ray_pyramid.cuh in double precision: the test never excludes a Gaussian that a ray sees, and excludes most of those that no
ray sees."""

from dataclasses import dataclass, replace

import pytest
import torch
from kernel_math import F64, call
from splat_scenes import ALPHA_MIN, uniform
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Pairs:
    """n Gaussians, a ray pyramid for each, and some of its rays, in the order of the C++ functions' arguments."""

    path: Tensor  # [n, 14] of the sensor
    frame: Tensor  # [n, 16]
    opacity: Tensor  # [n, 1]
    pyramid: Tensor  # [n, 16]
    rays: Tensor  # [n, R, 7]
    slab: Tensor  # [n, 4] beam slab that the rays lie in

    def said(self) -> Tensor:  # [n] bool
        return call("may_hit", self.path, self.frame, self.opacity, self.pyramid, self.slab)[:, 0] != 0

    def seen(self) -> Tensor:  # [n] bool: by one of the rays
        each = self.rays.shape[1]
        frame, opacity = (x.repeat_interleave(each, 0) for x in (self.frame, self.opacity))
        *_, alpha, t = call("respond_moving", frame, opacity, self.rays.flatten(0, 1)).unbind(1)
        return ((alpha >= ALPHA_MIN) & (t >= 0)).view(-1, each).any(1)


def scales_of(kind: str, n: int) -> Tensor:
    each = torch.exp(uniform(-2.5, 0.5, n, 3))
    if kind == "any":
        return each
    flat = {"round": (1, 1, 1), "disk": (1e-3, 1, 1), "needle": (1e-2, 1e-2, 1)}[kind]
    return each[:, :1] * torch.tensor(flat, dtype=F64)


def make_pairs(n: int, kind: str, spread: float, rays: int = 200, width: float | None = None) -> Pairs:
    """Gaussians about a place on a ray, 0 to 8 standard deviations off and some behind the origin; `spread`: of delays, and of the
    sensor's speed; `width`: of their slabs, in units of the pyramid's half. None: of all of it."""
    c = F.normalize(torch.randn(n, 3, dtype=F64), dim=1)
    a = F.normalize(torch.linalg.cross(c, torch.randn(n, 3, dtype=F64)), dim=1)
    b = torch.linalg.cross(c, a) + 0.2 * torch.randn(n, 1, dtype=F64) * a
    a, b = (torch.exp(uniform(-6, -1, n, 1)) * x for x in (a, b))
    dt, tau = 0.1 * torch.randn(n, 1, dtype=F64), 0.05 * spread * torch.rand(n, 1, dtype=F64)
    middle, pace = torch.randn(n, 3, dtype=F64), 4 * spread * torch.randn(n, 3, dtype=F64)
    x = uniform(-1, 1, n, rays, 2)
    x[:, : rays // 4] = x[:, : rays // 4].sign()  # corners
    x[:, rays // 4 : rays // 2, 0] = x[:, rays // 4 : rays // 2, 0].sign()  # edges
    slab = torch.tensor([[0.0, 1, 0, 1]], dtype=F64).expand(n, 4)
    if width is not None:
        half = torch.stack([torch.rand(n), width * torch.rand(n)], 1).double()
        place = (1 - half) * uniform(-1, 1, n, 2)
        slab = torch.stack([place, half], 2).flatten(1)
        x = place[:, None] + x * half[:, None]
    directions = F.normalize(c[:, None] + x[..., :1] * a[:, None] + x[..., 1:] * b[:, None], dim=-1)
    w = torch.randn(n, 1, dtype=F64) * spread * 0.02
    delays = dt[:, None] + x[..., :1] * w[:, None] + tau[:, None] * uniform(-1, 1, n, rays, 1).sign()
    origins = middle[:, None] + delays * pace[:, None]
    q, scales = F.normalize(torch.randn(n, 4, dtype=F64), dim=1), scales_of(kind, n)
    velocities = 3 * torch.randn(n, 3, dtype=F64) * (torch.rand(n, 1) < 0.5)
    off = uniform(0, 8, n, 1) * scales * F.normalize(torch.randn(n, 3, dtype=F64), dim=1)
    turned = call("matrix_times", call("quat_to_matrix", q).view(n, 3, 3), off)
    means = origins[:, 0] + uniform(-2, 20, n, 1) * directions[:, 0] + turned + velocities * delays[:, 0]
    pyramid = torch.cat([c, a, b, dt, w, tau, torch.ones(n, 1, dtype=F64), torch.zeros(n, 3, dtype=F64)], dim=1)
    frame, opacity = call("make_frame", means, q, scales, velocities), uniform(0.01, 1, n, 1)
    axes, seconds = torch.tensor([[1.0, *[0] * 6]], dtype=F64).expand(n, 7), torch.full((n, 1), 0.1, dtype=F64)
    path = torch.cat([axes, middle - 0.05 * pace, middle + 0.05 * pace, seconds], dim=1)
    return Pairs(path, frame, opacity, pyramid, torch.cat([directions, origins, delays], dim=-1), slab)


@pytest.mark.parametrize("spread", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["any", "round", "disk", "needle"])
def test_no_ray_s_gaussian_is_left_out(kind: str, spread: float) -> None:
    pairs = make_pairs(1500, kind, spread)
    said, seen = pairs.said(), pairs.seen()
    assert 300 < int(seen.sum()) < 1400
    assert not bool((seen & ~said).any()), f"{int((seen & ~said).sum())} are left out"


@pytest.mark.parametrize("behind", [False, True])
def test_what_is_far_from_all_rays_is_left_out(behind: bool) -> None:
    n = 400
    pairs = make_pairs(n, "any", 1.0)
    c, a, r = pairs.pyramid[:, :3], pairs.pyramid[:, 3:6], 0.5 * (pairs.path[:, 7:10] + pairs.path[:, 10:13])
    means = r - 40 * c if behind else r + 40 * (0.3 * c + F.normalize(a, dim=1))
    q, scales = F.normalize(torch.randn(n, 4, dtype=F64), dim=1), uniform(0.1, 0.5, n, 3)
    frame = call("make_frame", means, q, scales, torch.randn(n, 3, dtype=F64))
    assert not bool(replace(pairs, frame=frame).said().any())


def test_a_cross_product_with_what_is_level() -> None:
    n = 50
    (x, y), e = torch.randn(2, n, 1, dtype=F64), torch.randn(n, 3, dtype=F64)
    expected = torch.linalg.cross(torch.cat([x, y, torch.zeros_like(x)], dim=1), e)
    assert torch.allclose(call("level_cross", x, y, e), expected, rtol=1e-12, atol=1e-12)


# ---- beam slabs


def test_a_form_is_a_square() -> None:
    """The place lies in the pyramid, and the form is never more than three times its sum."""
    n = 400
    p, u, v = (torch.exp(uniform(-3, 1, n, 1)) * torch.randn(n, 3, dtype=F64) for _ in range(3))
    x, y = uniform(-1, 1, 2, n, 1)
    value, total = call("form_at", p, u, v, x, y).unbind(1)
    assert torch.allclose(value, (p + x * u + y * v).square().sum(1), rtol=1e-10, atol=1e-12)
    assert bool((value <= 3 * total).all() and (value > total).any())


def test_the_least_on_a_line() -> None:
    """Parabolas that open either way."""
    n, steps = 600, torch.linspace(-1, 1, 2001, dtype=F64)
    level, slope, bend = torch.randn(3, n, 1, dtype=F64)
    at, dx = uniform(-1, 1, n, 1), torch.rand(n, 1, dtype=F64)
    found = call("least_on_line", level, slope, bend, at, dx)[:, 0]
    x = at + dx * steps
    least = (level + 2 * slope * x + bend * x**2).amin(1)
    assert bool((found <= least + 1e-12).all() and (found >= least - 1e-5).all())
    assert 50 < int((bend < 0).sum()) < 550


@pytest.mark.parametrize("width", [0.0, 0.02, 0.5], ids=str)
@pytest.mark.parametrize("kind", ["any", "round", "disk", "needle"])
def test_no_gaussian_of_a_fan_s_ray_is_left_out(kind: str, width: float) -> None:
    pairs = make_pairs(1500, kind, 1.0, width=width)
    said, seen = pairs.said(), pairs.seen()
    assert 300 < int(seen.sum()) < 1400
    assert not bool((seen & ~said).any()), f"{int((seen & ~said).sum())} are left out"


@pytest.mark.parametrize(("kind", "share"), [("any", 0.85), ("round", 0.85), ("disk", 0.85), ("needle", 0.85)])
def test_most_gaussians_next_to_a_beam_slab_are_left_out(kind: str, share: float) -> None:
    """A narrow slab leaves most out; the whole pyramid leaves out fewer."""
    pairs = make_pairs(1500, kind, 0.0, width=0.02)
    unseen = ~pairs.seen()
    assert int(unseen.sum()) > 100
    left_out = float((~pairs.said())[unseen].double().mean())
    assert left_out > share, left_out


def test_a_fan_without_rays_meets_nothing() -> None:
    pairs = make_pairs(100, "any", 1.0)
    empty = torch.tensor([[0.0, -1, 0, 0]], dtype=F64).expand(100, 4)
    assert not bool(replace(pairs, slab=empty).said().any())
