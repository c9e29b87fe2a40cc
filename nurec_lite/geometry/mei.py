# SPDX-License-Identifier: Apache-2.0
"""The unified camera model of Mei and Rives (ICRA 2007) as coefficients of lens.py.

A unit direction (x, y, z) goes to (x, y) / (z + xi), is distorted by k1, k2, p1 and p2 as in a pinhole, and scaled by the focal lengths
gamma. `Camera.fx` and `Camera.fy` are gamma / (1 + xi), the pixels a radian in the middle of the image. Coefficients are fitted up to
FIELD from the axis; in images of 1400 pixels with xi of 2.2 to 2.6, as KITTI-360 has them,
they are off by 0.04 pixels at most.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor

FIELD = math.radians(97.5)  # from the axis; the lens sees nothing beyond
_WITHIN = 0.95  # of the angle where the model turns back
_ANGLES, _AROUND = 200, 48  # samples
_TERMS = 8  # of the radial polynomial


def projected(
    numbers: tuple[float, ...],  # xi, k1, k2, p1, p2
    directions: Tensor,  # [..., 3] unit, float64
) -> Tensor:  # [..., 2] pixels divided by fx and fy, from the principal point
    xi, k1, k2, p1, p2 = numbers
    x, y = (directions[..., :2] / (directions[..., 2:] + xi)).unbind(-1)
    r2 = x * x + y * y
    radial = 1 + k1 * r2 + k2 * r2 * r2
    u = x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x)
    v = y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y
    return (1 + xi) * torch.stack([u, v], dim=-1)


def widest(xi: float) -> float:
    """Largest angle from the axis of the fit of coefficients, in radians."""
    turns = math.acos(-1 / xi if xi > 1 else -xi)
    return min(FIELD, _WITHIN * turns)


@lru_cache(maxsize=16)
def fitted(
    numbers: tuple[float, ...],
) -> tuple[tuple[float, ...], tuple[float, float], tuple[float, float, float, float]]:
    """The radial polynomial a1 to a8, tangential p1 and p2, and the prism s1 to s4, by least squares."""
    angle = torch.linspace(0, widest(numbers[0]), _ANGLES + 1, dtype=torch.float64)[1:]
    around = torch.arange(_AROUND, dtype=torch.float64) * (2 * math.pi / _AROUND)
    angle, around = (values.flatten() for values in torch.meshgrid(angle, around, indexing="ij"))
    x, y, aside = angle * around.cos(), angle * around.sin(), angle.sin()
    directions = torch.stack([aside * around.cos(), aside * around.sin(), angle.cos()], dim=-1)
    wanted = projected(numbers, directions) - torch.stack([x, y], dim=-1)
    r2, none = angle.square(), torch.zeros_like(x)
    powers = [angle**k for k in range(1, _TERMS + 1)]
    along_x = [*(x * r for r in powers), 2 * x * y, r2 + 2 * x * x, r2, r2 * r2, none, none]
    along_y = [*(y * r for r in powers), r2 + 2 * y * y, 2 * x * y, none, none, r2, r2 * r2]
    rows = torch.cat([torch.stack(along_x, dim=1), torch.stack(along_y, dim=1)])
    weights = angle.square().repeat(2)[:, None]  # errors are largest far from the axis
    found = (
        torch.linalg.lstsq(weights * rows, weights * wanted.T.reshape(-1, 1), driver="gelsd").solution[:, 0].tolist()
    )
    radial, (p1, p2, s1, s2, s3, s4) = found[:_TERMS], found[_TERMS:]
    return tuple(radial), (p1, p2), (s1, s2, s3, s4)
