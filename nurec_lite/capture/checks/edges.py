# SPDX-License-Identifier: Apache-2.0
"""Agreement of edges in a lidar's sweep with edges of an image.

Where a sweep's range jumps from one ray to the next a surface ends, and an image often shows an edge there. Source: Levinson and Thrun,
Automatic Online Calibration of Cameras and Lasers (RSS 2013). An edge has a strength (its highest mean is sharp) and a rank among all
pixels of its row: points that lie anywhere have the rank 0.5 in the mean in any image. Letters: P points, T turns.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.capture.checks.ordered import Ordered
from nurec_lite.capture.deskew import poses_at, project_world_points, world_points
from nurec_lite.capture.images import grey
from nurec_lite.capture.types import ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera, project_points, shutter_fraction
from nurec_lite.geometry.lidar import Lidar, Sweep
from nurec_lite.geometry.se3 import invert, transform

JUMP = 0.5  # metres, and
RATIO = 0.1  # of the nearer range, and
SLANT = 5.7  # of it for each radian between two rays, as on a surface that is slanted by 80 degrees: less is a slanted surface
LEVEL = 0.2  # steps of azimuth that neighbours without a common beam may lie above one another: more, and the ground is an edge
GAP = 3  # steps of azimuth between two rays that are neighbours
PIXEL = 0.12  # degrees: images are reduced to pixels of about this angle
NEAREST = 1.0  # metres from the camera: points that are nearer tell nothing
OUTSIDE = 2.0  # of the image, which reaches from -1 to 1


@dataclass(frozen=True)
class View:
    """An image, and the edges that lidars saw at its moment."""

    frame: ImageFrame
    points: Tensor  # [P, 3] metres, world, float64
    strengths: Tensor  # [h, w] of the image's edges, see `image_edges`
    ranks: Tensor  # [h, w] of the same, from 0 to 1 in each row


def edge_points(
    frame: SweepFrame,
    rays: Ordered,  # of the frame
    lidar: Lidar,
) -> Tensor:  # [P, 3] metres, world
    return world_points(frame, edge_rays(rays, lidar), lidar)


def edge_rays(
    rays: Ordered,
    lidar: Lidar,
) -> Sweep:  # P rays between two of a beam, with the nearer one's range
    sweep, azimuth, order = rays.sweep, rays.azimuth, rays.order
    rings, ranges, returned = (values[order] for values in (sweep.rings, sweep.ranges, sweep.returned))
    jump, nearer = ranges.diff().abs(), torch.minimum(ranges[1:], ranges[:-1])
    apart = azimuth[order].diff()
    close = apart < GAP * 2 * math.pi / lidar.azimuth_steps
    if not lidar.spins:
        close &= rays.elevation[order].diff().abs() < LEVEL * 2 * math.pi / lidar.azimuth_steps
    edge = close & (rings[1:] == rings[:-1]) & returned[1:] & returned[:-1]
    edge &= (jump > JUMP) & (jump > (SLANT * apart).clamp(min=RATIO) * nearer)
    at = edge.nonzero()[:, 0]
    a, b = sweep.select(order[at]), sweep.select(order[at + 1])
    middle = F.normalize(a.directions + b.directions, dim=1)
    times = 0.5 * (a.times + b.times)
    return Sweep(middle, nearer[at], a.intensities, times, a.rings, a.returned)


def pixel_degrees(camera: Camera) -> float:
    """The angle of a pixel in the middle of the image."""
    return math.degrees(1 / camera.fx)


def image_edges(
    image: Tensor,  # [H, W, 3] uint8
    camera: Camera,  # of the image
) -> Tensor:  # [h, w] how much the image changes from left to right, a little blurred, 1 in the mean
    shown = grey(image)
    scale = min(1.0, pixel_degrees(camera) / PIXEL)
    size = [max(1, min(round(n * scale), m)) for n, m in zip((camera.height, camera.width), shown.shape, strict=True)]
    shown = F.adaptive_avg_pool2d(shown[None], (size[0], size[1]))[0]
    change = (shown[:, 2:] - shown[:, :-2]).abs()
    change = F.pad(change, (1, shown.shape[1] - 1 - change.shape[1]))
    wide = F.pad(change, (1, 1, 1, 1))
    rows = wide[:-2] + wide[1:-1] + wide[2:]
    blurred = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
    return blurred / blurred.mean().clamp(min=1e-6)


def ranks(
    values: Tensor,  # [h, w] float32, none negative
) -> Tensor:  # [h, w] share of the row that is less; of equal ones half
    """Sorts integers that hold the first bits of a value and its column: a third of the time that values with their columns take."""
    bits = max(1, (values.shape[1] - 1).bit_length())
    column = np.arange(values.shape[1], dtype=np.uint32)
    keys = np.sort(values.contiguous().numpy().view(np.uint32) >> bits << bits | column, axis=1)
    order = torch.from_numpy((keys & np.uint32((1 << bits) - 1)).astype(np.int64))
    rows = torch.from_numpy((keys >> bits).astype(np.int32))
    places = torch.arange(rows.shape[1], dtype=torch.float32).expand(rows.shape)
    new = F.pad(rows[:, 1:] != rows[:, :-1], (1, 1), value=True)
    first = places.where(new[:, :-1], 0).cummax(1).values  # of those that are equal
    last = places.where(new[:, 1:], rows.shape[1]).flip(1).cummin(1).values.flip(1)
    return torch.empty_like(values).scatter_(1, order, (first + last + 1) / (2 * rows.shape[1]))


def in_camera(
    camera: Camera,
    frame: ImageFrame,
    world: Tensor,  # [P, 3] metres
) -> Tensor:  # [p, 3] float32: those within the image, in the camera's axes at the time when they are read
    if camera.shutter == "global":
        return seen_from(camera, poses_at(frame, torch.tensor([0.5], dtype=torch.float64))[0], world)
    pixels, depth = project_world_points(camera, frame, world)
    inside = within(camera, pixels, depth)
    T = invert(poses_at(frame, shutter_fraction(camera, pixels[inside])) @ camera.T_rig_cam)
    return transform(T, world[inside, None])[:, 0].float()


def seen_from(
    camera: Camera,
    T_world_rig: Tensor,  # [4, 4] when the whole image is exposed
    world: Tensor,  # [P, 3] metres
) -> Tensor:  # [p, 3] float32: those within the image, in the camera's axes
    points = transform(invert(T_world_rig @ camera.T_rig_cam), world)
    return points[within(camera, *project_points(camera, points))].float()


def within(
    camera: Camera,
    pixels: Tensor,  # [..., P, 2]
    depth: Tensor,  # [..., P] metres
) -> Tensor:  # [..., P] whether the image shows them
    return ((pixels > 0) & (pixels < torch.tensor([camera.width, camera.height]))).all(-1) & (depth > NEAREST)


def turned(
    points: Tensor,  # [..., P, 3] in the camera's axes
    degrees: Tensor,  # [T]
) -> Tensor:  # [T, ..., P, 3] as a camera has them that looks so much farther left
    angle, (x, y, z) = torch.deg2rad(degrees).view(-1, *[1] * (points.dim() - 1)), points.unbind(-1)
    c, s = angle.cos(), angle.sin()
    return torch.stack([c * x + s * z, y.expand(len(degrees), *y.shape), c * z - s * x], dim=-1)


def places_of(
    camera: Camera,
    points: Tensor,  # [..., P, 3] in the camera's axes
) -> tuple[Tensor, Tensor]:  # [..., P, 2] in the image, from -1 to 1, and [..., P] whether they fall into it
    pixels, depth = project_points(camera, points)
    places = 2 * pixels / torch.tensor([camera.width, camera.height]) - 1
    places = torch.where(depth[..., None] > 0, places, OUTSIDE)
    return places, (places.abs() < 1).all(-1)


def edges_at(
    camera: Camera,
    edges: Tensor,  # [h, w]
    points: Tensor,  # [..., P, 3] in the camera's axes
) -> tuple[
    Tensor, Tensor
]:  # mean edge [...] of the pixels where points fall, and the share [...] of points that fall into the image
    places, inside = places_of(camera, points)
    found = F.grid_sample(edges[None, None], places.flatten(0, -3)[None], padding_mode="border", align_corners=False)
    found = torch.where(inside, found[0, 0].view(inside.shape), 0)
    return found.sum(-1) / inside.sum(-1).clamp(min=1), inside.float().mean(-1)


def thinned(
    points: Tensor,  # [P, 3]
    most: int,
) -> Tensor:  # [p, 3] at most so many of them, evenly
    return points[:: max(1, -(-len(points) // most))]
