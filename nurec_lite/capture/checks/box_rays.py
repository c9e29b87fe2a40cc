# SPDX-License-Identifier: Apache-2.0
"""Fit of boxes to the lidar's rays: rays that reach a box end in it, and returns near a box lie inside.

A ray that ends behind a box shows that it is empty, also where another object hides a part of it. Returns below 0.3 m above a box's
bottom are the ground's, and the roof of a car is shorter than its box: rays are counted in the lower half. Letters: R rays, K tracks.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.capture.checks.register import log
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.deskew import poses_at, world_rays
from nurec_lite.capture.evenly import spread
from nurec_lite.capture.types import SweepFrame
from nurec_lite.geometry.lidar import Lidar, Sweep
from nurec_lite.geometry.se3 import invert, quat_conjugate, quat_rotate
from nurec_lite.geometry.tracks import Tracks, poses_of, spans

FARTHEST = 40.0  # metres: farther boxes get few rays
FOOT, BAND = 0.3, 0.55  # rays count between so many metres above the bottom and this part of the height
MARGIN = 0.15  # metres that labels may be off
NEAR = 0.6  # metres around a box: returns there belong inside
FEWEST = 15  # rays that tell of a box
MOST = 500  # rays of a box that are looked at
BOXES = 24  # of a sweep that are looked at
SWEEPS = 24  # of a lidar
Row = tuple[float, float, float, float]  # of a box in a sweep: track, share, returns, share that passes


@dataclass(frozen=True, eq=False)
class Rays:
    """Returned rays of a sweep."""

    frame: SweepFrame
    sweep: Sweep  # R rays
    lidar: Lidar
    origin: Tensor  # [3] metres, world: of the lidar in the middle of the sweep
    directions: Tensor  # [R, 3] world, float32, as if all rays were sent then
    velocity: Tensor  # [3] metres a second, world
    way: float  # metres that the lidar moves from the middle of the sweep at most, and
    turn: float  # radians

    @property
    def time(self) -> float:
        return self.frame.time_mid


@dataclass(frozen=True)
class BoxFit:
    """Fit of boxes to the returns: a row for each box in a sweep."""

    tracks: Tensor  # [n] number of the track
    shares: Tensor  # [n] of the rays and returns that belong to the box, those that lie inside
    returns: Tensor  # [n] inside
    passed: Tensor  # [n] of the same rays and returns, those that pass through the box

    def __len__(self) -> int:
        return len(self.tracks)

    @property
    def share(self) -> float:
        return float(self.shares.median()) if len(self) else 0.0

    def fewer(self, boxes: int, tracks: int) -> bool:
        """Whether it has fewer boxes, or boxes of fewer tracks."""
        return len(self) < boxes or len(self.tracks.unique()) < tracks

    def of(self, track: int) -> "BoxFit":
        own = self.tracks == track
        return BoxFit(self.tracks[own], self.shares[own], self.returns[own], self.passed[own])

    def above(self, other: "BoxFit", numbers: list[int]) -> tuple[float, float]:
        """Mean difference of these tracks' shares, and how many standard errors it is."""
        pairs = [(self._mean(k), other._mean(k)) for k in numbers]
        apart = torch.tensor([a - b for a, b in pairs if a is not None and b is not None])
        if len(apart) < 2:
            return float(apart.sum()), 0.0
        return float(apart.mean()), float(apart.mean() / (apart.std() / math.sqrt(len(apart))).clamp(min=1e-3))

    def _mean(self, track: int) -> float | None:
        own = self.of(track).shares
        return float(own.mean()) if len(own) else None


def returned_rays(sample: Sample) -> list[Rays]:
    return [rays_of(sample, frame) for frame in box_sweeps(sample)]


def box_sweeps(sample: Sample) -> list[SweepFrame]:
    """The first sweeps of some pairs of each lidar."""
    pairs = [pair for lidar in sample.capture.lidars for pair in spread(sample.sweep_pairs(lidar.name), SWEEPS)]
    return [first for first, _ in pairs]


def rays_of(sample: Sample, frame: SweepFrame) -> Rays:
    return sample.kept(("rays", frame.sensor, frame.index), lambda: _rays_of(sample, frame))


def _rays_of(sample: Sample, frame: SweepFrame) -> Rays:
    sweep, lidar = sample.sweep(frame), sample.capture.lidar(frame.sensor)
    sweep = sweep.select(sweep.returned)
    start, middle, end = poses_at(frame, torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)) @ lidar.T_rig_lidar
    apart = torch.stack([log(invert(middle) @ T) for T in (start, end)])
    turn, way = (float(part.norm(dim=1).max()) for part in apart.split(3, dim=1))
    directions = sweep.directions @ middle[:3, :3].float().T
    velocity = (end - start)[:3, 3] / max(frame.time_end - frame.time_start, 1e-9)
    return Rays(frame, sweep, lidar, middle[:3, 3], directions, velocity, way, turn)


