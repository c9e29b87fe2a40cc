# SPDX-License-Identifier: Apache-2.0
"""A first path in parts of a drive, all at once: where poses or velocities say where to look, no part needs the one before it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from nurec_lite.base.waiting import shared_out
from nurec_lite.capture.odometry.clouds import WORKERS, Cloud, cloud_of, most_points
from nurec_lite.capture.odometry.front import First, scan_to_map
from nurec_lite.capture.odometry.reckoning import Twists, log
from nurec_lite.capture.types import SweepFrame
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import invert

PART = 8  # sweeps; fewer make maps that know less, more leave processes without work in a short drive
RADIANS, METRES = 0.01, 0.1  # largest difference of the step that two parts share


@dataclass(frozen=True)
class Part:
    """Successive sweeps, and the path of these, of the last one before and of the first one after them."""

    clouds: list[Cloud]  # of its own sweeps
    first: First  # of all m
    before: int  # sweeps before its own: none or one


def in_parts(
    frames: Sequence[SweepFrame],
    lidar: Lidar,
    times: Tensor,  # [n] seconds, the middles of the sweeps
    twists: Twists,
) -> tuple[list[Cloud], First | None]:
    """The clouds, and their path; no path where two parts differ in the step that both have."""
    made = partial(_part, frames, lidar, times, twists)
    parts = list(shared_out(made, range(0, len(frames), PART), WORKERS, few=2))
    clouds = [cloud for part in parts for cloud in part.clouds]
    return clouds, _joined(parts) if all(_alike(*pair) for pair in pairwise(parts)) else None


def _part(frames: Sequence[SweepFrame], lidar: Lidar, times: Tensor, twists: Twists, start: int) -> Part:
    first, stop = max(0, start - 1), min(len(frames), start + PART + 1)
    clouds = [cloud_of(lidar, frame, most_points(len(frames))) for frame in frames[first:stop]]
    return Part(clouds[start - first :][:PART], scan_to_map(clouds, times[first:stop], twists), start - first)


def _alike(part: Part, later: Part) -> bool:
    """Whether the last step of a part is the first one of the next."""
    one, other = (invert(a) @ b for a, b in (part.first.poses[-2:], later.first.poses[:2]))
    turn, way = log(invert(one) @ other).view(2, 3).norm(dim=1).tolist()
    return turn < RADIANS and way < METRES


def _joined(parts: Sequence[Part]) -> First:
    own = [slice(part.before, part.before + len(part.clouds)) for part in parts]
    poses = [part.first.poses[rows] for part, rows in zip(parts, own, strict=True)]
    for k, (part, _) in enumerate(pairwise(parts)):
        step = invert(part.first.poses[-2]) @ part.first.poses[-1]
        poses[k + 1] = poses[k][-1] @ step @ invert(poses[k + 1][0]) @ poses[k + 1]
    return First(torch.cat(poses), torch.cat([part.first.open[rows] for part, rows in zip(parts, own, strict=True)]))
