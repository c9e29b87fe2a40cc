# SPDX-License-Identifier: Apache-2.0
"""Returns of a sweep that lie in space which other sweeps, earlier and later, saw free.

Method: visibility in range images (Kim and Kim, "Remove, then Revert", 2020; Lim et al., "ERASOR", 2021, for the ground). A return that
another sweep sees past is not static: its object was elsewhere at that time.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nurec_lite.base.pool import in_threads
from nurec_lite.base.waiting import shared_out
from nurec_lite.capture.tracking.ground import CLEAR, Ground
from nurec_lite.capture.tracking.rain import are_drops
from nurec_lite.capture.tracking.returns import FARTHEST, WORKERS, Floats, Grid, Returns, Sweeps, local

NEAREST = 2.0  # metres: nearer returns are the vehicle's own
VOXEL = 0.2  # metres: returns of a sweep that are looked at are so far apart
MARGIN, MARGIN_RATE = 0.4, 0.01  # least difference of ranges: metres, and metres a metre
RUN = 2  # sweeps in a row that saw past a return that moves for certain
OFFSETS = (1, 2, 4, 6, 9, 13, 18, 25, 36, 54, 80)  # sweeps before and after that are compared
ASIDE = 8.0  # metres to the side of the vehicle: beyond, most returns are of things that stand still
ALIKE, ASTRAY = 0.3, 3.0  # metres behind a return: two sweeps agree; poses may be wrong by so much
TALL, MANY, DOUBTFUL_TALL = 2.2, 100, 0.04  # metres: higher returns are not of cars; so many tell more
DOUBTFUL, FEW = 0.08, 5  # of the returns that agree, and a number: if more are missed, poses do not fit


@dataclass(frozen=True, eq=False)
class Candidates:
    """Returns of one sweep above the ground, thinned."""

    index: NDArray[np.int64]  # [n] of the sweep's returns
    points: Floats  # [n, 3] metres
    times: NDArray[np.float64]  # [n] seconds
    heights: Floats  # [n] metres above the ground
    free: NDArray[np.int16]  # [n] most sweeps in a row, on one side of time, that saw past the return
    again: NDArray[np.int16]  # [n] sweeps that saw something there, further away in time than one that saw past it
    seen: NDArray[np.int16]  # [n] sweeps that saw past it, in all
    held: NDArray[np.int16]  # [n, 2] sweeps before and after: the furthest that saw something there, 0 without one
    gone: NDArray[np.int16]  # [n, 2] sweeps before and after: the last of the first that saw past it in a row
    fits: dict[int, bool]  # sweeps that were compared, and whether their poses fit

    def of(self, chosen: NDArray[np.bool_]) -> "Candidates":  # [n]
        names = [name for name in self.__dataclass_fields__ if name != "fits"]
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})


@dataclass(frozen=True, eq=False)
class Image:
    """A range image, widened by a cell to all sides."""

    nearest: Floats  # [B * A] metres: nearest return above the ground; infinite without one
    farthest: Floats  # [B * A] metres: of everything; 0 where nothing is


def find_candidates(sweeps: Sweeps, ground: Ground) -> list[Candidates]:
    heights = list(in_threads(lambda s: s.points[:, 2] - ground.below(s.points), sweeps.sweeps))
    images = list(in_threads(lambda i: _image(sweeps.sweeps[i], sweeps.grid, heights[i]), range(len(heights))))
    return list(shared_out(lambda i: _candidates(i, sweeps, images, heights[i]), range(len(heights)), WORKERS))


def _image(
    returns: Returns,  # of n points
    grid: Grid,
    heights: Floats,  # [n] metres above the ground
) -> Image:
    above = heights > CLEAR
    shape = grid.rows, grid.columns
    nearest, farthest = np.full(shape, np.inf, np.float32), np.zeros(shape, np.float32)
    np.minimum.at(nearest.reshape(-1), returns.cells[above], returns.ranges[above])
    np.maximum.at(farthest.reshape(-1), returns.cells, returns.ranges)
    mode = ("nearest", "wrap")
    from scipy.ndimage import maximum_filter, minimum_filter

    return Image(minimum_filter(nearest, 3, mode=mode).ravel(), maximum_filter(farthest, 3, mode=mode).ravel())


def _candidates(i: int, sweeps: Sweeps, images: list[Image], heights: Floats) -> Candidates:
    returns = sweeps.sweeps[i]
    used = (heights > CLEAR) & (heights < 5.0) & (returns.ranges > NEAREST) & (returns.ranges < FARTHEST)
    index = thinned(returns.points, np.flatnonzero(used))
    points = returns.points[index]
    aside = np.abs(_left(returns, sweeps, points)) > ASIDE
    telling = (aside, aside & (heights[index] > TALL))
    free, again, seen = np.zeros((3, len(index)), np.int16)
    held, gone = np.zeros((2, len(index), 2), np.int16)
    fits: dict[int, bool] = {}
    for side, sign in enumerate((-1, 1)):
        run, left = np.zeros(len(index), np.int16), np.zeros(len(index), np.bool_)
        for offset in OFFSETS:
            j = i + sign * offset
            compared = (
                _compare(sweeps.sweeps[j], images[j], sweeps.grid, points, telling) if 0 <= j < len(images) else None
            )
            if 0 <= j < len(images):
                fits[j] = compared is not None
            if compared is not None:
                past, there = compared
                run = np.where(there, 0, run + past)
                free = np.maximum(free, run)
                again, seen, left = again + (there & left), seen + past, left | past
                held[there, side] = offset
                gone[(run >= RUN) & (gone[:, side] == 0), side] = offset
    found = Candidates(index, points, returns.times[index], heights[index], free, again, seen, held, gone, fits)
    return found.of(~are_drops(returns, sweeps.grid, index, free >= RUN))


def _compare(
    other: Returns,
    image: Image,
    grid: Grid,
    points: Floats,  # [n, 3] metres
    telling: tuple[NDArray[np.bool_], NDArray[np.bool_]],  # [n] those that tell whether poses fit: all, and tall ones
) -> (
    tuple[NDArray[np.bool_], NDArray[np.bool_]] | None
):  # [n] the other sweep sees past the point; it sees something there
    """Returns None where the poses of both sweeps do not fit each other."""
    place = local(other, points, grid.columns)
    flat = np.hypot(place[:, 0], place[:, 1])
    ranges = np.hypot(flat, place[:, 2])
    azimuth, elevation = np.arctan2(place[:, 1], place[:, 0]), np.arctan2(place[:, 2], flat)
    cell, margin = grid.cells(azimuth, elevation), MARGIN + MARGIN_RATE * ranges
    nearest, farthest = image.nearest[cell], image.farthest[cell]
    inside = (elevation > grid.edges[0] - 0.02) & (elevation < grid.edges[-1] + 0.02)
    behind = np.minimum(nearest, farthest) - ranges
    if not _fits(*(behind[inside & some] for some in telling)):
        return None
    return (
        inside & (nearest > ranges + margin) & (farthest > ranges + margin),
        np.abs(nearest - ranges) <= margin,
    )


def _left(returns: Returns, sweeps: Sweeps, points: Floats) -> Floats:  # [n] metres to the left of the vehicle
    lidar = sweeps.lidar.T_rig_lidar.numpy()
    x, y, z, own = (lidar[:3, :3] @ returns.starts)[1].astype(np.float32)
    return points @ np.array([x, y, z]) + np.float32(own + lidar[1, 3])


def _fits(
    behind: Floats,  # [m] metres from a return to the surface that another sweep sees in its direction
    tall: Floats,  # [k] the same of returns above the traffic
) -> bool:
    """Whether the poses of two sweeps fit: if not, returns of things that stand still are missed by a little. Traffic may be, too."""
    (agree, missed), (agree_tall, missed_tall) = _met(behind), _met(tall)
    above = agree_tall >= MANY and missed_tall <= DOUBTFUL_TALL * agree_tall + FEW
    return above or missed <= DOUBTFUL * agree + FEW


def _met(behind: Floats) -> tuple[int, int]:  # returns that agree, and those that are missed by a little
    missed = (behind > ALIKE) & (behind <= ASTRAY)
    return int(np.count_nonzero(np.abs(behind) <= ALIKE)), int(np.count_nonzero(missed))


def thinned(
    points: Floats,  # [n, 3] metres
    index: NDArray[np.int64],  # [m] of the points
) -> NDArray[np.int64]:  # [k] of the points, one a voxel
    if len(index) == 0:
        return index
    voxel = np.floor(points[index] / VOXEL).astype(np.int64)
    voxel -= voxel.min(0)
    size = voxel.max(0) + 1
    key = (voxel[:, 0] * size[1] + voxel[:, 1]) * size[2] + voxel[:, 2]
    # unlike `np.unique` with indices, a sort of numbers alone
    first = np.sort(key * len(index) + np.arange(len(index)))
    new = np.diff(first // len(index), prepend=-1) != 0
    return index[np.sort(first[new] % len(index))]
