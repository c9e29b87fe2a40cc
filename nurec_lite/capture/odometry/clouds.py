# SPDX-License-Identifier: Apache-2.0
"""Points of sweeps, thinned and in the rig's axes at their own times; moved by a path, and thinned."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from nurec_lite.base.pool import in_threads
from nurec_lite.base.processes import Kind
from nurec_lite.base.waiting import shared_out
from nurec_lite.capture.types import Returning, SweepFrame
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import transform

Poses = Callable[[Tensor], Tensor]  # [n] seconds -> [n, 4, 4] T_world_rig
NEAREST, FARTHEST = 2.5, 80.0  # metres of range: nearer points are the vehicle's own
CELL = 0.3  # metres: one point is kept in each cube of this size
LOOKED_AT = 60_000  # points of a sweep before that, about
MOST, FEWEST = 7_000, 1_500  # points of a sweep after that, in a short and in a long drive
ALL = 4_000_000  # points of a drive, about
KEYS = 17  # poses in a sweep; between two, a point moves evenly
CELLS = 1 << 19  # of a table of cubes, a power of 2: some share one
WORKERS = Kind("a process that estimates poses")
_PRIMES = (73_856_093, 19_349_669, 83_492_791)  # Teschner et al. 2003, Optimized Spatial Hashing


@dataclass(frozen=True)
class Cloud:
    """Points of one sweep."""

    time: float  # seconds, the middle of the sweep
    points: Tensor  # [n, 3] metres, in the rig's axes at the points' own times, float64; in a random order
    times: Tensor  # [n] seconds

    @cached_property
    def keys(self) -> Tensor:  # [KEYS] seconds, evenly from the first to the last point
        first, last = (float(t) for t in self.times.aminmax()) if len(self.times) else (self.time, self.time)
        return torch.linspace(first, last, KEYS, dtype=torch.float64)

    def select(self, rows: Tensor) -> "Cloud":  # [n] int64, or bool of all points
        return replace(self, points=self.points[rows], times=self.times[rows])

    def moved(self, poses: Poses) -> Tensor:  # [n, 3]
        """Each point by the pose at its own time."""
        return self.moved_by(poses(self.keys))

    def moved_by(
        self,
        poses: Tensor,  # [KEYS, 4, 4] at the keys
    ) -> Tensor:  # [n, 3]
        place = (self.times - self.keys[0]) * ((KEYS - 1) / (self.keys[-1] - self.keys[0]).clamp(min=1e-9))
        i = place.long().clamp(max=KEYS - 2)
        rows = poses[:, :3].reshape(KEYS, 12)
        T = (rows[i] + (place - i)[:, None] * rows.diff(dim=0)[i]).view(-1, 3, 4)  # linear from key to key
        return torch.baddbmm(T[:, :, 3:], T[:, :, :3], self.points[:, :, None])[..., 0]


def moved(clouds: Sequence[Cloud], poses: Poses) -> list[Tensor]:  # [n, 3] each
    at = poses(torch.stack([cloud.keys for cloud in clouds]))
    return list(in_threads(lambda k: clouds[k].moved_by(at[k]), range(len(clouds))))


def clouds_of(frames: Sequence[SweepFrame], lidar: Lidar) -> list[Cloud]:
    return list(shared_out(partial(cloud_of, lidar, most=most_points(len(frames))), frames, WORKERS))


def most_points(sweeps: int) -> int:
    """Most points of a sweep in a drive of so many."""
    return max(FEWEST, min(MOST, ALL // max(1, sweeps)))


def cloud_of(lidar: Lidar, frame: SweepFrame, most: int = MOST) -> Cloud:
    points, times = _returns(frame)
    every = 1 + len(points) // LOOKED_AT
    points, times = points[::every].double(), times[::every].double()
    squares = points.square().sum(1)
    some = ((squares > NEAREST**2) & (squares < FARTHEST**2)).nonzero()[:, 0]
    some = some[shuffled(len(some))]
    kept = some[thinned(points[some], CELL)[:most]]
    return Cloud(frame.time_mid, transform(lidar.T_rig_lidar.double(), points[kept]), times[kept])


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
    key = (x * _PRIMES[0] ^ y * _PRIMES[1] ^ z * _PRIMES[2]) & (CELLS - 1)
    rows = torch.arange(len(points), dtype=torch.int32)
    first = torch.empty(CELLS, dtype=torch.int32)
    first[key] = len(points)  # only places that are used: to fill the whole table takes longer
    first.scatter_reduce_(0, key, rows, "amin")
    return (first[key] == rows).nonzero()[:, 0]


def shuffled(count: int) -> Tensor:  # [count]
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))
