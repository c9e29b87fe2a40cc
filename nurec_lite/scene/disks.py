# SPDX-License-Identifier: Apache-2.0
"""Flat Gaussians on points: in the plane of their neighbours, as wide as the neighbours are apart."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.base.pool import in_parallel
from nurec_lite.base.ranges import span
from nurec_lite.config import ModelConfig
from nurec_lite.geometry.harmonics import DEGREE_0
from nurec_lite.geometry.se3 import matrix_to_quat
from nurec_lite.scene.gaussians import Gaussians, log_odds
from nurec_lite.scene.neighbours import nearest
from nurec_lite.scene.points import Points

NEIGHBOURS = 8
CHUNK = 1 << 17  # points whose axes one thread finds
AT_ONCE = 1 << 21  # points whose axes a GPU finds at a time
ROTATIONS = 5  # of each pair of axes; after four, the rest is below rounding
_PAIRS = ((0, 1), (0, 2), (1, 2))


def disks(
    parts: Sequence[Points],  # each with neighbours of its own, at least one point
    opacities: Sequence[float],  # of each part, 0 to 1
    config: ModelConfig,
) -> Gaussians:
    """Disks in the order of the parts. Their thin axis is the least principal axis of the neighbours."""
    with span("neighbours"):
        offsets, apart = (torch.cat(values) for values in zip(*map(_neighbourhood, parts), strict=True))
    with span("axes"):
        parted = offsets.split(CHUNK if offsets.device.type == "cpu" else AT_ONCE)
        axes = torch.cat(list(in_parallel(principal_axes, parted, offsets.device)))
    points, wide = Points.cat(parts), 0.6 * apart.clamp(0.01, 4.0)
    n = len(points)
    opacity = torch.cat([torch.full_like(p.intensity, o) for p, o in zip(parts, opacities, strict=True)])
    lidar = [points.intensity.clamp(0.02, 0.98), torch.full_like(opacity, 0.02)]
    return Gaussians(
        means=points.xyz.float(),
        quats=matrix_to_quat(axes).float(),
        log_scales=torch.stack([config.thickness * wide, wide, wide], dim=-1).float().log(),
        opacity_logits=log_odds(opacity),
        sh0=((points.colour - 0.5) / DEGREE_0)[:, None],
        sh_rest=opacity.new_zeros(n, (config.sh_degree + 1) ** 2 - 1, 3),
        lidar_logits=log_odds(torch.stack([*lidar, *([opacity] if config.lidar_opacity else [])], dim=-1)),
        node=points.node,
    )


def _neighbourhood(points: Points) -> tuple[Tensor, Tensor]:
    """Offsets of each point's neighbours from their mean [n, NEIGHBOURS, 3], and the distance between them [n], metres.
    Missing neighbours have zero offsets."""
    k = min(NEIGHBOURS, len(points))
    distances, index = nearest(points.xyz, points.xyz, k)
    around = points.xyz[index]
    apart = distances[:, 1:4].mean(1) if k > 1 else torch.full_like(distances[:, 0], 0.1)
    return F.pad(around - around.mean(1, keepdim=True), (0, 0, 0, NEIGHBOURS - k)), apart


def principal_axes(
    offsets: Tensor,  # [n, k, 3] of neighbours from their mean, float64
) -> Tensor:  # [n, 3, 3] columns from the least to the largest extent, right-handed
    """Principal axes of all points at once, by Jacobi's rotations (Golub and Van Loan, Matrix Computations, 8.5):
    libraries for GPUs take longer to load than this takes."""
    scatter = {(i, j): (offsets[..., i] * offsets[..., j]).sum(1) for i in range(3) for j in range(i, 3)}
    axes = list(torch.eye(3, dtype=offsets.dtype, device=offsets.device).expand(len(offsets), 3, 3).unbind(-1))
    for _ in range(ROTATIONS):
        for i, j in _PAIRS:
            _rotate(scatter, axes, i, j)
    order = torch.stack([scatter[i, i] for i in range(3)], dim=-1).argsort(dim=-1, stable=True)
    least, middle = (
        torch.stack(axes, dim=1).gather(1, order[:, c, None, None].expand(-1, 1, 3))[:, 0] for c in range(2)
    )
    return torch.stack([least, middle, torch.linalg.cross(least, middle)], dim=-1)


def _rotate(scatter: dict[tuple[int, int], Tensor], axes: list[Tensor], i: int, j: int) -> None:
    """Rotates in the plane of two axes, such that the element at (i, j) becomes zero."""
    a, b, c = scatter[i, i], scatter[j, j], scatter[i, j]
    none = c == 0
    slope = (b - a) / (2 * torch.where(none, 1.0, c))
    t = torch.where(none, 0.0, torch.where(slope < 0, -1.0, 1.0) / (slope.abs() + (1 + slope * slope).sqrt()))
    cosine = 1 / (1 + t * t).sqrt()
    sine, k = t * cosine, 3 - i - j
    scatter[i, i], scatter[j, j], scatter[i, j] = a - t * c, b + t * c, torch.zeros_like(c)
    left, right = (min(i, k), max(i, k)), (min(j, k), max(j, k))
    p, q = scatter[left], scatter[right]
    scatter[left], scatter[right] = cosine * p - sine * q, sine * p + cosine * q
    x, y = axes[i], axes[j]
    cosine, sine = cosine[:, None], sine[:, None]
    axes[i], axes[j] = cosine * x - sine * y, sine * x + cosine * y
