# SPDX-License-Identifier: Apache-2.0
"""Points of all sweeps laid onto the surfaces that other sweeps saw, as equations for the poses of both.

A block of sweeps is compared with the map of its neighbours in time. Even sweeps are laid onto the map of odd ones and odd ones onto that
of even ones, so that no point meets itself. Source: point to plane (Chen and Medioni 1992), Geman and McClure's weights.
Letters: n points of a sweep, m points of a map.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nurec_lite.base.pool import in_threads
from nurec_lite.capture.odometry.clouds import Cloud, shuffled, thinned
from nurec_lite.geometry.se3 import transform

if TYPE_CHECKING:
    import small_gicp

BLOCK = 10  # sweeps that share two maps
SPAN = 5  # sweeps before and after a block that are in its maps
AGAIN, MOST_AGAIN = 10.0, 10  # metres to sweeps from before that are in a map, too, and how many of them at most
CELL = 0.25  # metres: one point of a map is kept in each cube of this size
SOURCE = 5000  # points of a sweep that are compared
NEIGHBOURS = 10  # points that make a surface
THICK = 0.06  # metres: standard deviation of a surface's points along its normal, at most
LEAST_SCALE = 0.02  # metres: residuals that count fully, at least


@dataclass(frozen=True)
class Equations:
    """What the matches of one sweep say of small motions (turn, shift) of the rig in its own axes, of that sweep and of others."""

    sweep: int
    others: Tensor  # [k] the sweeps whose points it was laid onto
    own: Tensor  # [6, 6]
    cross: Tensor  # [k, 6, 6] between the sweep and each of the others
    theirs: Tensor  # [k, 6, 6]
    own_right: Tensor  # [6]
    their_right: Tensor  # [k, 6]
    residuals: Tensor  # [n] metres, of the points that count


@dataclass(frozen=True)
class Map:
    """m points of several sweeps in the world, and which surfaces they lie on."""

    points: Tensor  # [m, 3]
    sweeps: Tensor  # [m]
    tree: "small_gicp.KdTree"
    threads: int

    def near(self, points: Tensor) -> tuple[Tensor, Tensor]:  # [n, 3] -> indices [n] and distances [n]
        indices, squares = self.tree.batch_nearest_neighbor_search(points.numpy(), num_threads=self.threads)
        return torch.from_numpy(np.asarray(indices).astype(np.int64)), torch.from_numpy(np.asarray(squares)).sqrt()

    def surfaces(self, at: Tensor) -> tuple[Tensor, Tensor]:  # [n] indices -> normals [n, 3], which are flat [n]
        if not len(at):
            return self.points.new_zeros(0, 3), at.bool()
        places, inverse = at.unique(return_inverse=True)
        found, _ = self.tree.batch_knn_search(self.points[places].numpy(), NEIGHBOURS, num_threads=self.threads)
        beside = self.points[torch.from_numpy(np.stack(found).astype(np.int64))]
        apart = beside - beside.mean(1, keepdim=True)
        squares, axes = torch.linalg.eigh(apart.transpose(1, 2) @ apart / NEIGHBOURS)
        thick, wide, _ = squares.clamp(min=0).sqrt().unbind(1)
        flat = (thick < THICK) & (thick < 0.4 * wide)
        return axes[inverse, :, 0], flat[inverse]


def equations(
    clouds: Sequence[Cloud],
    still: Sequence[Tensor],  # [n, 3] of each sweep: its points in the rig's axes at its middle
    poses: Tensor,  # [K, 4, 4] T_world_rig at the middles
    reach: float,  # metres from a point to the surface
) -> Iterator[Equations]:
    world = [transform(T, points) for T, points in zip(poses, still, strict=True)]
    threads = torch.get_num_threads()

    def matched(task: tuple[list[int], list[int]]) -> list[Equations]:
        own, others = task
        made = _map([world[k] for k in others], others, threads)
        return [_matched(k, still[k][:SOURCE], world[k][:SOURCE], made, poses, reach) for k in own]

    for found in in_threads(matched, list(tasks(poses[:, :3, 3]))):
        yield from found


def tasks(
    places: Tensor,  # [K, 3] metres, of the sweeps
) -> Iterator[tuple[list[int], list[int]]]:
    """Sweeps, and the sweeps whose map they are laid onto: neighbours in time, and the first ones from which the rig saw this
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


def _map(points: list[Tensor], sweeps: list[int], threads: int) -> Map:
    every = torch.cat(points)
    of = torch.cat([torch.full((len(p),), k) for p, k in zip(points, sweeps, strict=True)])
    order = shuffled(len(every))  # so that any of the points in a cell stays
    some = order[thinned(every[order], CELL)]
    return surface_map(every[some], of[some], threads)


def surface_map(
    points: Tensor,  # [m, 3] world
    sweeps: Tensor | None = None,  # [m]; None: they are of one sweep
    threads: int | None = None,  # that look for neighbours; None: all of the process
) -> Map:
    """The library holds Python's lock, so that one call at a time uses all threads."""
    import small_gicp  # a start that needs no poses goes without it

    threads = threads or torch.get_num_threads()
    points = points.contiguous()
    tree = small_gicp.KdTree(points.numpy(), threads)
    return Map(points, points.new_zeros(len(points), dtype=torch.long) if sweeps is None else sweeps, tree, threads)


def _matched(k: int, still: Tensor, world: Tensor, made: Map, poses: Tensor, reach: float) -> Equations:
    at, distances = made.near(world)
    near = (distances < reach).nonzero()[:, 0]
    normals, flat = made.surfaces(at[near])
    near, normals = near[flat], normals[flat]
    at, p, x = at[near], world[near], still[near]
    q, of = made.points[at], made.sweeps[at]
    r = ((p - q) * normals).sum(1)
    scale = max(LEAST_SCALE, 1.5 * float(r.abs().median())) if len(r) else 1.0
    w = (1 + (r / scale) ** 2) ** -2 / scale**2
    own = _rows(x, normals, poses[k : k + 1].expand(len(x), 4, 4))
    theirs = -_rows(_back(poses[of], q), normals, poses[of])
    others, group = of.unique(return_inverse=True)
    cross, squares = (_summed(a, theirs, w, group, len(others)) for a in (own, theirs))
    right = torch.zeros(len(others), 6, dtype=torch.float64).index_add(0, group, theirs * (w * r)[:, None])
    return Equations(k, others, (own * w[:, None]).T @ own, cross, squares, own.T @ (w * r), right, r)


def _rows(
    x: Tensor,  # [n, 3] in the rig's axes
    normals: Tensor,  # [n, 3] world
    poses: Tensor,  # [n, 4, 4]
) -> Tensor:  # [n, 6] how much a point moves along its normal by the rig's turn and shift
    local = (poses[:, :3, :3].transpose(1, 2) @ normals[..., None])[..., 0]
    return torch.cat([torch.linalg.cross(x, local), local], dim=1)


def _back(poses: Tensor, points: Tensor) -> Tensor:  # [n, 4, 4], [n, 3] -> [n, 3] in the rig's axes
    return (poses[:, :3, :3].transpose(1, 2) @ (points - poses[:, :3, 3])[..., None])[..., 0]


def _summed(a: Tensor, b: Tensor, w: Tensor, group: Tensor, count: int) -> Tensor:  # [count, 6, 6]
    products = (a * w[:, None])[:, :, None] * b[:, None, :]
    return torch.zeros(count, 6, 6, dtype=torch.float64).index_add(0, group, products)
