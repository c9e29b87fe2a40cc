# SPDX-License-Identifier: Apache-2.0
"""The scene beyond the lidar's reach: surfaces above its highest beam, a far shell, and the sky."""

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.base.transfer import upload
from nurec_lite.geometry.camera import pixel_directions
from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation, unit_directions
from nurec_lite.geometry.masks import mask_on
from nurec_lite.scene.pictures import Picture

COLUMNS = 1024  # of azimuth, each searched for the highest return
TOP_DEGREES = 30.0  # highest elevation of continued surfaces
STEP_DEGREES = 0.5
BELOW_TOP_DEGREES = 3.0
PIXELS_A_CELL = 4  # of a row or column of an image, that are taken for the sky where there are more


def raised_positions(
    sweep: Sweep,  # R rays that returned, on any device, where the result is, too
    world: Tensor,  # [R, 3] metres, their returns, float64
    lidar: Lidar,
) -> Tensor:  # [n, 3] metres, world, float64
    """Walls, trees and poles continued upwards: above the highest return of each direction, at its horizontal distance.

    Nothing says how high the surface really is.
    """
    highest, elevation = _highest_returns(sweep, lidar)
    foot, flat = torch.tan(elevation)[:, None], (sweep.ranges[highest].double() * torch.cos(elevation))[:, None]
    rise = _rises(flat.device)
    which, step = torch.nonzero(rise > foot, as_tuple=True)
    xyz = world[highest[which]]
    xyz[:, 2].add_(((rise - foot) * flat)[which, step])
    return xyz


@lru_cache(maxsize=8)
def _rises(device: torch.device) -> Tensor:  # [steps] tangents of elevations, kept on the device
    steps = torch.arange(STEP_DEGREES, TOP_DEGREES, STEP_DEGREES, dtype=torch.float64)
    return upload(torch.tan(torch.deg2rad(steps)), device)


def _highest_returns(sweep: Sweep, lidar: Lidar) -> tuple[Tensor, Tensor]:
    """Number and elevation of the highest return of each column of azimuth, if it is near the highest beam: above a lower return, beams
    went past the surface."""
    lowest = float(lidar.elevations.max()) - math.radians(BELOW_TOP_DEGREES)
    azimuth, elevation = azimuth_elevation(sweep.directions).unbind(-1)
    high = torch.nonzero(elevation > lowest).squeeze(-1)
    column = ((azimuth[high] / (2 * math.pi) + 0.5) * COLUMNS).long().clamp(0, COLUMNS - 1)
    order = torch.argsort(elevation[high], stable=True)
    place = torch.arange(len(order), device=order.device)
    rank = torch.full((COLUMNS,), -1, device=order.device).scatter_reduce(0, column[order], place, "amax")
    highest = high[order[rank[rank >= 0]]]
    return highest, elevation[highest].double()


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
    rotations = torch.stack([p.T_cam_world for p in pictures])[:, :3, :3].float()
    some = [_sampled(*pair, height) for pair in zip(pictures, rotations, strict=True)]
    rays, values = (torch.cat(parts) for parts in zip(*some, strict=True))
    azimuth, elevation = azimuth_elevation(rays).unbind(-1)
    column = ((0.5 - azimuth / (2 * math.pi)) * (2 * height)).long().clamp(0, 2 * height - 1)
    row = ((0.5 - elevation / math.pi) * height).long().clamp(0, height - 1)
    return sums.scatter_add_(1, (row * (2 * height) + column).expand(4, -1), values.long().T)


def _sampled(picture: Picture, rotation: Tensor, height: int) -> tuple[Tensor, Tensor]:
    """Directions in the world [n, 3] of every few pixels, and their colours and 1 [n, 4] uint8; zeros where they do not show the scene."""
    camera, device, stride = picture.camera, picture.image.device, _stride(picture, height)
    some = (slice(stride // 2, None, stride),) * 2
    directions, colours = (v[some].flatten(0, 1) for v in (pixel_directions(camera, device=device), picture.image))
    values = F.pad(colours, (0, 1), value=1)
    if camera.mask is not None:
        values *= ~mask_on(camera.mask, device)[some].reshape(-1, 1)
    return directions @ rotation, values


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
