# SPDX-License-Identifier: Apache-2.0
"""Bounds of each Gaussian in the sensor's plane, and the order of depth.

The covariance in the plane comes from the unscented transform (3DGUT, Wu et al. 2025): seven points, mu and mu +- sqrt(3) s_k R_k,
go through the full sensor model with rolling shutter. With alpha 1, beta 2, kappa 0 the centre weighs 0 in the mean and 2 in the
covariance, the others 1/6. Bounds reach to where the response falls below 1/255: sqrt(2 ln(255 o)) standard deviations.
Bounds carry no gradient; gradients flow through the response.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nurec_lite.geometry.camera import Camera, view_limits
from nurec_lite.geometry.lidar import azimuth_elevation
from nurec_lite.geometry.se3 import quat_to_matrix
from nurec_lite.scene.gaussians import AnyGaussians
from nurec_lite.splat.views import CameraView, LidarView

NEAR = 0.2  # metres
ALPHA_MIN = 1 / 255


@dataclass(frozen=True)
class Projection:
    """V Gaussians that may be visible, nearest first (ties by index)."""

    index: Tensor  # [V] int64, into the Gaussians that were projected
    low: Tensor  # [V, 2] pixels, or azimuth and elevation in radians
    high: Tensor  # [V, 2] azimuths are not wrapped: low >= -2 pi, high <= 2 pi
    gaussians: AnyGaussians | None = None  # the projected Gaussians, for lists that test more than bounds
    seen: Tensor | None = None  # [N] uint8, not 0 for the V, where that is known
    # tests of exact lists of warp tiles: [N, 8] of a camera; [N, 16] of a lidar; its rays read them, too
    shapes: Tensor | None = None
    # for warp tiles, which read the values of all N in place, row index[k] for the k-th: low and high, or the part of a lidar's grid
    count: Tensor | None = None  # [1] int64, how many k
    bounds: Tensor | None = None  # [N, 4]
    candidates: tuple[Tensor, Tensor] | None = None  # [N, 8], and [N] how many they are
    warp_tiles: tuple[Any, Any] | None = (
        None  # of a lidar, which the candidates belong to, as nurec_lite.native has them
    )


@torch.no_grad()
def project(
    gaussians: AnyGaussians,
    view: CameraView | LidarView,
    capacity: int | None = None,  # entries of the lists that follow; not needed
) -> Projection:
    """Bounds of all Gaussians that may reach a ray of the view."""
    gaussians = gaussians.whole()
    means = gaussians.means - view.centre()
    reach = (2 * torch.log(gaussians.opacities / ALPHA_MIN).clamp(min=0)).sqrt()
    index = _in_front(means, reach * gaussians.scales.amax(-1), gaussians.velocities, view)
    index = index[reach[index] > 0]
    means, motion = means[index], gaussians.velocities[index]
    points = _sigma_points(means, gaussians.quats[index], gaussians.scales[index])
    places, depths = view.project(points, motion[:, None])
    low, high = _bounds(places, reach[index])
    if isinstance(view, LidarView):
        low, high = _over_the_seam(low, high, view.shifts(places[:, 0], means, motion), view)
    near = (_ahead(points, depths, view) < NEAR).any(-1)
    low, high = _widen(low, high, near, view)
    order = torch.argsort(_depth(means, view), stable=True)
    return Projection(index[order], low[order], high[order])


def _ahead(points: Tensor, depths: Tensor, view: CameraView | LidarView) -> Tensor:
    """[V, 7] depths, of an angular lens along the direction of the mean."""
    if isinstance(view, LidarView) or not view.camera.is_angular:
        return depths
    mean = points[:, :1]
    return (points * mean).sum(-1) / mean.norm(dim=-1).clamp(min=1e-6)


def _depth(means: Tensor, view: CameraView | LidarView) -> Tensor:
    """Camera z, or range of a lidar or an angular lens, of each mean in the middle of the view."""
    if isinstance(view, LidarView) or view.camera.is_angular:
        return means.norm(dim=-1)
    q, _ = view.pose(means.new_tensor(0.5))
    return means @ quat_to_matrix(q)[:, 2]


def _in_front(means: Tensor, radii: Tensor, motion: Tensor, view: CameraView | LidarView) -> Tensor:
    """Indices of the Gaussians with a bounding sphere that may reach a ray: a cheap test that spares most of them the transform."""
    local = view.to_sensor(means, means.new_full(means.shape[:-1], 0.5))
    radii = radii + 0.5 * (view.time_end - view.time_start) * motion.norm(dim=-1)
    radii = radii + 0.5 * (view.travel() + view.turning() * local.norm(dim=-1))
    inside = _in_cone(local, radii, view.camera) if isinstance(view, CameraView) else _near_rays(local, radii, view)
    return torch.nonzero(inside).squeeze(-1)


def _in_cone(local: Tensor, radii: Tensor, camera: Camera) -> Tensor:
    if not camera.is_plain:
        return _in_round_cone(local, radii, camera)
    x, y, z = local.unbind(-1)
    margin = 1.3 if camera.distortion else 1.0  # distortion widens the cone
    tan_x = margin * max(camera.cx, camera.width - camera.cx) / camera.fx
    tan_y = margin * max(camera.cy, camera.height - camera.cy) / camera.fy
    inside_x = x.abs() - tan_x * z < radii * math.hypot(1, tan_x)
    inside_y = y.abs() - tan_y * z < radii * math.hypot(1, tan_y)
    return (z + radii > NEAR) & inside_x & inside_y


def _in_round_cone(local: Tensor, radii: Tensor, camera: Camera) -> Tensor:
    """Whether a sphere touches the cone about the camera's axis that holds the image."""
    distance, aside = local.norm(dim=-1), torch.hypot(local[..., 0], local[..., 1])
    angle = torch.atan2(aside, local[..., 2]) - torch.asin((radii / distance.clamp(min=1e-6)).clamp(max=1))
    depth = distance if camera.is_angular else local[..., 2]
    return (depth + radii > NEAR) & ((angle < view_limits(camera)[1]) | (radii >= distance))


