# SPDX-License-Identifier: Apache-2.0
"""Lens models beyond the pinhole with OpenCV's k1, k2, p1, p2, k3, all by one formula.

A point lies at q, in the plane (x / z, y / z) for `pinhole`, at its angle times its direction, theta (x, y) / |(x, y)|, for `fisheye`,
`ftheta` and `mei`. With r = |q| the lens moves it to

    q (1 + a1 r + ... + a8 r^8) / (1 + d1 r^2 + d2 r^4 + d3 r^6) + tangential(p1, p2) + (s1 r^2 + s2 r^4, s3 r^2 + s4 r^4)

and pixels are u = fx x + skew_u y + cx, v = skew_v x + fy y + cy. Beyond `limit`, outside of the image, q grows on in proportion to r,
so that no polynomial folds points outside into the image.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.geometry.mei import fitted

ANGULAR = ("fisheye", "ftheta", "mei")  # places are angles, not tangents
# coefficients of Camera.distortion, and how many of them may be given
COEFFICIENTS: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "pinhole": (("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6", "s1", "s2", "s3", "s4"), (0, 5, 8, 12)),
    "fisheye": (("k1", "k2", "k3", "k4", "p1", "p2", "s1", "s3"), (0, 4, 8)),
    "mei": (("xi", "k1", "k2", "p1", "p2"), (5,)),  # mei.py
    # a2 to a5: of the polynomial from angles to pixels, divided by fy; d, e: u = .. + d y, v = e x + .., both times fy;
    # b1 to b5: of the polynomial from pixels divided by fy to angles, where that one is exact
    "ftheta": (("a2", "a3", "a4", "a5", "d", "e", "b1", "b2", "b3", "b4", "b5"), (6, 11)),
}
LENSES = tuple(COEFFICIENTS)
POWERS = 8  # of the radial polynomial
_SAMPLES = 4096
_STEEPEST = math.radians(89.5)  # from the axis of a pinhole
MARGIN = 1.1  # of the widest place in the image: nothing beyond is distorted further


@dataclass(frozen=True)
class Lens:
    """Coefficients of the formula above."""

    angular: bool
    radial: tuple[float, ...]  # a1 to a8
    denominator: tuple[float, ...] = (0.0, 0.0, 0.0)
    tangential: tuple[float, ...] = (0.0, 0.0)
    prism: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    inverse: tuple[float, ...] = ()  # b1 to b5
    skew: tuple[float, float] = (0.0, 0.0)  # divided by fy

    @property
    def farthest(self) -> float:
        """The largest r that exists."""
        return math.pi if self.angular else math.tan(_STEEPEST)


def lens_of(model: str, numbers: tuple[float, ...]) -> Lens:
    """The lens of a model of `COEFFICIENTS`."""
    names = COEFFICIENTS[model][0]
    k = dict.fromkeys(names, 0.0) | dict(zip(names, numbers, strict=False))
    if model == "ftheta":
        terms = (k["a2"], k["a3"], k["a4"], k["a5"], 0.0, 0.0, 0.0, 0.0)
        return Lens(True, terms, inverse=tuple(numbers[6:]), skew=(k["d"], k["e"]))
    if model == "mei":
        radial, tangential, prism = fitted(numbers)
        return Lens(True, radial, tangential=tangential, prism=prism)
    even = [k["k1"], k["k2"], k["k3"], k["k4"] if model == "fisheye" else 0.0]
    powers: tuple[float, ...] = tuple(power for one in even for power in (0.0, one))
    below = (0.0, 0.0, 0.0) if model == "fisheye" else (k["k4"], k["k5"], k["k6"])
    along = (k["s1"], k.get("s2", 0.0), k["s3"], k.get("s4", 0.0))
    return Lens(model in ANGULAR, powers, below, (k["p1"], k["p2"]), along)


def places(
    lens: Lens,
    points: Tensor,  # [..., 3] camera frame
) -> Tensor:  # [..., 2] q
    x, y, z = points.unbind(-1)
    if not lens.angular:
        safe = torch.where(z.abs() < 1e-6, torch.full_like(z, 1e-6), z)
        return points[..., :2] / safe[..., None]
    aside = torch.hypot(x, y)
    along = torch.where(aside > 1e-12, torch.atan2(aside, z) / aside.clamp(min=1e-12), 1 / z.clamp(min=1e-6))
    return points[..., :2] * along[..., None]


def directions(
    lens: Lens,
    q: Tensor,  # [..., 2]
) -> Tensor:  # [..., 3] unit
    if not lens.angular:
        return torch.nn.functional.normalize(torch.cat([q, torch.ones_like(q[..., :1])], dim=-1), dim=-1)
    r = q.norm(dim=-1, keepdim=True)
    return torch.cat([q * torch.sinc(r / math.pi), torch.cos(r)], dim=-1)


def moved(
    lens: Lens,
    q: Tensor,  # [..., 2]
    limit: float,
) -> Tensor:  # [..., 2]
    scale = (q.norm(dim=-1, keepdim=True) / limit).clamp(min=1)
    return scale * _moved(lens, q / scale)


def _moved(lens: Lens, q: Tensor) -> Tensor:
    x, y = q.unbind(-1)
    r2 = x * x + y * y
    radial, (p1, p2), (s1, s2, s3, s4) = _radial(lens, r2.sqrt()), lens.tangential, lens.prism
    dx = 2 * p1 * x * y + p2 * (r2 + 2 * x * x) + r2 * (s1 + r2 * s2)
    dy = p1 * (r2 + 2 * y * y) + 2 * p2 * x * y + r2 * (s3 + r2 * s4)
    return torch.stack([x * radial + dx, y * radial + dy], dim=-1)


def _horner(coefficients: tuple[float, ...], r: Tensor) -> Tensor:
    """c0 + c1 r + c2 r^2 + ..."""
    total = torch.full_like(r, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = c + r * total
    return total


def _radial(lens: Lens, r: Tensor) -> Tensor:
    return _horner((1.0, *lens.radial), r) / _horner((1.0, *lens.denominator), r * r)


def _slope(lens: Lens, r: Tensor) -> Tensor:
    """Derivative of the radial factor by r."""
    above, below = _horner((1.0, *lens.radial), r), _horner((1.0, *lens.denominator), r * r)
    d_above = _horner(tuple(k * a for k, a in enumerate(lens.radial, 1)), r)
    d_below = 2 * r * _horner(tuple(k * d for k, d in enumerate(lens.denominator, 1)), r * r)
    return (d_above - above * d_below / below) / below


def jacobian(
    lens: Lens,
    q: Tensor,  # [..., 2]
) -> Tensor:  # [..., 2, 2] of `_moved`
    x, y = q.unbind(-1)
    r2 = x * x + y * y
    r = r2.sqrt()
    radial, slope = _radial(lens, r), _slope(lens, r) / r.clamp(min=1e-12)
    (p1, p2), (s1, s2, s3, s4) = lens.tangential, lens.prism
    prism_x, prism_y = 2 * (s1 + 2 * s2 * r2), 2 * (s3 + 2 * s4 * r2)
    across = slope * x * y + 2 * p1 * x + 2 * p2 * y
    rows = (
        torch.stack([radial + slope * x * x + 2 * p1 * y + 6 * p2 * x + prism_x * x, across + prism_x * y], dim=-1),
        torch.stack([across + prism_y * x, radial + slope * y * y + 6 * p1 * y + 2 * p2 * x + prism_y * y], dim=-1),
    )
    return torch.stack(rows, dim=-2)


def fold(lens: Lens) -> float:
    """The least r whose ray's image no longer moves outwards; `farthest` where it always does."""
    r = torch.linspace(0, 1, _SAMPLES + 1, dtype=torch.float64)
    r = r * lens.farthest if lens.angular else torch.tan(r * _STEEPEST)
    grows = (_radial(lens, r) + r * _slope(lens, r) > 0) & (_horner((1.0, *lens.denominator), r * r) > 0)
    first = int((~grows).double().argmax()) if not bool(grows.all()) else len(r)
    return float(r[max(first - 1, 0)]) if first < len(r) else lens.farthest


