# SPDX-License-Identifier: Apache-2.0
"""Sharpness of the map that poses make: distances of sweeps from each other's surfaces, and jitter of the poses.
Letters: K sweeps."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.base.waiting import shared_out
from nurec_lite.capture.odometry.clouds import WORKERS, Cloud, Poses, moved
from nurec_lite.capture.odometry.reckoning import log
from nurec_lite.capture.odometry.surfaces import surface_map
from nurec_lite.geometry.se3 import invert

GAP = 10  # sweeps between the two that are compared
REACH = 0.5  # metres from a point to the surface that it may lie on
SMOOTH = 5  # successive sweeps with like motions of the vehicle


@dataclass(frozen=True)
class Sharpness:
    """The sharpness of the map by the poses of one drive."""

    median: float  # metres from points to the surfaces of the sweep GAP before; REACH where none lies within
    ninth: float  # metres, at 90 %
    jitter: float  # metres: standard deviation of a pose along the axis of the rig with the largest one
    turn_jitter: float  # radians, of single poses about an even motion
    met: float  # share of the points that lie within REACH of a surface

    @property
    def blur(self) -> float:
        """Metres from points to surfaces, REACH where there is none: wrong poses leave the ground where it is, and few points elsewhere."""
        return self.met * self.median + (1 - self.met) * REACH

    @property
    def figures(self) -> dict[str, float]:
        return {
            "median_m": self.median,
            "ninth_m": self.ninth,
            "met": self.met,
            "jitter_mm": 1000 * self.jitter,
            "jitter_degrees": math.degrees(self.turn_jitter),
        }

    def __str__(self) -> str:
        jitter = f"{1000 * self.jitter:.1f} mm and {math.degrees(self.turn_jitter):.3f}°"
        return f"{self.median:.3f} m (90 %: {self.ninth:.3f} m), jitter {jitter}"


def sharpness(
    clouds: Sequence[Cloud] | Mapping[int, Cloud],  # of one lidar in the order of time, those of the pairs at least
    pairs: Sequence[tuple[int, int]],  # places of those that are compared
    paths: Sequence[Poses],
    middles: Tensor,  # [K] seconds, of all sweeps of the lidar
) -> list[Sharpness]:
    """The sharpness of each path."""
    places = sorted({k for pair in pairs for k in pair})
    moving = [dict(zip(places, moved([clouds[k] for k in places], path), strict=True)) for path in paths]
    apart = list(shared_out(_apart, [(used[a], used[b]) for used in moving for a, b in pairs], WORKERS))
    return [
        _of_path(
            apart[k * len(pairs) : (k + 1) * len(pairs)], sum(len(used[b]) for _, b in pairs), middles, path(middles)
        )
        for k, (used, path) in enumerate(zip(moving, paths, strict=True))
    ]


def _of_path(apart: list[Tensor], points: int, middles: Tensor, poses: Tensor) -> Sharpness:
    every = torch.cat([*apart, torch.zeros(0, dtype=torch.float64)])
    median, ninth = (float(every.quantile(q)) for q in (0.5, 0.9)) if len(every) else (REACH, REACH)
    return Sharpness(median, ninth, *jitter(middles, poses), len(every) / max(1, points))


def _apart(pair: tuple[Tensor, Tensor]) -> Tensor:
    return to_surfaces(*pair)


def gap_of(count: int) -> int:
    """Sweeps between two that are compared, of a drive with so many."""
    return min(GAP, count - 1)


def pairs_of(count: int, most: int) -> list[tuple[int, int]]:
    """Pairs of sweeps that are `gap_of` apart, spread evenly over the drive."""
    gap = gap_of(count)
    starts = torch.linspace(0, count - 1 - gap, min(most, count - gap)).long().tolist()
    return [(k, k + gap) for k in starts]


def to_surfaces(a: Tensor, b: Tensor) -> Tensor:  # [n, 3], [m, 3] -> [k] metres
    """Distances of points b to the surfaces of points a, where there is one within REACH."""
    made = surface_map(a)
    rows, at, normals = made.surfaces(b, REACH)
    return ((b[rows] - made.points[at]) * normals).sum(1).abs()


def jitter(times: Tensor, poses: Tensor) -> tuple[float, float]:  # [K], [K, 4, 4] -> metres, radians
    """Standard deviations of single poses, from their second differences minus the common part of SMOOTH of them (the vehicle's
    acceleration), along the axis with the largest ones."""
    if len(times) < SMOOTH + 2:
        return 0.0, 0.0
    rates = log(invert(poses[:-1]) @ poses[1:]) / times.diff()[:, None] * times.diff().median()
    bends = rates.diff(dim=0)
    mean = torch.nn.functional.avg_pool1d(bends.T[None], SMOOTH, stride=1)[0].T
    half = SMOOTH // 2
    apart = (bends[half : len(bends) - half] - mean).square().mean(0).sqrt() / math.sqrt(6)
    return float(apart[3:].max()), float(apart[:3].max())
