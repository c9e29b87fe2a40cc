# SPDX-License-Identifier: Apache-2.0
"""Tracks of rigid objects and `interpolate`, which gives the pose of every object at any time.

Letters: K tracks, M keyframes of all tracks together, Q query times. An object's frame has its origin in the centre of the
box, x forward, y left, z up.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nurec_lite.geometry.se3 import quat_conjugate, quat_multiply, quat_normalize, quat_rotate, quat_to_rotvec, slerp


@dataclass(frozen=True)
class Tracks:
    """K tracks, their keyframes packed one after another: track k owns rows `offsets[k] : offsets[k + 1]`, in time order."""

    ids: tuple[str, ...]
    classes: tuple[str, ...]  # as the source names them: Car, Van, Pedestrian, ...
    sizes: Tensor  # [K, 3] length, width, height in metres
    offsets: tuple[int, ...]  # K + 1 row numbers, the first 0
    times: Tensor  # [M] seconds
    translations: Tensor  # [M, 3] metres, world
    quaternions: Tensor  # [M, 4] world from object
    margin: float = (
        0.0  # seconds for which a track stays valid, at its clamped pose, before its first and after its last key
    )

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: torch.device | str, dtype: torch.dtype = torch.float32) -> "Tracks":
        """On another device; poses and sizes in `dtype`, times always in double precision."""
        moved = {n: getattr(self, n).to(device, dtype) for n in ("sizes", "translations", "quaternions")}
        return replace(self, times=self.times.to(device, torch.float64), **moved)

    @staticmethod
    def empty() -> "Tracks":
        zero = torch.zeros(0, dtype=torch.float64)
        return Tracks((), (), zero.view(0, 3), (0,), zero, zero.view(0, 3), zero.view(0, 4))


@dataclass(frozen=True)
class TrackPoses:
    """World poses of K tracks at Q times."""

    translations: Tensor  # [Q, K, 3] metres
    quaternions: Tensor  # [Q, K, 4]
    valid: Tensor  # [Q, K] bool: the track exists at that time
    velocities: Tensor  # [Q, K, 3] metres a second, of the box centre; zero where the pose is clamped
    angular_velocities: Tensor  # [Q, K, 3] radians a second, world axes


def interpolate(
    tracks: Tracks,
    times: Tensor,  # [Q] seconds
) -> TrackPoses:
    """Poses of all tracks at all times: lerp of the translation, slerp of the rotation, clamped at the ends.

    Differentiable in the keyframes. This is the readable baseline, one track after another.
    """
    if len(tracks) == 0:
        return _no_poses(tracks, times)
    per_track = [_interpolate_one(tracks, k, times) for k in range(len(tracks))]
    return TrackPoses(*(torch.stack(parts, dim=1) for parts in zip(*per_track, strict=True)))


def _interpolate_one(tracks: Tracks, k: int, times: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    rows = slice(tracks.offsets[k], tracks.offsets[k + 1])
    key_times, t, q = tracks.times[rows], tracks.translations[rows], quat_normalize(tracks.quaternions[rows])
    clamped = times.to(key_times.dtype).clamp(key_times[0], key_times[-1])
    last = max(len(key_times) - 2, 0)
    i = (torch.searchsorted(key_times, clamped, right=True) - 1).clamp(0, last)
    j = (i + 1).clamp(max=len(key_times) - 1)
    span = (key_times[j] - key_times[i]).clamp(min=1e-9)
    fraction = ((clamped - key_times[i]) / span).to(t.dtype)
    translation = t[i] + fraction[:, None] * (t[j] - t[i])
    quaternion = slerp(q[i], q[j], fraction)
    valid = (times >= key_times[0] - tracks.margin) & (times <= key_times[-1] + tracks.margin)
    moving = (times >= key_times[0]) & (times <= key_times[-1]) & (j > i)  # a single keyframe stands still
    rate = (moving / span).to(t.dtype)[:, None]
    turn = quat_rotate(q[i], quat_to_rotvec(quat_multiply(quat_conjugate(q[i]), q[j])))
    return translation, quaternion, valid, rate * (t[j] - t[i]), rate * turn


def _no_poses(tracks: Tracks, times: Tensor) -> TrackPoses:
    zero = tracks.translations.new_zeros(len(times), 0, 3)
    valid = torch.zeros(len(times), 0, dtype=torch.bool, device=zero.device)
    return TrackPoses(zero, tracks.quaternions.new_zeros(len(times), 0, 4), valid, zero, zero)