def straightened(
    lens: Lens,
    seen: Tensor,  # [..., 2] float64
) -> Tensor:  # [..., 2] q with moved(q) = seen; NaN where there is none
    """Inverts the lens by a table of the radial part, then Newton's method with all of the lens."""
    end = fold(lens)
    if lens.inverse:
        r = seen.norm(dim=-1, keepdim=True)
        angle = r * _horner(lens.inverse, r)
        return torch.where(angle <= end, seen * _horner(lens.inverse, r), math.nan)
    q = _by_table(lens, seen, end)
    for _ in range(10):
        (a, b), (c, d) = (row.unbind(-1) for row in jacobian(lens, q).unbind(-2))
        u, v = (seen - _moved(lens, q)).unbind(-1)
        q = q + torch.stack([d * u - b * v, a * v - c * u], dim=-1) / (a * d - b * c)[..., None]
    there = ((_moved(lens, q) - seen).norm(dim=-1, keepdim=True) < 1e-9 * (1 + seen.norm(dim=-1, keepdim=True))) & (
        q.norm(dim=-1, keepdim=True) <= 1.001 * end
    )
    return torch.where(there, q, math.nan)


def _by_table(lens: Lens, seen: Tensor, end: float) -> Tensor:
    """q for the radial part alone, to a few thousandths; NaN where it folds before."""
    r = torch.linspace(0, 1, _SAMPLES + 1, dtype=torch.float64, device=seen.device)
    r = r * end if lens.angular else torch.tan(r * math.atan(end))
    image, wanted = r * _radial(lens, r), seen.norm(dim=-1)
    above = torch.searchsorted(image, wanted.contiguous()).clamp(1, _SAMPLES)
    low, high = image[above - 1], image[above]
    found = r[above - 1] + (r[above] - r[above - 1]) * ((wanted - low) / (high - low)).clamp(0, 1)
    return seen * (found / wanted.clamp(min=1e-12))[..., None]
