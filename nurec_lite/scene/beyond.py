# SPDX-License-Identifier: Apache-2.0
"""The scene beyond the lidar's reach: surfaces above its highest beam, a far shell, and the sky."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.types import SweepFrame
from nurec_lite.geometry.camera import pixel_directions
from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation, unit_directions
from nurec_lite.geometry.masks import mask_on
from nurec_lite.geometry.steady import SteadyMotion
from nurec_lite.scene.pictures import Picture

COLUMNS = 1024  # of azimuth, each searched for the highest return
TOP_DEGREES = 30.0  # highest elevation of continued surfaces
STEP_DEGREES = 0.5
BELOW_TOP_DEGREES = 3.0
PIXELS_A_CELL = 4  # of a row or column of an image, that are taken for the sky where there are more


def raised_positions(
    frame: SweepFrame,
    sweep: Sweep,  # on any device, where the result is, too
    lidar: Lidar,
    motion: SteadyMotion | None = None,  # of the rig, if it is known
) -> Tensor:  # [n, 3] metres, world, float64
    """Walls, trees and poles continued upwards: above the highest return of each direction, at its horizontal distance.

    Nothing says how high the surface really is.
    """
    sweep = _highest_returns(sweep, lidar)
    elevation = azimuth_elevation(sweep.directions)[:, 1].double()
    foot, flat = torch.tan(elevation)[:, None], (sweep.ranges.double() * torch.cos(elevation))[:, None]
    steps = torch.arange(STEP_DEGREES, TOP_DEGREES, STEP_DEGREES, dtype=torch.float64, device=flat.device)
    rise = torch.tan(torch.deg2rad(steps))
    which, step = torch.nonzero(rise > foot, as_tuple=True)
    xyz = world_points(frame, sweep, lidar, motion)[which]
    xyz[:, 2] += ((rise - foot) * flat)[which, step]
    return xyz


def _highest_returns(sweep: Sweep, lidar: Lidar) -> Sweep:
    """The highest return of each column of azimuth, if it is near the highest beam: above a lower return, beams went past the surface."""
    lowest = float(lidar.elevations.max()) - math.radians(BELOW_TOP_DEGREES)
    azimuth, elevation = azimuth_elevation(sweep.directions).unbind(-1)
    high = torch.nonzero(sweep.returned & (elevation > lowest)).squeeze(-1)
    column = ((azimuth[high] / (2 * math.pi) + 0.5) * COLUMNS).long().clamp(0, COLUMNS - 1)
    order = torch.argsort(elevation[high], stable=True)
    place = torch.arange(len(order), device=order.device)
    rank = torch.full((COLUMNS,), -1, device=order.device).scatter_reduce(0, column[order], place, "amax")
    return sweep.select(high[order[rank[rank >= 0]]])


def far_positions(
    path: Tensor,  # [m, 3] metres, positions of the vehicle
    n: int,
    far_metres: float,
    seed: int,
) -> Tensor:  # [n, 3] metres, world, float64
    """Points over the upper half space, evenly in inverse distance from 15 m to far_metres."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(n, 3, generator=generator, dtype=torch.float64)
    angles = torch.stack([2 * math.pi * u[:, 0], torch.asin(-0.05 + 0.65 * u[:, 1])], dim=-1)
    distance = 1 / (1 / far_metres + u[:, 2] * (1 / 15.0 - 1 / far_metres))
    return path[torch.randint(len(path), (n,), generator=generator)] + distance[:, None] * unit_directions(angles)


# ---- the sky


def sky_sums(
    pictures: Sequence[Picture],  # on one device
    height: int,  # rows of the panorama; twice as many columns
    device: torch.device,
) -> Tensor:  # [4, 2 height^2] int64 of each place: red, green and blue added up, and how many pixels
    """Sums of colours by direction. They are whole numbers, so the order of addition does not matter."""
    sums = torch.zeros(4, 2 * height * height, dtype=torch.int64, device=device)
    if not pictures:
        return sums
    some = [_sampled(*pair, height) for pair in zip(pictures, _rotations(pictures), strict=True)]
    rays, colours, seen = (torch.cat(parts) for parts in zip(*some, strict=True))
    azimuth, elevation = azimuth_elevation(rays).unbind(-1)
    column = ((0.5 - azimuth / (2 * math.pi)) * 2 * height).long().clamp(0, 2 * height - 1)
    row = ((0.5 - elevation / math.pi) * height).long().clamp(0, height - 1)
    values = torch.cat([colours * seen[:, None], seen[:, None]], dim=1).long()
    return sums.index_add_(1, row * 2 * height + column, values.T)


def _rotations(pictures: Sequence[Picture]) -> Tensor:  # [F, 3, 3] float32, camera to world in the middle of each image
    motion = SteadyMotion.stack([p.motion for p in pictures])
    axes = torch.stack([p.camera.T_rig_cam[:3, :3].T for p in pictures]).to(motion.turns)
    return motion.rotated(axes, torch.full_like(axes[..., 0], 0.5)).transpose(1, 2).float()


def _sampled(picture: Picture, rotation: Tensor, height: int) -> tuple[Tensor, Tensor, Tensor]:
    """Directions in the world [n, 3] of every few pixels, their colours [n, 3] uint8, and whether each shows the scene [n]."""
    camera, device, stride = picture.camera, picture.image.device, _stride(picture, height)
    some = (slice(stride // 2, None, stride),) * 2
    directions, colours = (v[some].flatten(0, 1) for v in (pixel_directions(camera, device=device), picture.image))
    if camera.mask is None:
        return directions @ rotation.T, colours, torch.ones_like(colours[:, 0], dtype=torch.bool)
    return directions @ rotation.T, colours, ~mask_on(camera.mask, device)[some].flatten()


def _stride(picture: Picture, height: int) -> int:
    """Returns the stride in pixels that still gives a place of the panorama several pixels a row."""
    pixels = math.pi / height * min(picture.camera.fx, picture.camera.fy)
    return max(1, min(int(pixels / PIXELS_A_CELL), picture.camera.width, picture.camera.height))


def panorama(
    sums: Tensor,  # [4, 2 height^2], of all images
    height: int,
) -> Tensor:  # [3, height, 2 height] logits, laid out as in `scene.sky`
    """Mean colour of the images by direction: it includes objects before the sky, which fade as they are modelled."""
    total, count = sums[:3].double() / 255, sums[3]
    mean = torch.where(count.sum() > 0, total.sum(1) / count.sum().clamp(min=1), 0.5)
    colour = torch.where(count > 0, total / count.clamp(min=1), mean[:, None])
    return torch.logit(colour.float(), eps=0.02).reshape(3, height, 2 * height)
