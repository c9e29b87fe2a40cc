# SPDX-License-Identifier: Apache-2.0
"""Rotations as unit quaternions wxyz, rigid transforms as 4x4 matrices `T_to_from`; all batched over leading dimensions.

Every function is differentiable, also where it is singular when written naively (equal quaternions, zero rotation vectors):
series replace the quotients there, inside `torch.where` with safe arguments, so that no NaN reaches a gradient. Squares are products,
since a GPU takes 0.05 s to load torch's kernels of powers, and as long for those of norms.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

_SMALL = 1e-8  # squared angle; below, the series are exact to rounding


def quat_normalize(
    q: Tensor,  # [..., 4]
) -> Tensor:  # [..., 4] of length 1
    return F.normalize(q, dim=-1, eps=1e-12)


def quat_conjugate(
    q: Tensor,  # [..., 4]
) -> Tensor:  # [..., 4], the inverse of a unit quaternion
    return torch.cat([q[..., :1], -q[..., 1:]], dim=-1)


def quat_multiply(
    a: Tensor,  # [..., 4]
    b: Tensor,  # [..., 4]
) -> Tensor:  # [..., 4] Hamilton product: rotation b, then a
    """(aw bw - a . b, aw b + bw a + a x b) with the vector parts a and b."""
    a, b = torch.broadcast_tensors(a, b)
    aw, u, bw, v = a[..., :1], a[..., 1:], b[..., :1], b[..., 1:]
    scalar = aw * bw - (u * v).sum(-1, keepdim=True)
    return torch.cat([scalar, aw * v + bw * u + torch.linalg.cross(u, v)], dim=-1)


def quat_rotate(
    q: Tensor,  # [..., 4] unit
    v: Tensor,  # [..., 3]
) -> Tensor:  # [..., 3] R(q) v
    w, u = q[..., :1], q[..., 1:]
    u, v = torch.broadcast_tensors(u, v)
    t = 2 * torch.linalg.cross(u, v)
    return v + w * t + torch.linalg.cross(u, t)


def quat_to_matrix(
    q: Tensor,  # [..., 4] unit
) -> Tensor:  # [..., 3, 3]
    w, x, y, z = q.unbind(-1)
    rows = [
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    ]  # fmt: skip
    return torch.stack(rows, dim=-1).unflatten(-1, (3, 3))


def matrix_to_quat(
    R: Tensor,  # [..., 3, 3] rotation
) -> Tensor:  # [..., 4] unit, w >= 0
    """Quaternions of rotation matrices. The largest component comes from the diagonal, the others from it (Shepperd 1978): nothing
    cancels."""
    m00, m11, m22 = R[..., 0, 0], R[..., 1, 1], R[..., 2, 2]
    squares = torch.stack([1 + m00 + m11 + m22, 1 + m00 - m11 - m22, 1 - m00 + m11 - m22, 1 - m00 - m11 + m22], dim=-1)
    a, b, c = R[..., 2, 1] - R[..., 1, 2], R[..., 0, 2] - R[..., 2, 0], R[..., 1, 0] - R[..., 0, 1]
    d, e, f = R[..., 1, 0] + R[..., 0, 1], R[..., 0, 2] + R[..., 2, 0], R[..., 2, 1] + R[..., 1, 2]
    rows = [squares[..., 0], a, b, c, a, squares[..., 1], d, e, b, d, squares[..., 2], f, c, e, f, squares[..., 3]]
    table = torch.stack(rows, dim=-1).unflatten(-1, (4, 4))  # row i is 4 q_i q
    best = squares.argmax(dim=-1)
    row = table.gather(-2, best[..., None, None].expand(*best.shape, 1, 4)).squeeze(-2)
    q = row / (row * row).sum(-1, keepdim=True).sqrt()
    return torch.where(q[..., :1] < 0, -q, q)


def rotvec_to_quat(
    v: Tensor,  # [..., 3] radians, axis times angle
) -> Tensor:  # [..., 4] unit
    """Exponential map: (cos(a/2), sin(a/2) v / a) with a = |v|."""
    a2 = (v * v).sum(-1, keepdim=True)
    small = a2 < _SMALL
    a = torch.where(small, torch.ones_like(a2), a2).sqrt()
    sinc = torch.where(small, 0.5 - a2 / 48, torch.sin(a / 2) / a)
    cosine = torch.where(small, 1 - a2 / 8, torch.cos(a / 2))
    return torch.cat([cosine, sinc * v], dim=-1)


def quat_to_rotvec(
    q: Tensor,  # [..., 4] unit
) -> Tensor:  # [..., 3] radians, of length at most pi
    """Logarithm; q and -q give the same (the shorter) rotation vector."""
    q = torch.where(q[..., :1] < 0, -q, q)
    w, u = q[..., :1], q[..., 1:]
    s2 = (u * u).sum(-1, keepdim=True)
    small = s2 < _SMALL
    s = torch.where(small, torch.ones_like(s2), s2).sqrt()
    factor = torch.where(
        small, (2 - s2 * (2 / 3)) / torch.where(small, w, torch.ones_like(w)), 2 * torch.atan2(s, w) / s
    )
    return factor * u


def slerp(
    q0: Tensor,  # [..., 4] unit
    q1: Tensor,  # [..., 4] unit
    fraction: Tensor,  # [...] 0 gives q0, 1 gives q1
) -> Tensor:  # [..., 4] unit, along the shorter arc
    """Constant-speed rotation q0 exp(fraction log(q0^-1 q1)) (Shoemake 1985); q1 and -q1 give the same rotation."""
    return quat_multiply(
        q0, rotvec_to_quat(fraction[..., None] * quat_to_rotvec(quat_multiply(quat_conjugate(q0), q1)))
    )


def pose_matrix(
    q: Tensor,  # [..., 4] unit
    t: Tensor,  # [..., 3]
) -> Tensor:  # [..., 4, 4]
    top = torch.cat([quat_to_matrix(q), t[..., None]], dim=-1)
    bottom = torch.zeros_like(top[..., :1, :])
    bottom[..., 3] = 1
    return torch.cat([top, bottom], dim=-2)


def invert(
    T: Tensor,  # [..., 4, 4] rigid
) -> Tensor:  # [..., 4, 4]
    Rt = T[..., :3, :3].transpose(-1, -2)
    top = torch.cat([Rt, -Rt @ T[..., :3, 3:]], dim=-1)
    return torch.cat([top, T[..., 3:, :]], dim=-2)


def transform(
    T: Tensor,  # [..., 4, 4]
    points: Tensor,  # [..., n, 3]
) -> Tensor:  # [..., n, 3]
    return points @ T[..., :3, :3].transpose(-1, -2) + T[..., None, :3, 3]


class Motion(NamedTuple):
    """Steady motion from one pose to another, computed once for all fractions of `interpolate_between`."""

    q: Tensor  # [..., 4] at the start
    turn: Tensor  # [..., 3] rotation vector from there to the end
    t: Tensor  # [..., 3] at the start
    way: Tensor  # [..., 3] from there to the end

    def at(
        self,
        fraction: Tensor,  # [...]; outside 0..1 the motion goes on at constant velocity
    ) -> tuple[Tensor, Tensor]:  # quaternion [..., 4], translation [..., 3]
        """Pose between two poses: lerp of the translation, slerp of the rotation."""
        part = fraction[..., None]
        return quat_multiply(self.q, rotvec_to_quat(part * self.turn)), self.t + part * self.way


def motion_between(
    T0: Tensor,  # [..., 4, 4]
    T1: Tensor,  # [..., 4, 4]
) -> Motion:
    t0, t1 = T0[..., :3, 3], T1[..., :3, 3]
    q0, q1 = matrix_to_quat(torch.stack([T0[..., :3, :3], T1[..., :3, :3]])).unbind(0)
    return Motion(q0, quat_to_rotvec(quat_multiply(quat_conjugate(q0), q1)), t0, t1 - t0)


def interpolate_between(
    T0: Tensor,  # [4, 4] or [..., 4, 4]
    T1: Tensor,  # [4, 4] or [..., 4, 4]
    fraction: Tensor,  # [...]; outside 0..1 the motion goes on at constant velocity
) -> tuple[Tensor, Tensor]:  # quaternion [..., 4], translation [..., 3]
    """Pose between two poses: lerp of the translation, slerp of the rotation."""
    return motion_between(T0, T1).at(fraction)


def interpolate_trajectory(
    key_times: Tensor,  # [n] seconds, strictly increasing
    key_poses: Tensor,  # [n, 4, 4]
    times: Tensor,  # [...] seconds
) -> Tensor:  # [..., 4, 4]
    """Pose of a trajectory at any time; before the first and after the last key the outermost velocity continues."""
    if len(key_times) == 1:
        return key_poses[0].expand(*times.shape, 4, 4)
    i = (torch.searchsorted(key_times, times.contiguous(), right=True) - 1).clamp(0, len(key_times) - 2)
    fraction = (times - key_times[i]) / (key_times[i + 1] - key_times[i])
    return pose_matrix(*interpolate_between(key_poses[i], key_poses[i + 1], fraction))
