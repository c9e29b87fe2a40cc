# SPDX-License-Identifier: Apache-2.0
"""A continuous path of the rig: poses at knots, and between them the motion of the twists that were measured or estimated.

Letters: K knots, m steps between two knots.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from nurec_lite.capture.odometry.reckoning import Twists, exp, integrated, log
from nurec_lite.capture.trajectory import Trajectory
from nurec_lite.geometry.se3 import invert

# seconds between the poses that a path is handed on by at most, unless that makes too many
DENSE, MOST_PARTS = 0.02, 10


@dataclass(frozen=True, eq=False)
class Path:
    """K knots."""

    times: Tensor  # [K] seconds, rising
    poses: Tensor  # [K, 4, 4] T_world_rig
    twists: Twists

    @property
    def steps(self) -> Tensor:  # [K - 1, 4, 4] T_k_next
        return invert(self.poses[:-1]) @ self.poses[1:]

    @cached_property
    def reckoned(self) -> Tensor:  # [K - 1, 4, 4] T_k_next by the twists alone
        return integrated(self.twists, self.times[:-1], self.times[1:])

    @cached_property
    def dense(self) -> Trajectory:
        """Poses between the knots by the twists; the difference to the knots is spread evenly over each step."""
        m = int((self.times.diff().max() / DENSE).ceil().clamp(1, MOST_PARTS)) if len(self.times) > 1 else 1
        parts, step = torch.arange(1, m + 1, dtype=torch.float64) / m, self.times.diff()
        starts, rest = self.times[:-1], log(invert(self.reckoned) @ self.steps)
        poses, T = [self.poses[:-1]], torch.eye(4, dtype=torch.float64)
        for k in range(m - 1):
            T = T @ integrated(self.twists, starts + step * (k / m), starts + step * ((k + 1) / m))
            poses.append(self.poses[:-1] @ T @ exp(rest * parts[k]))
        times = starts[:, None] + step[:, None] * torch.cat([parts.new_zeros(1), parts[:-1]])
        inner = torch.stack(poses, dim=1).flatten(0, 1)
        return Trajectory(torch.cat([times.flatten(), self.times[-1:]]), torch.cat([inner, self.poses[-1:]]))

    def at(self, times: Tensor) -> Tensor:  # [...] seconds -> [..., 4, 4]
        return self.dense.at(times)
