# SPDX-License-Identifier: Apache-2.0
"""Points of all sweeps laid onto the surfaces that other sweeps saw, as equations for the poses of both.

A block of sweeps is compared with the map of its neighbours in time. Even sweeps are laid onto the map of odd ones and odd ones onto that
of even ones, so that no point meets itself. Source: point to plane (Chen and Medioni 1992), Geman and McClure's weights.
Letters: n points of a sweep, m points of a map.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from nurec_lite.base.pool import in_threads
from nurec_lite.base.waiting import shared_out
from nurec_lite.capture.odometry.clouds import WORKERS, shuffled, thinned
from nurec_lite.capture.odometry.surfaces import surface_map
from nurec_lite.geometry.se3 import transform

BLOCK = 10  # sweeps that share two maps
SPAN = 5  # sweeps before and after a block that are in its maps
AGAIN, MOST_AGAIN = 10.0, 10  # metres to sweeps from before that are in a map, too, and how many of them at most
CELL = 0.25  # metres: one point of a map is kept in each cube of this size
LEAST_SCALE = 0.02  # metres: residuals that count fully, at least


@dataclass(frozen=True)
class Equations:
    """Equations of one sweep's matches in small motions (turn, shift) of the rig in its own axes, at that sweep and at others."""

    sweep: int
    others: Tensor  # [k] the sweeps that it was registered to
    own: Tensor  # [6, 6]
    cross: Tensor  # [k, 6, 6] between the sweep and each of the others
    theirs: Tensor  # [k, 6, 6]
    own_right: Tensor  # [6]
    their_right: Tensor  # [k, 6]
    residuals: Tensor  # [n] metres, of the points that count


def equations(
    still: Sequence[Tensor],  # [n, 3] of each sweep: its points in the rig's axes at its middle
    poses: Tensor,  # [K, 4, 4] T_world_rig at the middles
    reach: float,  # metres from a point to the surface
    source: int,  # points of a sweep that are compared
) -> Iterator[Equations]:
    """Yields the equations of all blocks."""
    world = list(in_threads(lambda k: transform(poses[k], still[k]), range(len(still))))
    made = partial(_of_block, still, world, poses, reach, source)
    for found in shared_out(made, list(tasks(poses[:, :3, 3])), WORKERS):
        yield from found


def tasks(
    places: Tensor,  # [K, 3] metres, of the sweeps
) -> Iterator[tuple[list[int], list[int]]]:
    """Sweeps, and the sweeps of the map that they are registered to: neighbours in time, and the first ones that saw this
    place. Had each visit links to all others, a vehicle that waits would make all unknowns depend on each other."""
    count = len(places)
    for start in range(0, count, BLOCK):
        first, stop, last = max(0, start - SPAN), min(start + BLOCK, count), min(count, start + BLOCK + SPAN)
        apart = torch.cdist(places[:first], places[start:stop]).amin(1) if first else torch.zeros(0)
        again = (apart < AGAIN).nonzero()[:, 0].tolist()
        for odd in (0, 1):
            own = [k for k in range(start, stop) if k % 2 == odd]
            before = [k for k in again if k % 2 != odd][:MOST_AGAIN]
            others = [*before, *(k for k in range(first, last) if k % 2 != odd)]
            if own and others:
                yield own, others


def _map_points(
    world: Sequence[Tensor], sweeps: list[int]
) -> tuple[Tensor, Tensor]:  # [m, 3], [m] numbers of their sweeps
    every = torch.cat([world[k] for k in sweeps])
    of = torch.cat([torch.full((len(world[k]),), k) for k in sweeps])
    order = shuffled(len(every))  # so that any of the points in a cell stays
    some = order[thinned(every[order], CELL)]
    return every[some], of[some]


def _of_block(
    still: Sequence[Tensor],
    world: Sequence[Tensor],
    poses: Tensor,
    reach: float,
    source: int,
    task: tuple[list[int], list[int]],
) -> list[Equations]:
    own, others = task
    points, sweeps = _map_points(world, others)
    looking = [world[k][:source] for k in own]
    rows, at, normals = surface_map(points).surfaces(torch.cat(looking), reach)
    sizes = torch.tensor([0, *(len(p) for p in looking)])
    ends = sizes.cumsum(0)
    parts = torch.searchsorted(rows, ends[1:]).diff(prepend=torch.zeros(1, dtype=torch.long)).tolist()
    return [
        _equations_of(k, still[k][n - start], world[k][n - start], points[m], sweeps[m], normal, poses)
        for k, start, n, m, normal in zip(
            own, ends[:-1].tolist(), *(t.split(parts) for t in (rows, at, normals)), strict=True
        )
    ]


def _equations_of(
    k: int,
    x: Tensor,  # [n, 3] in the rig's axes
    p: Tensor,  # [n, 3] world
    q: Tensor,  # [n, 3] points of the map that these meet
    of: Tensor,  # [n] sweeps of those
    normals: Tensor,  # [n, 3] of the surfaces there
    poses: Tensor,
) -> Equations:
    r = ((p - q) * normals).sum(1)
    scale = max(LEAST_SCALE, 1.5 * float(r.abs().median())) if len(r) else 1.0
    w = (1 + (r / scale) ** 2) ** -2 / scale**2
    own = _rows(x, normals, poses[k : k + 1].expand(len(x), 4, 4))
    theirs = -_rows(_back(poses[of], q), normals, poses[of])
    order = of.argsort(stable=True)
    others, counts = of[order].unique_consecutive(return_counts=True)
    parts = [
        part.split(counts.tolist()) for part in (own[order], (theirs * w[:, None])[order], theirs[order], r[order])
    ]
    sums = [(a.T @ weighted, b.T @ weighted, rest @ weighted) for a, weighted, b, rest in zip(*parts, strict=True)]
    cross, squares, right = (torch.stack(each) for each in zip(*sums, strict=True)) if sums else _nothing()
    return Equations(k, others, (own * w[:, None]).T @ own, cross, squares, own.T @ (w * r), right, r)


def _nothing() -> tuple[Tensor, Tensor, Tensor]:
    blocks = torch.zeros(0, 6, 6, dtype=torch.float64)
    return blocks, blocks, blocks[:, 0]


def _rows(
    x: Tensor,  # [n, 3] in the rig's axes
    normals: Tensor,  # [n, 3] world
    poses: Tensor,  # [n, 4, 4]
) -> Tensor:  # [n, 6] how much a point moves along its normal by the rig's turn and shift
    local = (poses[:, :3, :3].transpose(1, 2) @ normals[..., None])[..., 0]
    return torch.cat([torch.linalg.cross(x, local), local], dim=1)


def _back(poses: Tensor, points: Tensor) -> Tensor:  # [n, 4, 4], [n, 3] -> [n, 3] in the rig's axes
    return (poses[:, :3, :3].transpose(1, 2) @ (points - poses[:, :3, 3])[..., None])[..., 0]
