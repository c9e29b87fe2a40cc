# SPDX-License-Identifier: Apache-2.0
"""Dead reckoning: measured velocities and attitudes as functions of time, and the motions that follow from them.

Letters: n measurements, m steps of an integration. A twist is a turn and a motion in the rig's own axes, radians and metres a second.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.capture.measured import Measured
from nurec_lite.geometry.se3 import (
    matrix_to_quat,
    pose_matrix,
    quat_conjugate,
    quat_multiply,
    quat_to_rotvec,
    rotvec_to_quat,
)

STEP, MOST_STEPS = 0.01, 200  # seconds between the steps of an integration at most, unless that makes too many


@dataclass(frozen=True)
class Twists:
    """Linear in time between n times, and constant beyond them."""

    times: Tensor  # [n] seconds
    values: Tensor  # [n, 6]

    def at(self, times: Tensor) -> Tensor:  # [...] seconds -> [..., 6]
        if len(self.times) == 1:
            return self.values[0].expand(*times.shape, 6)
        i = (torch.searchsorted(self.times, times.contiguous(), right=True) - 1).clamp(0, len(self.times) - 2)
        fraction = ((times - self.times[i]) / (self.times[i + 1] - self.times[i])).clamp(0, 1)[..., None]
        return self.values[i] + fraction * (self.values[i + 1] - self.values[i])

    def __add__(self, other: "Twists") -> "Twists":
        times = torch.cat([self.times, other.times]).unique()
        return Twists(times, self.at(times) + other.at(times))


def measured_twists(measured: Measured) -> Twists | None:
    """Twists from velocities, and from rates or attitudes; missing ones count as zero. None: neither motion nor
    rotation was measured."""
    n, times = len(measured.times), measured.times
    turns = _turns(measured)
    if turns is None and measured.velocities is None:
        return None
    zeros = times.new_zeros(n, 3)
    ways = zeros if measured.velocities is None else measured.velocities
    return Twists(times, torch.cat([zeros if turns is None else turns, ways], dim=1))


def _turns(measured: Measured) -> Tensor | None:  # [n, 3]
    """Rotation rates of the attitudes, as the mean of the steps before and after each; without attitudes the measured
    rates."""
    if measured.attitudes is None:
        return measured.rates
    q = measured.attitudes
    steps = quat_to_rotvec(quat_multiply(quat_conjugate(q[:-1]), q[1:])) / measured.times.diff()[:, None]
    return 0.5 * (torch.cat([steps[:1], steps]) + torch.cat([steps, steps[-1:]]))


def integrated(
    twists: Twists,
    starts: Tensor,  # [b] seconds
    ends: Tensor,  # [b] seconds, not before the starts by more than they are after
) -> Tensor:  # [b, 4, 4] T_start_end
    """The motions from each start to its end, by the mean twist of small steps."""
    if not len(starts):
        return torch.zeros(0, 4, 4, dtype=torch.float64)
    m = int(((ends - starts).abs().max() / STEP).ceil().clamp(1, MOST_STEPS))
    step = (ends - starts) / m
    middles = starts[:, None] + step[:, None] * (torch.arange(m, dtype=torch.float64) + 0.5)
    moves = exp(twists.at(middles) * step[:, None, None])  # [b, m, 4, 4]
    T = moves[:, 0]
    for k in range(1, m):
        T = T @ moves[:, k]
    return T


def exp(x: Tensor) -> Tensor:  # [..., 6] -> [..., 4, 4]
    """The motion of a twist over one second: a screw (Murray, Li and Sastry 1994, 2.36)."""
    turn, way = x[..., :3], x[..., 3:]
    q = rotvec_to_quat(turn)
    return pose_matrix(q, _left_jacobian_times(turn, way))


def log(T: Tensor) -> Tensor:  # [..., 4, 4] -> [..., 6]
    """Returns the twist of this motion over one second."""
    turn = quat_to_rotvec(matrix_to_quat(T[..., :3, :3]))
    way, a2 = T[..., :3, 3], turn.square().sum(-1, keepdim=True)
    small = a2 < 1e-6
    a = torch.where(small, torch.ones_like(a2), a2).sqrt()
    factor = torch.where(small, 1 / 12 + a2 / 720, 1 / a**2 - (1 + a.cos()) / (2 * a * a.sin()))
    across = torch.linalg.cross(turn, way)
    return torch.cat([turn, way - 0.5 * across + factor * torch.linalg.cross(turn, across)], dim=-1)


def _left_jacobian_times(turn: Tensor, way: Tensor) -> Tensor:
    a2 = turn.square().sum(-1, keepdim=True)
    small = a2 < 1e-6
    a = torch.where(small, torch.ones_like(a2), a2).sqrt()
    first = torch.where(small, 0.5 - a2 / 24, (1 - a.cos()) / a**2)
    second = torch.where(small, 1 / 6 - a2 / 120, (a - a.sin()) / a**3)
    across = torch.linalg.cross(turn, way)
    return way + first * across + second * torch.linalg.cross(turn, across)
