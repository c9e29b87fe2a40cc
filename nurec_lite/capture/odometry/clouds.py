# SPDX-License-Identifier: Apache-2.0
"""Points of sweeps, thinned and in the rig's axes at their own times; moved by a path, and thinned."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from nurec_lite.base.pool import in_threads
from nurec_lite.capture.types import Returning, SweepFrame
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import transform

Poses = Callable[[Tensor], Tensor]  # [n] seconds -> [n, 4, 4] T_world_rig
NEAREST, FARTHEST = 2.5, 80.0  # metres of range: nearer points are the vehicle's own
CELL = 0.3  # metres: one point is kept in each cube of this size
LOOKED_AT = 60_000  # points of a sweep before that
MOST, FEWEST = 7_000, 1_500  # points of a sweep after that, in a short and in a long drive
ALL = 4_000_000  # points of a drive, about
KEYS = 17  # poses in a sweep, between which a point moves evenly
CELLS = 1 << 19  # of a table of cubes: some share one
_PRIMES = (73_856_093, 19_349_669, 83_492_791)  # Teschner et al. 2003, Optimized Spatial Hashing


@dataclass(frozen=True)
class Cloud:
    """Of one sweep."""

    time: float  # seconds, the middle of the sweep
    points: Tensor  # [n, 3] metres, in the rig's axes at the points' own times, float64; in a random order
    times: Tensor  # [n] seconds

    def moved(self, poses: Poses) -> Tensor:  # [n, 3]
        """Each point by the pose at its own time."""
        if not len(self.times):
            return self.points
        keys = torch.linspace(float(self.times.min()), float(self.times.max()), KEYS, dtype=torch.float64)
        place = (self.times - keys[0]) * ((KEYS - 1) / (keys[-1] - keys[0]).clamp(min=1e-9))
        i = place.long().clamp(max=KEYS - 2)
        T = poses(keys)
        before, after = (torch.einsum("nij,nj->ni", T[k, :3, :3], self.points) + T[k, :3, 3] for k in (i, i + 1))
        return before + (place - i)[:, None] * (after - before)


def clouds_of(frames: Sequence[SweepFrame], lidar: Lidar) -> list[Cloud]:
    most = max(FEWEST, min(MOST, ALL // max(1, len(frames))))
    return list(in_threads(partial(cloud_of, lidar, most=most), frames))


def cloud_of(lidar: Lidar, frame: SweepFrame, most: int = MOST) -> Cloud:
    points, times = _returns(frame)
    ranges = points.norm(dim=1)
    some = ((ranges > NEAREST) & (ranges < FARTHEST)).nonzero()[:, 0]
    some = some[shuffled(len(some))[:LOOKED_AT]]
    kept = some[thinned(points[some], CELL)[:most]]
    return Cloud(frame.time_mid, transform(lidar.T_rig_lidar.double(), points[kept].double()), times[kept].double())


def _returns(frame: SweepFrame) -> tuple[Tensor, Tensor]:  # [n, 3] metres in the lidar's axes, [n] seconds
    if isinstance(frame.load, Returning):
        return frame.load.returns()
    sweep = frame.load()
    points = sweep.directions[sweep.returned].double() * sweep.ranges[sweep.returned, None].double()
    return points, sweep.times[sweep.returned]


def thinned(
    points: Tensor,  # [n, 3] metres
    cell: float,  # metres
) -> Tensor:  # [m] indices, rising
    """The first point in each cube; cubes that share a place in the table count as one."""
    x, y, z = (points / cell).floor().long().unbind(1)
    key = (x * _PRIMES[0] ^ y * _PRIMES[1] ^ z * _PRIMES[2]) % CELLS
    first = torch.full((CELLS,), len(points)).scatter_reduce_(0, key, torch.arange(len(points)), "amin")
    return first[first < len(points)].sort().values


def shuffled(count: int) -> Tensor:  # [count]
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))
