# SPDX-License-Identifier: Apache-2.0
"""What the lidar does not reach: surfaces above its highest beam, a far shell, and the sky."""

import math
from functools import partial

import torch
from torch import Tensor

from nurec_lite.base.pool import in_threads
from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import pixel_directions
from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation, unit_directions
from nurec_lite.geometry.se3 import interpolate_between, quat_to_matrix
from nurec_lite.scene.points import Points, colours_at

COLUMNS = 1024  # of azimuth, in which the highest return is looked for
TOP_DEGREES = 30.0  # up to which elevation surfaces are continued
STEP_DEGREES = 0.5
BELOW_TOP_DEGREES = 3.0


def raised_points(capture: Capture) -> Points:
    """Walls, trees and poles continued upwards: above the highest return of each direction, at its horizontal distance.

    Kept where a training image of the same moment sees them, with its colour; nothing says how high the surface really is.
    """
    assert capture.split is not None
    parts = in_threads(partial(_raise, capture), [capture.sweeps[i] for i in capture.split.train_sweeps])
    return Points.cat([Points.empty(), *(part.select(part.coloured) for part in parts)])


def _raise(capture: Capture, frame: SweepFrame) -> Points:
    sweep, lidar = _highest_returns(frame.load(), capture.lidar(frame.sensor)), capture.lidar(frame.sensor)
    elevation = azimuth_elevation(sweep.directions)[:, 1].double()
    foot, flat = torch.tan(elevation)[:, None], (sweep.ranges.double() * torch.cos(elevation))[:, None]
    rise = torch.tan(torch.deg2rad(torch.arange(STEP_DEGREES, TOP_DEGREES, STEP_DEGREES, dtype=torch.float64)))
    which, step = torch.nonzero(rise > foot, as_tuple=True)
    xyz = world_points(frame, sweep, lidar)[which]
    xyz[:, 2] += ((rise - foot) * flat)[which, step]
    colour, seen = colours_at(capture, frame.index, xyz)
    return Points(xyz, torch.zeros(len(xyz), dtype=torch.int64), colour, seen, torch.full((len(xyz),), 0.1))


def _highest_returns(sweep: Sweep, lidar: Lidar) -> Sweep:
    """The highest return of each column of azimuth, where it is one of the highest beams': the beams above a lower one passed by."""
    elevation = azimuth_elevation(sweep.directions)[:, 1]
    sweep = sweep.select(sweep.returned & (elevation > lidar.elevations.max() - math.radians(BELOW_TOP_DEGREES)))
    azimuth, elevation = azimuth_elevation(sweep.directions).unbind(-1)
    column = ((azimuth / (2 * math.pi) + 0.5) * COLUMNS).long().clamp(0, COLUMNS - 1)
    order = torch.argsort(elevation, stable=True)
    rank = torch.full((COLUMNS,), -1).scatter_reduce(0, column[order], torch.arange(len(order)), "amax")
    return sweep.select(order[rank[rank >= 0]])


def far_points(
    capture: Capture,
    path: Tensor,  # [n, 3] metres, positions of the vehicle
    n: int,
    far_metres: float,
    seed: int,
) -> Points:
    """Up to n points over the upper half space, evenly in inverse distance from 15 m to far_metres, where images see them."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(n, 3, generator=generator, dtype=torch.float64)
    angles = torch.stack([2 * math.pi * u[:, 0], torch.asin(-0.05 + 0.65 * u[:, 1])], dim=-1)
    distance = 1 / (1 / far_metres + u[:, 2] * (1 / 15.0 - 1 / far_metres))
    origin = path[torch.randint(len(path), (n,), generator=generator)]
    xyz = origin + distance[:, None] * unit_directions(angles)
    assert capture.split is not None
    points = Points(
        xyz,
        torch.zeros(n, dtype=torch.int64),
        torch.full((n, 3), 0.5),
        torch.zeros(n, dtype=torch.bool),
        torch.full((n,), 0.1),
    )
    for index in sorted({capture.images[i].index for i in capture.split.train_images}):
        missing = torch.nonzero(~points.coloured).squeeze(-1)
        points.colour[missing], points.coloured[missing] = colours_at(capture, index, xyz[missing])
    return points.select(points.coloured)


def panorama(
    capture: Capture,
    height: int,  # rows; twice as many columns
) -> Tensor:  # [3, height, 2 height] logits, laid out as in `scene.sky`
    """Mean colour of the training images by direction: what stands before the sky is there too, and fades as it is modelled."""
    total, count = torch.zeros(2 * height * height, 3), torch.zeros(2 * height * height)
    assert capture.split is not None
    frames = [capture.images[i] for i in capture.split.train_images]
    for place, colour in in_threads(partial(_by_direction, capture, height), frames):
        total.index_add_(0, place, colour)
        count += torch.bincount(place, minlength=len(count))
    seen = count > 0
    mean = total.sum(0) / count.sum() if bool(seen.any()) else torch.full((3,), 0.5)
    colour = torch.where(seen[:, None], total / count.clamp(min=1)[:, None], mean)
    return torch.logit(colour, eps=0.02).T.reshape(3, height, 2 * height)


def _by_direction(
    capture: Capture,
    height: int,
    frame: ImageFrame,
) -> tuple[Tensor, Tensor]:  # of each pixel the place in the panorama [P], the colour [P, 3] 0 to 1
    camera, width = capture.camera(frame.sensor), 2 * height
    half = torch.tensor(0.5, dtype=torch.float64)
    T_start, T_end = (T @ camera.T_rig_cam for T in (frame.T_world_rig_start, frame.T_world_rig_end))
    q, _ = interpolate_between(T_start, T_end, half)
    directions = pixel_directions(camera).flatten(0, 1) @ quat_to_matrix(q.float()).T
    azimuth, elevation = azimuth_elevation(directions).unbind(-1)
    column = ((0.5 - azimuth / (2 * math.pi)) * width).long().clamp(0, width - 1)
    row = ((0.5 - elevation / math.pi) * height).long().clamp(0, height - 1)
    return row * width + column, frame.load().flatten(0, 1).float() / 255
