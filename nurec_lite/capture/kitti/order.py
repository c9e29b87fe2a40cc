# SPDX-License-Identifier: Apache-2.0
"""Order of the stored points of a drive's sweeps, and from it the beam of every point.

KITTI's files hold ring after ring, the top one first, each by rising azimuth from 0 to 2 pi. Other programs store rings from
another azimuth, backwards or from the bottom, or column after column, or in no order. Where the elevations of the beams lie
clearly apart, they give the beam of a point in any order. Elevations of an HDL-64E do not: its lasers sit up to 0.2 m from
the origin, so the elevation of a point changes with its range by more than the beams are apart, and only the order is left.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.kitti.beams import align, drive_beams, ring_medians
from nurec_lite.capture.kitti.turns import find_turns, ring_start
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.lidar import wrap_angle

SAME_RAY = 2e-4  # radians between two points of one ray, which differ by the rounding of their coordinates
_BIN = math.radians(0.02)  # of elevation; beams lie 0.1 degrees apart or more
_RARE = 0.02  # of the usual count of a bin: fewer points are noise
_CLEAR = 0.995  # share of the points that must lie within the elevations of a beam
_NARROW = 0.35  # of the distance to the next beam, that the elevations of a beam may spread
_WIDEST = math.radians(1)  # distance to the next beam: a beam spreads no further
_MOST_BEAMS = 512
_FIRST = 2  # sweeps that show how points are stored
_MONOTONE = 0.9  # share of neighbouring rings that must lie in the same order of elevation


@dataclass(frozen=True)
class ByElevation:
    """Points in any order; their elevations show the beams."""

    elevations: Tensor  # [B] radians, from the top

    def rings(
        self, angles: Tensor, name: str
    ) -> tuple[Tensor, bool]:  # [n] int64, whether the points are in KITTI's order
        edges = 0.5 * (self.elevations[1:] + self.elevations[:-1])
        rings = len(edges) - torch.bucketize(angles[:, 1].contiguous(), edges.flip(0))
        return rings, False


@dataclass(frozen=True)
class RingByRing:
    """Rings one after another, from the top or from the bottom, once or once for each return of a ray."""

    elevations: Tensor  # [B] radians, from the top
    start: float = 0.0  # radians: first azimuth of a ring
    sense: int = 1  # -1: azimuth falls within a ring
    down: bool = True  # the top ring is first

    def rings(self, angles: Tensor, name: str) -> tuple[Tensor, bool]:  # as of ByElevation
        turns = find_turns(angles[:, 0], self.start, self.sense)
        n, beams = int(turns[-1]) + 1, len(self.elevations)
        if n == beams and self.down:
            return turns, self.sense == 1 and self.start == 0
        if n > 4 * beams + 4:
            raise CaptureError(
                f"{name} goes round {n} times, but the lidar has {beams} beams; keep the points in the order of KITTI raw"
            )
        passes = split_passes(ring_medians(angles[:, 1], turns), self.down)
        return torch.cat([align(medians, self.elevations) for medians in passes])[self._from_top(passes)][turns], False

    def _from_top(self, passes: list[Tensor]) -> Tensor:  # [n] int64: where each ring of the file stands in the passes
        index, first = [], 0
        for medians in passes:
            rows = torch.arange(first, first + len(medians))
            index.append(rows if self.down else rows.flip(0))
            first += len(medians)
        return torch.cat(index)


Order = ByElevation | RingByRing


def split_passes(
    medians: Tensor,  # [n] radians, of the rings of a file
    down: bool,  # the top ring is first
) -> list[Tensor]:  # each from the top
    """Parts of a file that go through all beams: one, or one for each return of a ray."""
    falling = medians if down else -medians
    ends = (falling.diff() > 0.5 * (medians.max() - medians.min()).clamp(min=1e-6)).nonzero()[:, 0] + 1
    parts = torch.tensor_split(medians, ends)
    return [part if down else part.flip(0) for part in parts]


def find_order(
    sweeps: list[Tensor],  # each [n, 2] azimuth and elevation, in the order of its file
) -> Order | None:  # None: there is no order, and elevations do not tell the beams
    elevations = clear_elevations(torch.cat([angles[:, 1] for angles in sweeps]))
    return _ring_by_ring(sweeps) if elevations is None else ByElevation(elevations)


def clear_elevations(
    elevation: Tensor,  # [n] radians
) -> Tensor | None:  # [B] from the top, if nearly all points lie within narrow beams
    values = elevation.numpy()
    low = values.min() - _BIN
    counts = np.bincount(((values - low) / _BIN).astype(np.int64))
    used = counts > _RARE * float(np.percentile(counts[counts > 0], 90))
    first, last = (np.flatnonzero(np.diff(np.pad(used.astype(int), 1)) == side) for side in (1, -1))
    if len(first) > _MOST_BEAMS or counts[used].sum() < _CLEAR * len(values):
        return None
    apart = 0.5 * _BIN * np.diff(first + last)
    nearest = np.minimum(np.append(apart, _WIDEST), np.append(_WIDEST, apart))
    if ((last - first - 1) * _BIN > _NARROW * nearest).any():
        return None
    values = np.sort(values)
    ends = np.searchsorted(values, low + _BIN * np.stack([first, last]))
    return torch.from_numpy(values[(ends.sum(axis=0) - 1) // 2][::-1].copy())


def _ring_by_ring(sweeps: list[Tensor]) -> RingByRing | None:
    moves = torch.cat([_moves(angles) for angles in sweeps[:_FIRST]])
    across, up = moves.abs().median(dim=0).values.tolist()
    if up >= across:
        return None
    sense = 1 if float(moves[:, 0].median()) > 0 else -1
    start = ring_start(sweeps[:_FIRST], sense)
    medians = [ring_medians(angles[:, 1], find_turns(angles[:, 0], start, sense)) for angles in sweeps]
    falls = torch.cat([ring.diff() for ring in medians]) < 0
    down = bool(falls.double().mean() > 0.5) if len(falls) else True
    if len(falls) and float((falls == down).double().mean()) < _MONOTONE:
        return None
    passes = [part for ring in medians for part in split_passes(ring, down)]
    return RingByRing(drive_beams(passes), start, sense, down)


def _moves(
    angles: Tensor,  # [n, 2]
) -> Tensor:  # [m, 2] radians from each point to the next, azimuth within +-pi; points of one ray make no move
    moves = angles.diff(dim=0)
    moves[:, 0] = wrap_angle(moves[:, 0])
    return moves[(moves.abs() > SAME_RAY).any(dim=1)]
