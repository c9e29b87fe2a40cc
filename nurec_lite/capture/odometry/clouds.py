# SPDX-License-Identifier: Apache-2.0
"""Points of sweeps, thinned and in the rig's axes at their own times."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from nurec_lite.base.pool import in_threads
from nurec_lite.capture.types import SweepFrame
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import transform

NEAREST, FARTHEST = 2.5, 80.0  # metres of range: nearer points are the vehicle's own
CELL = 0.3  # metres: one point is kept in each cube of this size
MOST = 10_000  # points of a sweep


@dataclass(frozen=True)
class Cloud:
    """Of one sweep."""

    time: float  # seconds, the middle of the sweep
    points: Tensor  # [n, 3] metres, in the rig's axes at the points' own times, float64; in a random order
    times: Tensor  # [n] seconds


def clouds_of(frames: Sequence[SweepFrame], lidar: Lidar) -> list[Cloud]:
    return list(in_threads(partial(cloud_of, lidar), frames))


def cloud_of(lidar: Lidar, frame: SweepFrame) -> Cloud:
    sweep = frame.load()
    some = (sweep.returned & (sweep.ranges > NEAREST) & (sweep.ranges < FARTHEST)).nonzero()[:, 0]
    points = sweep.directions[some].double() * sweep.ranges[some, None].double()
    kept = thinned(points, CELL)[:MOST]
    return Cloud(frame.time_mid, transform(lidar.T_rig_lidar.double(), points[kept]), sweep.times[some[kept]].double())


def thinned(
    points: Tensor,  # [n, 3] metres
    cell: float,  # metres
) -> Tensor:  # [m] indices in a random but fixed order
    """One point in each cube, any."""
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))
    cells = (points[order] / cell).floor().long()
    cells -= cells.amin(0) if len(cells) else 0
    spans = cells.amax(0) + 1 if len(cells) else cells.new_ones(3)
    key = (cells[:, 0] * spans[1] + cells[:, 1]) * spans[2] + cells[:, 2]
    by_cell = torch.argsort(key, stable=True)
    first = torch.cat([torch.ones(min(1, len(key)), dtype=torch.bool), key[by_cell].diff() != 0])
    return order[by_cell[first].sort().values]
