# SPDX-License-Identifier: Apache-2.0
"""Sweeps of KITTI raw's HDL-64E: ring and time of every point, and the rays that did not return.

A `.bin` file holds x, y, z, reflectance as float32, ring after ring from the top one to the bottom one. A ring is stored by
increasing azimuth from 0 (forward) to 2 pi, only points that returned are stored, and nothing is motion compensated. The
sensor turns the other way: it starts behind (azimuth pi), faces forward half a period later, and ends behind (-pi).
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.files import read_bytes
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.lidar import Sweep, azimuth_elevation, unit_directions

TURN = 2 * math.pi
N_BEAMS = 64
_BACKWARD = math.radians(2)  # noise: real files step back by up to 0.02 degrees within a ring
_GAP = 1.5  # nominal steps; a longer step lacks rays
_GROUND = math.radians(-8)  # rays below reach the ground within 13 m, so nearly all return
_FINEST = TURN / 8192  # radians between rays; at 5 turns a second a beam sends 4000
_FARTHEST = 250.0  # metres, twice what the sensor sees
_VEHICLE = (2.5, 1.6)  # metres: returns within +-x, +-y of the lidar are the vehicle's own roof, mirrors and bonnet


def read_points(
    path: Path,
) -> Tensor:  # [n, 4] float64: x, y, z in metres, lidar frame, and reflectance
    data = read_bytes(path, "restore the file")
    if len(data) % 16:
        raise CaptureError(f"{path} is {len(data)} bytes long, not a multiple of 16; it is truncated, copy it again")
    points = torch.from_numpy(np.frombuffer(data, dtype="<f4").reshape(-1, 4).astype("f4")).double()
    square = points[:, :3].square().sum(dim=1)
    odd = ~((square <= _FARTHEST**2) & (points[:, 3] >= 0) & (points[:, 3] <= 1))  # NaN is odd, too
    if odd.any():
        first = int(odd.nonzero()[0])
        raise CaptureError(
            f"{path} point {first} is {', '.join(f'{v:.3g}' for v in points[first].tolist())}, but must lie within "
            f"{_FARTHEST:g} m and reflect 0 to 1; copy it again"
        )
    points = points[square > 0]
    if not len(points):
        raise CaptureError(f"{path} holds no point but the origin; copy it again, or remove the file")
    return points


def find_rings(
    azimuth: Tensor,  # [n] radians, in the order of the file
    n_beams: int = N_BEAMS,
    name: str = "sweep",  # for messages
) -> Tensor:  # [n] int64, 0 at the top
    """Every step goes forward, so a step that seems to go back by more than noise begins the next turn: the next ring.

    A ring without a single return leaves no trace. Only the top rings, which may see nothing but sky, are ever empty, so
    rings are numbered such that the last one found is the lowest beam.
    """
    start = azimuth[:1] % TURN
    step = torch.diff(azimuth) % TURN
    step = torch.where(step > TURN - _BACKWARD, step - TURN, step)
    turns = torch.cat([start, start + step.cumsum(0)]).div(TURN).floor().long()
    turns = turns.cummax(0).values  # noise at azimuth 0 must not go back to the ring before
    n_turns = int(turns[-1] - turns[0]) + 1
    if n_turns > 2 * n_beams:
        raise CaptureError(
            f"{name} goes round {n_turns} times, but the lidar has {n_beams} beams; keep the points in the order of KITTI raw"
        )
    return (turns - turns[-1] + n_beams - 1).clamp(0, n_beams - 1)


def beam_elevations(
    elevation: Tensor,  # [n] radians, in the order of the file
    rings: Tensor,  # [n] not decreasing
    n_beams: int = N_BEAMS,
) -> (
    Tensor
):  # [n_beams] median elevation of each ring; rings that no point belongs to continue their neighbours' spacing
    counts = torch.bincount(rings, minlength=n_beams)
    found = counts.nonzero()[:, 0]
    medians = torch.stack([ring.median() for ring in elevation.split(counts[found].tolist())])
    spacing = (medians[0] - medians[-1]) / (found[-1] - found[0]).clamp(min=1)
    above = (medians[0] + spacing * (found[0] - torch.arange(n_beams))).clamp(-math.pi / 2, math.pi / 2)
    inside = torch.from_numpy(np.interp(np.arange(n_beams), found.numpy(), medians.numpy()))
    return torch.where(torch.arange(n_beams) < found[0], above, inside)


def missing_angles(
    angles: Tensor,  # [n, 2] azimuth and elevation, in the order of the file
    rings: Tensor,  # [n]
) -> tuple[Tensor, Tensor]:  # angles [m, 2] and rings [m] of the rays that did not return
    """Fills each gap between neighbours of a ring with rays one step apart, at an elevation interpolated across the gap.

    The step is the mean of the steps that are no gaps: the encoder is quantised to 0.09 degrees, so single steps are uneven.
    """
    after = _next_in_ring(rings)
    gap = (angles[after, 0] - angles[:, 0]) % TURN
    gap = torch.where(gap > TURN - _BACKWARD, torch.zeros_like(gap), gap)
    gap = torch.where(after == torch.arange(len(after)), torch.full_like(gap, TURN), gap)
    nominal = (
        gap[gap < _GAP * gap.median()].mean().clamp(min=_FINEST)
    )  # NaN where equal angles have no mean step: no rays
    n_steps = torch.where(gap > _GAP * nominal, (gap / nominal).round(), torch.ones_like(gap)).long()
    left = torch.repeat_interleave(torch.arange(len(gap)), n_steps - 1)
    first = (n_steps - 1).cumsum(0) - (n_steps - 1)
    fraction = (torch.arange(len(left)) - first[left] + 1).double() / n_steps[left]
    azimuth = angles[left, 0] + fraction * gap[left]
    elevation = torch.lerp(angles[left, 1], angles[after[left], 1], fraction)
    return torch.stack([torch.remainder(azimuth + math.pi, TURN) - math.pi, elevation], dim=-1), rings[left]


def _next_in_ring(
    rings: Tensor,  # [n] not decreasing
) -> Tensor:  # [n] index of the following point of the same ring; the last point's successor is the first
    n = len(rings)
    first = torch.searchsorted(rings, rings)
    last = torch.searchsorted(rings, rings, right=True) - 1
    index = torch.arange(n)
    return torch.where(index == last, first, index + 1)


def survey(
    paths: list[Path],  # sweeps spread over the drive
    n_beams: int = N_BEAMS,
) -> tuple[Tensor, Tensor]:  # elevations [n_beams] in radians, blocked [n_beams, 360] bool
    """What holds for all sweeps: the beams' elevations, and the directions in which the vehicle itself stands in the way.

    A laser does not sit in the origin, so the elevation of its points changes with their range, by half a degree from street to
    street: the median over sweeps is taken. `blocked` is by ring and degree of azimuth from -180: rays that point at the ground
    and yet never return tell nothing about the scene. A degree to either side counts, too, because the edge may lie within it.
    """
    seen = torch.zeros(n_beams, 360, dtype=torch.bool)
    elevations = []
    for path in paths:
        points = read_points(path)
        angles = azimuth_elevation(points[:, :3])
        rings = find_rings(angles[:, 0], n_beams, str(path))
        outside = ~on_vehicle(points)
        seen[rings[outside], _degree(angles[outside, 0])] = True
        elevations.append(beam_elevations(angles[:, 1], rings, n_beams))
    elevation = torch.stack(elevations).median(0).values
    never = ~seen & (elevation < _GROUND)[:, None]
    return elevation, never | never.roll(1, dims=1) | never.roll(-1, dims=1)


def _degree(azimuth: Tensor) -> Tensor:  # [n] radians -> [n] int64, 0 to 359
    return torch.rad2deg(azimuth + math.pi).long() % 360


def on_vehicle(
    points: Tensor,  # [n, 3 or more] metres, lidar frame
) -> Tensor:  # [n] bool: the lidar saw the car that carries it
    return (points[:, 0].abs() < _VEHICLE[0]) & (points[:, 1].abs() < _VEHICLE[1])


def make_sweep(
    points: Tensor,  # [n, 4] float64, in the order of the file
    forward_time: float,  # seconds, when the sensor faces forward
    period: float,  # seconds of one turn
    missing_rays: bool = True,
    blocked: Tensor | None = None,  # [B, 360] bool, directions without missing rays (survey)
    name: str = "sweep",  # for messages
) -> Sweep:  # rays ordered by ring, then by azimuth from 0 to 2 pi
    """A ray's time follows from its azimuth: forward_time - azimuth / (2 pi) * period."""
    angles = azimuth_elevation(points[:, :3])
    rings = find_rings(angles[:, 0], name=name)
    new_angles, new_rings = missing_angles(angles, rings)
    keep, new_keep = ~on_vehicle(points), torch.full_like(new_rings, missing_rays, dtype=torch.bool)
    if blocked is not None:
        new_keep &= ~blocked[new_rings, _degree(new_angles[:, 0])]
    points, new_angles = points[keep], new_angles[new_keep]
    ranges = points[:, :3].norm(dim=1)
    zeros = ranges.new_zeros(len(new_angles))
    azimuth = torch.cat([angles[keep, 0], new_angles[:, 0]])
    sweep = Sweep(
        directions=torch.cat([points[:, :3] / ranges[:, None], unit_directions(new_angles)]).float(),
        ranges=torch.cat([ranges, zeros]).float(),
        intensities=torch.cat([points[:, 3].clamp(0, 1), zeros]).float(),
        times=forward_time - azimuth * (period / TURN),
        rings=torch.cat([rings[keep], new_rings[new_keep]]),
        returned=torch.arange(len(azimuth)) < len(points),
    )
    return sweep.select(torch.argsort(sweep.rings * TURN + azimuth % TURN, stable=True))


@dataclass(frozen=True)
class SweepFile:
    """Loads one `.bin` file. Plain data, so that it pickles."""

    path: Path
    forward_time: float  # seconds
    period: float  # seconds
    missing_rays: bool = True
    blocked: Tensor | None = None  # [B, 360] bool

    def __call__(self) -> Sweep:
        points, name = read_points(self.path), str(self.path)
        return make_sweep(points, self.forward_time, self.period, self.missing_rays, self.blocked, name)