def fit_boxes(
    rays: list[Rays],
    tracks: Tracks,
    numbers: list[int] | None = None,  # of the tracks that are looked at; None: all
) -> BoxFit:
    chosen = torch.arange(len(tracks)) if numbers is None else torch.tensor(numbers)
    rows = [row for one in rays for row in _boxes(one, tracks, chosen)] if len(chosen) else []
    columns = torch.tensor(rows, dtype=torch.float64).view(-1, 4).unbind(1)
    return BoxFit(columns[0].long(), *columns[1:])


def _boxes(rays: Rays, tracks: Tracks, chosen: Tensor) -> list[Row]:
    """Figures of the nearest boxes."""
    first, last = spans(tracks)
    known = chosen[((first <= rays.time) & (rays.time <= last))[chosen]]
    if not (len(known) and len(rays.sweep)):
        return []
    _, places = poses_of(tracks, known, torch.full((len(known),), rays.time, dtype=torch.float64))
    away = places - rays.origin
    distance, radius = away.norm(dim=1), 0.5 * tracks.sizes[known].norm(dim=1) + NEAR
    nearest = distance.argsort()
    seen = nearest[((distance < FARTHEST) & (distance > radius))[nearest]][:BOXES]
    if not len(seen):
        return []
    box, row = _close(rays, away[seen].float(), radius[seen].float())
    some, steps = _evenly(box, len(seen))
    return _held(rays, tracks, known[seen], box[some], row[some], steps)


def _close(
    rays: Rays,
    away: Tensor,  # [k, 3] metres from the lidar to boxes in the middle of the sweep
    radius: Tensor,  # [k] metres
) -> tuple[Tensor, Tensor]:  # [n] box, rising, and [n] ray: rays that pass a box within its radius
    distance = away.norm(dim=1, keepdim=True)
    wide = ((radius[:, None] + rays.way) / distance).clamp(max=1).asin() + rays.turn  # radians
    box, row = (away / distance @ rays.directions.T > wide.cos()).nonzero().unbind(1)
    late = (rays.sweep.times[row] - rays.time).float()
    seen = away[box] - late[:, None] * rays.velocity.float()
    far = seen.norm(dim=1)
    angle = ((seen * rays.directions[row]).sum(1) / far).clamp(-1, 1).acos()
    close = angle < (radius[box] / far).clamp(max=1).asin() + rays.turn
    return box[close], row[close]


def _evenly(
    box: Tensor,  # [n] rising
    boxes: int,
) -> tuple[Tensor, Tensor]:  # indices of at most MOST entries of each box, and [boxes] how many entries each stands for
    counts = torch.bincount(box, minlength=boxes)
    steps = (counts + MOST - 1).floor_divide(MOST).clamp(min=1)
    number = torch.arange(len(box)) - (counts.cumsum(0) - counts)[box]
    return (number % steps[box] == 0).nonzero()[:, 0], steps


def _held(
    rays: Rays,
    tracks: Tracks,
    known: Tensor,  # [k] numbers of tracks
    box: Tensor,  # [n] 0 to k - 1
    row: Tensor,  # [n] of a ray that may meet the box
    steps: Tensor,  # [k] rays that each of them stands for
) -> list[Row]:
    origins, ways = world_rays(rays.frame, rays.sweep.select(row), rays.lidar)
    q, place = poses_of(tracks, known[box], rays.sweep.times[row])
    back, ranges, sizes = quat_conjugate(q), rays.sweep.ranges[row].double(), tracks.sizes[known].double()
    origins, ways = quat_rotate(back, origins - place), quat_rotate(back, ways)
    points, half = origins + ranges[:, None] * ways, sizes / 2
    low, high = -half - MARGIN, half + MARGIN
    low[:, 2] = FOOT - half[:, 2]
    band, wider = high.clone(), -half - NEAR
    band[:, 2] = (BAND * sizes[:, 2]).clamp(min=FOOT + 0.2) - half[:, 2]
    wider[:, 2] = low[:, 2].where(low[:, 2] > -half[:, 2], wider[:, 2])
    enter, leave = _crossed(origins, ways, low[box], band[box])
    met = (leave > enter) & (enter > 0)
    inside, through = met & (ranges >= enter) & (ranges <= leave), met & (ranges > leave)
    within = ((points >= low[box]) & (points <= high[box])).all(1)
    around = ((points >= wider[box]) & (points <= (half + NEAR)[box])).all(1) & ~within
    held = (points.abs() <= half[box]).all(1)
    kinds = (inside, through, around, held)
    counts = torch.stack([torch.bincount(box[rows], minlength=len(known)) for rows in kinds]).tolist()
    found = zip(known.tolist(), *counts, steps.tolist(), strict=True)
    return [
        (k, hit / decided, step * own, past / decided)
        for k, hit, past, near, own, step in found
        if (decided := hit + past + near) >= FEWEST
    ]


def _crossed(origins: Tensor, ways: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Ranges [r] where rays enter and leave a box; a ray that misses it leaves before it enters."""
    safe = torch.where(ways.abs() < 1e-9, torch.full_like(ways, 1e-9), ways)
    a, b = (low - origins) / safe, (high - origins) / safe
    return torch.minimum(a, b).amax(1), torch.maximum(a, b).amin(1)
