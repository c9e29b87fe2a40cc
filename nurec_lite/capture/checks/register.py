# SPDX-License-Identifier: Apache-2.0
"""The motion of a lidar between two of its sweeps, measured from the points that both see, without any pose.

Source: point to plane (Chen and Medioni 1992) with robust weights. Letters: n points of the first sweep that have a normal, m points of
the second sweep. `T_a_b` maps the lidar's axes at the middle of the second sweep to its axes at the middle of the first sweep.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nurec_lite.capture.types import SweepFrame
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.se3 import matrix_to_quat, pose_matrix, quat_to_rotvec, rotvec_to_quat, transform

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

NEAREST, FARTHEST = 1.5, 60.0  # metres of range: nearer points are the vehicle's own, farther points are few
CELL = 0.3  # metres: one point is kept in each cube of this size
MOST_POINTS = 60_000  # of a sweep, before that
NEIGHBOURS = 10  # points that make a normal
THICK = 0.06  # metres: standard deviation of a surface's points along the normal, at most
WIDE = 0.15  # width of a surface relative to its length, at least: less is a line
BEAMS = 3  # that such points belong to, at least
SOURCE = 1500  # points of the second sweep that are compared
UPRIGHT = 0.5  # upward part of a unit normal, at most: walls, poles and cars, which show motion along the ground
ROUNDS = 10  # of Gauss and Newton
FIRST_REACH, LAST_REACH = 2.0, 0.3  # metres to the nearest point, in the first and the last round
FEW, CLOSE = 400, 0.3  # points of a quick comparison of many motions, and metres that their errors are at most
MISS = 1.0  # metres: the largest error of a point


@dataclass(frozen=True)
class Cloud:
    """Points of a sweep, each in the lidar's axes at its own time."""

    points: Tensor  # [n, 3] metres, float64
    late: Tensor  # [n] seconds after the middle of the sweep
    rings: Tensor  # [n] int64

    def still(
        self,
        velocity: Tensor,  # [6] of the lidar in its own axes, radians and metres a second
    ) -> Tensor:  # [n, 3] in the lidar's axes at the middle of the sweep
        turn, way = (self.late[:, None] * velocity).split(3, dim=1)
        across = torch.linalg.cross(turn, self.points)
        return self.points + way + across + 0.5 * torch.linalg.cross(turn, across)


def cloud_of(frame: SweepFrame, sweep: Sweep) -> Cloud:
    """Cloud with at most one point in each cube of CELL."""
    usable = (sweep.returned & (sweep.ranges > NEAREST) & (sweep.ranges < FARTHEST)).nonzero()[:, 0]
    some = usable[torch.randperm(len(usable), generator=torch.Generator().manual_seed(0))[:MOST_POINTS]]
    points = (sweep.directions[some] * sweep.ranges[some, None]).double()
    kept = _one_in_each_cell(points)
    return Cloud(points[kept], sweep.times[some[kept]] - frame.time_mid, sweep.rings[some[kept]])


def _one_in_each_cell(points: Tensor) -> Tensor:  # [n, 3] -> indices
    cell = (points / CELL).floor().long() + 1024
    key = (cell[:, 0] * 2048 + cell[:, 1]) * 2048 + cell[:, 2]
    order = torch.argsort(key)
    return order[torch.cat([torch.ones(min(1, len(key)), dtype=torch.bool), key[order].diff() != 0])]


def velocity_of(
    T_a_b: Tensor,  # [4, 4]
    seconds: float,
) -> Tensor:  # [6] radians and metres a second
    return log(T_a_b) / seconds


def log(T: Tensor) -> Tensor:  # [..., 4, 4] -> [..., 6] rotation vector and translation
    return torch.cat([quat_to_rotvec(matrix_to_quat(T[..., :3, :3])), T[..., :3, 3]], dim=-1)


def exp(x: Tensor) -> Tensor:  # [..., 6] -> [..., 4, 4]
    return pose_matrix(rotvec_to_quat(x[..., :3]), x[..., 3:])


@dataclass(frozen=True)
class Fit:
    """A motion that lays two sweeps on each other, as far as they do near the guess that it began from."""

    T_a_b: Tensor  # [4, 4]
    error: float  # metres, point to plane: median over upright surfaces
    shares: float  # of points on upright surfaces that lie on the other sweep
    sigma: Tensor  # [2] standard errors of the rotation (radians) and of the translation (metres), in the weakest direction
    upright: int  # points on upright surfaces that were compared, across the weakest horizontal direction


@dataclass(frozen=True, eq=False)
class Surface:
    """Points of a sweep without the distortion of its motion, and the surfaces that they lie on."""

    points: Tensor  # [*, 3] metres
    rings: Tensor  # [*]

    @cached_property
    def flat(self) -> "tuple[Tensor, Tensor, cKDTree]":
        """Points [n, 3] that lie on surfaces, their unit normals [n, 3], and how to find them."""
        from scipy.spatial import cKDTree  # 0.3 s of a start that needs it nowhere else

        normals, flat = _normals(self.points, self.rings, cKDTree(self.points.numpy()))
        return self.points[flat], normals[flat], cKDTree(self.points[flat].numpy())


