# SPDX-License-Identifier: Apache-2.0
"""Points that a rig carries at constant velocity, each at a time of its own: a few operators on many points.

Rodrigues' formula gives a rotation about a fixed axis: R = A + B cos a + C sin a with the angle a. Constant matrices keep the axis and the
first pose. `Motion` in se3.py is the same path by quaternions.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nurec_lite.geometry.se3 import Motion, quat_to_matrix

_STILL = 1e-12  # radians: a turn without an axis


class SteadyMotion(NamedTuple):
    """Steady motions from one pose to another: F of them, or one."""

    turns: Tensor  # [F, 9, 3] A, B and C, above each other; [9, 3] of one
    angle: Tensor  # [F, 1] radians from the first pose to the last; [1] of one
    t: Tensor  # [F, 1, 3] metres, at the start; [1, 3] of one
    way: Tensor  # same, from the start to the end

    @staticmethod
    def of(motion: Motion) -> "SteadyMotion":
        """The same motion as one by quaternions, with parts [F, ...] or [...]."""
        angle = motion.turn.norm(dim=-1, keepdim=True)
        first = torch.eye(3, dtype=angle.dtype, device=angle.device)[0]
        axis = torch.where(angle > _STILL, motion.turn / angle.clamp(min=_STILL), first)
        along, R = axis[..., :, None] * axis[..., None, :], quat_to_matrix(motion.q)
        parts = along, torch.eye(3).to(along) - along, _cross_matrix(axis)
        return SteadyMotion(
            torch.cat([R @ part for part in parts], dim=-2), angle, motion.t[..., None, :], motion.way[..., None, :]
        )

    @staticmethod
    def stack(motions: Sequence["SteadyMotion"]) -> "SteadyMotion":
        """Several motions from single ones."""
        return SteadyMotion(*(torch.stack(parts) for parts in zip(*motions, strict=True)))

    def to(self, device: torch.device | str) -> "SteadyMotion":
        return SteadyMotion(*(part.to(device) for part in self))

    def rotated(
        self,
        vectors: Tensor,  # [F, n, 3] in the rig's axes; [n, 3] of one motion
        fraction: Tensor,  # [F, n] 0 at the start, 1 at the end; outside the motion goes on
    ) -> Tensor:  # same as the vectors, in the world's axes
        return self._parts(vectors, fraction) @ self.turns.unflatten(-2, (3, 3)).transpose(-1, -2).flatten(-3, -2)

    def to_world(self, points: Tensor, fraction: Tensor) -> Tensor:
        """Points of the rig as for `rotated`, metres, in the world."""
        return self.rotated(points, fraction) + self.place(fraction)

    def to_rig(self, points: Tensor, fraction: Tensor) -> Tensor:
        """The inverse of `to_world`."""
        return self._parts(points - self.place(fraction), fraction) @ self.turns

    def place(self, fraction: Tensor) -> Tensor:  # [F, n, 3] metres, world
        return self.t + fraction[..., None] * self.way

    def _parts(self, vectors: Tensor, fraction: Tensor) -> Tensor:  # [F, n, 9]
        angle = (fraction * self.angle)[..., None]
        return torch.cat([vectors, angle.cos() * vectors, angle.sin() * vectors], dim=-1)


def _cross_matrix(axis: Tensor) -> Tensor:  # [..., 3, 3]: its product with v is axis x v
    x, y, z = axis.unbind(-1)
    zero = torch.zeros_like(x)
    return torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], dim=-1).unflatten(-1, (3, 3))
