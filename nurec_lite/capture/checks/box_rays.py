# SPDX-License-Identifier: Apache-2.0
"""How well boxes hold what the lidar sees: rays that reach a box end in it, and returns near a box lie inside.

A ray that ends behind a box shows that it is empty, also where another object hides a part of it. Returns below 0.3 m above a box's
bottom are the ground's, and the roof of a car is shorter than its box: rays are counted in the lower half. Letters: R rays, K tracks.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.deskew import world_rays
from nurec_lite.geometry.se3 import quat_conjugate, quat_rotate
from nurec_lite.geometry.tracks import Tracks, poses_of, spans

FARTHEST = 40.0  # metres: farther boxes get few rays
FOOT, BAND = 0.3, 0.55  # metres above the bottom, and part of the height, between which rays are counted
MARGIN = 0.15  # metres by which labels may be off
NEAR = 0.6  # metres around a box whose returns belong inside
FEWEST = 15  # rays that tell of a box
MOST = 500  # rays of a box that are looked at


@dataclass(frozen=True)
class Rays:
    """Returned rays of a sweep."""

    time: float  # seconds, in the middle of the sweep
    origins: Tensor  # [R, 3] metres, world, float64
    directions: Tensor  # [R, 3] world, float64
    ranges: Tensor  # [R] metres
    times: Tensor  # [R] seconds


@dataclass(frozen=True)
class BoxFit:
    """How well boxes hold the returns: a row for each box in a sweep."""

    tracks: Tensor  # [n] number of the track
    shares: Tensor  # [n] of the rays and returns that belong to the box, those that lie inside
    returns: Tensor  # [n] inside

    def __len__(self) -> int:
        return len(self.tracks)

    @property
    def share(self) -> float:
        return float(self.shares.median()) if len(self) else 0.0

    def above(self, other: "BoxFit", numbers: list[int]) -> tuple[float, float]:
        """Mean difference of these tracks' shares, and how many standard errors it is."""
        pairs = [(self._of(k), other._of(k)) for k in numbers]
        apart = torch.tensor([a - b for a, b in pairs if a is not None and b is not None])
        if len(apart) < 2:
            return float(apart.sum()), 0.0
        return float(apart.mean()), float(apart.mean() / (apart.std() / math.sqrt(len(apart))).clamp(min=1e-3))

    def _of(self, track: int) -> float | None:
        own = self.shares[self.tracks == track]
        return float(own.mean()) if len(own) else None


def returned_rays(sample: Sample) -> list[Rays]:
    """One sweep of each pair of a lidar."""
    frames = [first for lidar in sample.capture.lidars for first, _ in sample.sweep_pairs(lidar.name)]
    found = []
    for frame in frames:
        sweep = sample.sweep(frame)
        sweep = sweep.select(sweep.returned)
        origins, directions = world_rays(frame, sweep, sample.capture.lidar(frame.sensor))
        found.append(Rays(frame.time_mid, origins, directions, sweep.ranges.double(), sweep.times))
    return found


def fit_boxes(
    rays: list[Rays],
    tracks: Tracks,
    numbers: list[int] | None = None,  # of the tracks that are looked at; None: all
) -> BoxFit:
    chosen = torch.arange(len(tracks)) if numbers is None else torch.tensor(numbers)
    rows = [row for one in rays for row in _boxes(one, tracks, chosen)] if len(chosen) else []
    columns = torch.tensor(rows, dtype=torch.float64).view(-1, 3).unbind(1)
    return BoxFit(columns[0].long(), columns[1], columns[2])


def _boxes(rays: Rays, tracks: Tracks, chosen: Tensor) -> list[tuple[float, float, float]]:  # track, share, returns
    first, last = spans(tracks)
    known = chosen[((first <= rays.time) & (rays.time <= last))[chosen]]
    if not (len(known) and len(rays.ranges)):
        return []
    _, places = poses_of(tracks, known, torch.full((len(known),), rays.time, dtype=torch.float64))
    away = places - rays.origins[len(rays.origins) // 2]
    distance, radius = away.norm(dim=1), 0.5 * tracks.sizes[known].norm(dim=1) + NEAR
    seen = (distance < FARTHEST) & (distance > radius)
    known, away, radius, distance = known[seen], away[seen], radius[seen], distance[seen]
    cosines = rays.directions.float() @ (away / distance[:, None]).float().T  # [R, k]
    close = cosines > (1 - (radius / distance).square()).sqrt().float()
    found = [_box(rays, tracks, k, close[:, i].nonzero()[:, 0]) for i, k in enumerate(known.tolist())]
    return [row for row in found if row is not None]


def _box(rays: Rays, tracks: Tracks, track: int, rows: Tensor) -> tuple[float, float, float] | None:
    step = max(1, -(-len(rows) // MOST))
    rows = rows[::step]
    q, place = poses_of(tracks, torch.full((len(rows),), track), rays.times[rows])
    back = quat_conjugate(q)
    origins, ways = quat_rotate(back, rays.origins[rows] - place), quat_rotate(back, rays.directions[rows])
    points, half = origins + rays.ranges[rows, None] * ways, tracks.sizes[track] / 2
    low, high = -half - MARGIN, half + MARGIN
    low[2] = FOOT - half[2]
    band = high.clone()
    band[2] = max(FOOT + 0.2, BAND * float(tracks.sizes[track, 2])) - half[2]
    enter, leave = _crossed(origins, ways, low, band)
    met, ranges = (leave > enter) & (enter > 0), rays.ranges[rows]
    inside, through = met & (ranges >= enter) & (ranges <= leave), met & (ranges > leave)
    within = ((points >= low) & (points <= high)).all(1)
    around = ((points >= low.where(low > -half, -half - NEAR)) & (points <= half + NEAR)).all(1) & ~within
    told = int(inside.sum() + through.sum() + around.sum())
    if told < FEWEST:
        return None
    return track, float(inside.sum()) / told, step * float((points.abs() <= half).all(1).sum())


def _crossed(origins: Tensor, ways: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Ranges [r] at which rays enter and leave a box; a ray that misses it leaves before it enters."""
    safe = torch.where(ways.abs() < 1e-9, torch.full_like(ways, 1e-9), ways)
    a, b = (low - origins) / safe, (high - origins) / safe
    return torch.minimum(a, b).amax(1), torch.maximum(a, b).amin(1)