@dataclass(frozen=True, eq=False)
class Pair:
    """Two sweeps without the distortion of their motion."""

    a: Surface
    b: Tensor  # [*, 3] metres

    def to(self, other: Tensor) -> "Pair":  # [*, 3] metres
        """The first sweep and another one."""
        return Pair(self.a, other)

    @cached_property
    def source(self) -> Tensor:  # [m, 3]
        order = torch.randperm(len(self.b), generator=torch.Generator().manual_seed(1))
        return self.b[order[:SOURCE]]

    @property
    def enough(self) -> bool:
        return min(len(self.a.points), len(self.b)) > NEIGHBOURS and len(self.a.flat[0]) > NEIGHBOURS

    def _meet(self, T: Tensor, reach: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns the moved source [m, 3], nearest surface points [m, 3] and normals [m, 3], and which of them are within reach [m]."""
        points, normals, tree = self.a.flat
        moved = transform(T, self.source)
        distances, indices = tree.query(moved.numpy(), distance_upper_bound=reach)
        j = torch.from_numpy(indices).clamp(max=len(points) - 1)
        return moved, points[j], normals[j], torch.from_numpy(distances).isfinite()

    def aligned(self, guess: Tensor, reach: float = FIRST_REACH) -> Fit:  # [4, 4], metres
        """The best motion near a guess."""
        T = guess
        for k in range(ROUNDS):
            step, _, _ = self._step(T, max(LAST_REACH, reach * 0.6**k))
            T = exp(step) @ T
            if k > 3 and bool(step.abs().max() < 1e-3):
                break
        _, H, scale = self._step(T, LAST_REACH)
        return self._fit(T, H, scale)

    def _step(self, T: Tensor, reach: float) -> tuple[Tensor, Tensor, float]:
        """Gauss and Newton's step [6], its matrix [6, 6] and the scale of residuals in metres."""
        p, q, n, near = self._meet(T, reach)
        p, q, n = p[near], q[near], n[near]
        r = ((p - q) * n).sum(1)
        w, scale = weights(r, n)
        J = torch.cat([torch.linalg.cross(p, n), n], dim=1)
        H = (J * w[:, None]).T @ J + 1e-6 * torch.eye(6, dtype=torch.float64)
        return -torch.linalg.solve(H, (J * w[:, None]).T @ r), H, scale

    def errors(self, T: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Point to plane [m] in metres, at most MISS, normals [m, 3], and which source points lie near an upright surface [m]."""
        p, q, n, near = self._meet(T, MISS)
        r = ((p - q) * n).sum(1).abs()
        return torch.where(near, r, MISS).clamp(max=MISS), n, near & (n[:, 2].abs() < UPRIGHT)

    def scores(
        self,
        T: Tensor,  # [t, 4, 4]
    ) -> Tensor:  # [t] metres: mean error of FEW points, at most CLOSE each
        points, normals, tree = self.a.flat
        moved = transform(T, self.source[:FEW]).flatten(0, 1)
        distances, indices = tree.query(moved.numpy(), distance_upper_bound=MISS)
        j = torch.from_numpy(indices).clamp(max=len(points) - 1)
        r = ((moved - points[j]) * normals[j]).sum(1).abs()
        near = torch.from_numpy(distances).isfinite()
        return torch.where(near, r, CLOSE).clamp(max=CLOSE).view(len(T), -1).mean(1)

    def _fit(self, T: Tensor, H: Tensor, scale: float) -> Fit:
        r, n, upright = self.errors(T)
        r, n = r[upright], n[upright]
        sigma = scale * torch.linalg.inv(H).diagonal().clamp(min=0).sqrt().view(2, 3).amax(1)
        shares = float((r < max(0.1, 3 * scale)).double().mean()) if len(r) else 0.0
        return Fit(T, float(r.median()) if len(r) else MISS, shares, sigma, _across(n))

    def moved_apart(self, T: Tensor, other: Tensor) -> float:  # [4, 4] each
        """Median distance in metres between the places of the second sweep's points under two motions."""
        return float((transform(T, self.source) - transform(other, self.source)).norm(dim=1).median())


def _across(normals: Tensor) -> int:  # [*, 3]
    """Number of surfaces that face the horizontal direction that fewest face, within 60 degrees."""
    angles = torch.arange(12, dtype=torch.float64) * (torch.pi / 12)
    ways = torch.stack([angles.cos(), angles.sin()], dim=1)
    return int(((normals[:, :2] @ ways.T).abs() > 0.5).sum(0).min()) if len(normals) else 0


def weights(residuals: Tensor, normals: Tensor) -> tuple[Tensor, float]:  # [m] and [m, 3] -> [m], and metres
    """Weights of points, robust and balanced, and the scale of residuals."""
    scale = max(0.02, 1.5 * float(residuals.abs().median())) if len(residuals) else MISS
    return (1 + (residuals / scale) ** 2) ** -2 * _balance(normals), scale


def _balance(normals: Tensor) -> Tensor:  # [m, 3] -> [m]
    """Weights that make walls of each direction count as much as the ground."""
    angle = torch.atan2(normals[:, 1], normals[:, 0]).remainder(torch.pi) * (8 / torch.pi)
    kind = torch.where(normals[:, 2].abs() > 0.8, 8, angle.long().clamp(max=7))
    return len(normals) / 9 / torch.bincount(kind, minlength=9)[kind].clamp(min=20)


def _normals(points: Tensor, rings: Tensor, tree: "cKDTree") -> tuple[Tensor, Tensor]:
    """Unit normals [n, 3], and which points have one [n]. One beam alone lies on a cone of its own, on any surface."""
    _, indices = tree.query(points.numpy(), k=NEIGHBOURS)
    j = torch.from_numpy(indices)
    apart = points[j] - points[j].mean(1, keepdim=True)
    squares, axes = torch.linalg.eigh(apart.transpose(1, 2) @ apart / NEIGHBOURS)
    thick, wide, long = squares.clamp(min=0).sqrt().unbind(1)
    beams = 1 + (rings[j].sort(dim=1).values.diff(dim=1) > 0).sum(1)
    return axes[:, :, 0], (thick < THICK) & (wide > WIDE * long) & (thick < 0.4 * wide) & (beams >= BEAMS)
