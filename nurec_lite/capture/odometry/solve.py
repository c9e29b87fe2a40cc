# SPDX-License-Identifier: Apache-2.0
"""One step of Gauss and Newton for all poses of a path at once, from the sweeps and from the twists.

Unknowns of a knot: a turn and a shift of the rig in its own axes, and a correction of its twist. Between two knots the pose moves by the
corrected twist, and corrections change slowly. Where velocities were measured, a correction is their error; else it is the
velocity itself, and changes as fast as vehicles do. Letters: K knots, S sweeps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.odometry.matches import Equations
from nurec_lite.capture.odometry.path import Path
from nurec_lite.capture.odometry.reckoning import Twists, exp, log
from nurec_lite.geometry.se3 import invert


@dataclass(frozen=True)
class Noise:
    """Standard deviations of turns (radians) and of ways (metres)."""

    step: tuple[float, float]  # of a motion over a second that the twists do not explain, white
    change: tuple[float, float]  # of the twists' change over a second, a random walk
    share: float = 0.02  # of the sweeps' points that count: their errors are alike


@dataclass
class _System:
    """Blocks of 6 x 6 of the normal equations."""

    rows: list[Tensor]
    columns: list[Tensor]
    blocks: list[Tensor]
    right: Tensor  # [2 K, 6]

    def add(self, i: Tensor, j: Tensor, blocks: Tensor) -> None:  # [b], [b], [b, 6, 6]
        self.rows.append(i)
        self.columns.append(j)
        self.blocks.append(blocks)

    def solved(self) -> Tensor:  # [2 K, 6]
        from scipy.sparse import csc_array
        from scipy.sparse.linalg import spsolve

        n = self.right.numel()
        rows, columns, blocks = torch.cat(self.rows), torch.cat(self.columns), torch.cat(self.blocks)
        within = torch.arange(6)
        i = (6 * rows[:, None, None] + within[:, None]).expand_as(blocks).flatten().numpy()
        j = (6 * columns[:, None, None] + within).expand_as(blocks).flatten().numpy()
        matrix = csc_array((blocks.flatten().numpy(), (i, j)), shape=(n, n))
        return torch.from_numpy(np.asarray(spsolve(matrix, self.right.flatten().numpy()))).view(-1, 6)


def improved(
    path: Path,
    at: Tensor,  # [S] the knots of the sweeps
    found: Sequence[Equations],
    noise: Noise,
    walk: Tensor,  # [K, 6] corrections of the twists so far
) -> tuple[Path, Tensor]:  # the better path and its corrections of the twists
    K = len(path.times)
    system = _System([], [], [], torch.zeros(2 * K, 6, dtype=torch.float64))
    _add_sweeps(system, at, found, noise.share)
    _add_motion(system, path, noise, walk)
    everywhere = torch.arange(2 * K)
    system.add(everywhere, everywhere, 1e-9 * torch.eye(6, dtype=torch.float64).expand(2 * K, 6, 6))
    system.add(everywhere[:1], everywhere[:1], 1e9 * torch.eye(6, dtype=torch.float64)[None])
    moves = system.solved()
    better = path.poses @ exp(moves[0::2])
    return Path(path.times, better, path.twists + Twists(path.times, moves[1::2])), walk + moves[1::2]


def _add_sweeps(system: _System, at: Tensor, found: Sequence[Equations], share: float) -> None:
    for part in found:
        i, j = 2 * at[part.sweep : part.sweep + 1], 2 * at[part.others]
        system.add(i, i, share * part.own[None])
        system.add(i.expand(len(j)), j, share * part.cross)
        system.add(j, i.expand(len(j)), share * part.cross.transpose(1, 2))
        system.add(j, j, share * part.theirs)
        system.right.index_add_(0, i, -share * part.own_right[None])
        system.right.index_add_(0, j, -share * part.their_right)


def _add_motion(system: _System, path: Path, noise: Noise, walk: Tensor) -> None:
    K, seconds = len(path.times), path.times.diff()
    k, eye = torch.arange(K - 1), torch.eye(6, dtype=torch.float64).expand(K - 1, 6, 6)
    half = -0.5 * seconds[:, None, None] * eye
    parts = [(2 * k, -_adjoint(invert(path.steps))), (2 * k + 2, eye), (2 * k + 1, half), (2 * k + 3, half)]
    off = log(invert(path.reckoned) @ path.steps)
    _weighted(system, parts, _deviations(noise.step, seconds), off)
    _weighted(system, [(2 * k + 1, -eye), (2 * k + 3, eye)], _deviations(noise.change, seconds), walk.diff(dim=0))


def _deviations(pair: tuple[float, float], seconds: Tensor) -> Tensor:  # [b] -> [b, 6]
    six = torch.tensor([pair[0]] * 3 + [pair[1]] * 3, dtype=torch.float64)
    return six * seconds[:, None].sqrt()


def _weighted(
    system: _System,
    parts: Sequence[tuple[Tensor, Tensor]],  # unknowns [b], and how residuals change with them [b, 6, 6]
    deviations: Tensor,  # [b, 6]
    residuals: Tensor,  # [b, 6]
) -> None:
    scaled = [(i, J / deviations[..., None]) for i, J in parts]
    for i, J in scaled:
        Jt = J.transpose(1, 2)
        system.right.index_add_(0, i, -(Jt @ (residuals / deviations)[..., None])[..., 0])
        for j, other in scaled:
            system.add(i, j, Jt @ other)


def _adjoint(T: Tensor) -> Tensor:  # [b, 4, 4] -> [b, 6, 6]
    R, t = T[:, :3, :3], T[:, :3, 3]
    across = torch.linalg.cross(t[:, :, None].expand_as(R), R, dim=1)
    top = torch.cat([R, torch.zeros_like(R)], dim=2)
    return torch.cat([top, torch.cat([across, R], dim=2)], dim=1)
