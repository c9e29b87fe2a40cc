# SPDX-License-Identifier: Apache-2.0
"""A motion of a lidar, as its sweeps show it and as the poses say; several of them, to be held against poses of any convention."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

import torch
from torch import Tensor

from nurec_lite.capture.checks.register import Fit, Pair, log
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import invert

FEWEST = 20  # upright surface points across every direction, at least
SHARE = 0.5  # of points that lie on the other sweep, at least
BLURRED = 0.1  # metres: standard error of a motion, at most
# part of the posed way that is no motion, and shares of points under poses that may be right all the same
STANDS, SEEMS = 0.1, 0.6
METRES, PART = 0.1, 0.08  # by how much a right motion may differ: metres, and part of the way
RADIANS = 0.006  # by how much the rotation of a right motion may differ
SIGMAS = 4.0  # standard errors that a right motion may differ

Poses = dict[str, Tensor]  # [n, 4, 4] T_world_rig at the middles of each lidar's sweeps


@dataclass(frozen=True, eq=False)
class Motion:
    """The motion of one lidar between two of its sweeps."""

    lidar: Lidar
    frames: tuple[int, int]  # places in the sequence of the lidar's sweeps
    numbers: tuple[int, int]  # indices of the frames, for messages
    seconds: float
    pair: Pair
    fit: Fit  # as the sweeps show it
    posed: Tensor  # [4, 4] T_a_b of the lidar, as the poses say

    @property
    def known(self) -> bool:
        """Whether the sweeps show enough static structure. On long walls a lidar's own pattern may seem to stand still; then poses
        that put most points onto surfaces may be right."""
        fit = self.fit
        stands = float(fit.T_a_b[:3, 3].norm()) < STANDS * float(self.posed[:3, 3].norm())
        held = fit.upright >= FEWEST and fit.shares >= SHARE and float(fit.sigma[1]) < BLURRED
        return held and not (stands and self.shares(self.posed) > SEEMS)

    def shares(self, T: Tensor) -> float:  # [4, 4]
        """The upright points that lie on the other sweep under a motion, as a part of those that do under the measured one."""
        best, _, upright = self.pair.errors(self.fit.T_a_b)
        near = max(0.1, 3 * self.fit.error)
        lie = upright & (best < near)
        return float((self.pair.errors(T)[0][lie] < near).double().mean()) if bool(lie.any()) else 0.0


class Motions:
    """m motions at once."""

    def __init__(self, motions: Sequence[Motion]) -> None:
        self.all = tuple(motions)
        self.measured, self.posed = (
            torch.stack(T) for T in zip(*((m.fit.T_a_b, m.posed) for m in motions), strict=True)
        )
        self._mountings = torch.stack([m.lidar.T_rig_lidar.double() for m in motions])
        own, sigma = log(self.measured), torch.stack([m.fit.sigma for m in motions])
        turn, way = own[:, :3].norm(dim=1), own[:, 3:].norm(dim=1)
        self._allowed = torch.stack([RADIANS + PART * turn, METRES + PART * way], dim=1) + SIGMAS * sigma  # [m, 2]

    @property
    def lidar(self) -> Lidar:
        return self.all[0].lidar

    @property
    def shares(self) -> float:
        return mean(m.shares(m.posed) for m in self.all)

    def posed_by(self, poses: Poses) -> Tensor:  # [m, 4, 4] T_a_b of the lidar, as these poses say
        ends = torch.stack([poses[m.lidar.name][list(m.frames)] for m in self.all]) @ self._mountings[:, None]
        return invert(ends[:, 0]) @ ends[:, 1]

    def of_rig(self, T: Tensor) -> Tensor:  # [m, 4, 4] T_a_b of the lidar -> of the rig
        return self._mountings @ T @ invert(self._mountings)

    def excesses(self, T: Tensor) -> Tensor:  # [m, 4, 4] -> [m]
        """Differences from the sweeps, in parts of the largest difference of right poses."""
        apart = log(invert(self.measured) @ T).view(-1, 2, 3).norm(dim=2)
        return (apart / self._allowed).amax(1).clamp(max=100)

    def excess(self, T: Tensor) -> float:  # [m, 4, 4]
        """The mean without the largest quarter: a sweep may be laid on another one wrongly."""
        values = self.excesses(T).sort().values
        return float(values[: math.ceil(0.75 * len(values))].mean())

    def apart(self, T: Tensor) -> float:  # [m, 4, 4]
        """Metres between where motions put points and where the sweeps show them, the median."""
        return median(m.pair.moved_apart(own, m.fit.T_a_b) for m, own in zip(self.all, T, strict=True))