def _near_rays(local: Tensor, radii: Tensor, view: LidarView) -> Tensor:
    """Whether a sphere, seen from the sensor, touches a cell that holds a ray: counted with a summed-area table over the cells."""
    cells = view.lidar.cells(closed=True)
    n = cells.columns
    table = _summed_area(torch.bincount(cells.of(view.directions), minlength=len(cells)).view(-1, n) > 0)
    azimuth, elevation = azimuth_elevation(local).unbind(-1)
    angle = torch.asin((1.2 * radii / local.norm(dim=-1).clamp(min=1e-6)).clamp(max=1))
    around = 1.2 * angle / torch.cos(elevation.abs() + angle).clamp(min=1e-6)  # beyond a pole, all around
    around = torch.where(angle > 1, torch.full_like(angle, math.pi), around)
    first, last = (cells.column(azimuth + sign * around.clamp(max=math.pi)) + n for sign in (-1, 1))
    low, high = cells.band(elevation - 1.2 * angle), cells.band(elevation + 1.2 * angle) + 1
    first, last = (first - 1).clamp(min=0), (last + 2).clamp(max=3 * n)
    return table[high, last] - table[low, last] - table[high, first] + table[low, first] > 0


def _summed_area(
    occupied: Tensor,  # [B, n] bool
) -> Tensor:  # [B + 1, 3 n + 1] counts of three turns side by side, so that windows may wrap
    counts = occupied.int().repeat(1, 3).cumsum(0).cumsum(1)
    return torch.nn.functional.pad(counts, (1, 0, 1, 0))


def _sigma_points(means: Tensor, quats: Tensor, scales: Tensor) -> Tensor:
    """[V, 7, 3]: the mean, then mu + and mu - sqrt(3) s_k R_k."""
    steps = (math.sqrt(3) * quat_to_matrix(quats) * scales[:, None, :]).transpose(-1, -2)
    return torch.cat([means[:, None], means[:, None] + steps, means[:, None] - steps], dim=1)


def _bounds(places: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    mean = places[:, 1:].mean(1)
    spread = (places[:, 1:] - mean[:, None]).square().mean(1) + 2 * (places[:, 0] - mean).square()
    extent = reach[:, None] * spread.sqrt()
    return mean - extent, mean + extent


def _over_the_seam(low: Tensor, high: Tensor, shifts: Tensor, view: LidarView) -> tuple[Tensor, Tensor]:
    """Bounds over a sweep's seam: a sweep ends at the azimuth where it begins, so a moving Gaussian there is seen
    twice, from either pose, and gets both places. A lidar that does not spin may look anywhere at any time of the sweep."""
    lower, upper = low + shifts.amin(1).clamp(max=0), high + shifts.amax(1).clamp(min=0)
    turns = ((torch.stack([lower[:, 0], upper[:, 0]]) - view.lidar.azimuth_start) / (2 * math.pi)).floor()
    crosses = (turns[0] != turns[1])[:, None] | (not view.lidar.spins)
    return torch.where(crosses, lower, low), torch.where(crosses, upper, high)


def _widen(low: Tensor, high: Tensor, near: Tensor, view: CameraView | LidarView) -> tuple[Tensor, Tensor]:
    """A Gaussian with a sigma point nearer than NEAR gets the whole plane: nothing linear holds there."""
    if isinstance(view, LidarView):
        full_low, full_high = low.new_tensor([-math.pi, -math.pi / 2]), low.new_tensor([math.pi, math.pi / 2])
    else:
        full_low, full_high = low.new_zeros(2), low.new_tensor([view.camera.width, view.camera.height])
    broken = near | ~torch.isfinite(low + high).all(-1)
    return torch.where(broken[:, None], full_low, low), torch.where(broken[:, None], full_high, high)
