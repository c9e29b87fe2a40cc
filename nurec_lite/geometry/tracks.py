# SPDX-License-Identifier: Apache-2.0
"""Tracks of rigid objects and `interpolate`, which gives the pose of every object at any time.

Letters: K tracks, M keyframes of all tracks together, Q query times. An object's frame has its origin in the centre of the
box, x forward, y left, z up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.base.transfer import upload
from nurec_lite.geometry.se3 import (
    Motion,
    matrix_to_quat,
    quat_conjugate,
    quat_multiply,
    quat_normalize,
    quat_rotate,
    quat_to_rotvec,
    rotvec_to_quat,
)
from nurec_lite.geometry.steady import SteadyMotion


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
        0.0  # seconds that a track stays valid, at its clamped pose, before its first and after its last key
    )

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: torch.device | str, dtype: torch.dtype = torch.float32) -> "Tracks":
        """The tracks on another device; poses and sizes in `dtype`, times always in double precision."""
        moved = {n: getattr(self, n).to(device, dtype) for n in ("sizes", "translations", "quaternions")}
        return replace(self, times=self.times.to(device, torch.float64), **moved)

    def select(
        self,
        numbers: Sequence[int],
    ) -> "Tracks":
        """The tracks of these numbers alone, in this order."""
        rows = [row for k in numbers for row in range(self.offsets[k], self.offsets[k + 1])]
        return replace(
            self,
            ids=tuple(self.ids[k] for k in numbers),
            classes=tuple(self.classes[k] for k in numbers),
            sizes=self.sizes[list(numbers)],
            offsets=(0, *accumulate(self.offsets[k + 1] - self.offsets[k] for k in numbers)),
            times=self.times[rows],
            translations=self.translations[rows],
            quaternions=self.quaternions[rows],
        )

    @staticmethod
    def empty() -> "Tracks":
        zero = torch.zeros(0, dtype=torch.float64)
        return Tracks((), (), zero.view(0, 3), (0,), zero, zero.view(0, 3), zero.view(0, 4))


def single_track(
    name: str,
    label: str,  # its class
    sizes: Tensor,  # [n, 3] length, width, height in metres; the median counts
    times: Tensor,  # [n] seconds, in any order
    poses: Tensor,  # [n, 4, 4] T_world_object
) -> Tracks:
    """One object, from its boxes in a data set."""
    times, order = times.double().sort(stable=True)
    poses = poses.double()[order]
    return Tracks(
        ids=(name,), classes=(label,), sizes=sizes.double().median(dim=0, keepdim=True).values, offsets=(0, len(times)), times=times,
        translations=poses[:, :3, 3].contiguous(), quaternions=matrix_to_quat(poses[:, :3, :3]),
    )  # fmt: skip


def joined(parts: Sequence[Tracks], margin: float) -> Tracks:
    """The tracks of all parts, in their order."""
    if not parts:
        return Tracks.empty()
    return Tracks(
        ids=tuple(name for part in parts for name in part.ids),
        classes=tuple(name for part in parts for name in part.classes),
        sizes=torch.cat([part.sizes for part in parts]),
        offsets=(0, *accumulate(end - start for part in parts for start, end in pairwise(part.offsets))),
        times=torch.cat([part.times for part in parts]),
        translations=torch.cat([part.translations for part in parts]),
        quaternions=torch.cat([part.quaternions for part in parts]),
        margin=margin,
    )


def moves(part: Tracks, distance: float) -> bool:
    """Whether an object moves more than `distance` metres from its first place; boxes of parked objects scatter by less."""
    return float((part.translations - part.translations[:1]).norm(dim=1).max()) > distance


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
    """Poses of all tracks at all times: lerp of the translation, slerp (Shoemake 1985) of the rotation, clamped at the ends.

    Differentiable in the keyframes. This is the readable baseline: all tracks at once, one torch operator after another.
    """
    if len(tracks) == 0:
        return _no_poses(tracks, times)
    i, j, fraction, span = _keys_around(tracks, times)
    t, q = tracks.translations, quat_normalize(tracks.quaternions)
    t0, q0 = _rows(t, i), _rows(q, i)
    move, turn = _rows(t, j) - t0, quat_to_rotvec(quat_multiply(quat_conjugate(q0), _rows(q, j)))
    first, last = end_times(tracks)
    at = times[:, None]
    valid = (at >= first - tracks.margin) & (at <= last + tracks.margin)
    moving = (at >= first) & (at <= last) & (j > i)  # a single keyframe stands still
    part, rate = fraction.to(t.dtype)[..., None], (moving / span).to(t.dtype)[..., None]
    rotation = quat_multiply(q0, rotvec_to_quat(part * turn))
    return TrackPoses(t0 + part * move, rotation, valid, rate * move, rate * quat_rotate(q0, turn))


def poses_of(
    tracks: Tracks,
    track: Tensor,  # [n] number of a track
    times: Tensor,  # [n] seconds
) -> tuple[Tensor, Tensor]:  # quaternions [n, 4], translations [n, 3]
    """The poses that `interpolate` gives, of one track at each time."""
    bounds = key_rows(tracks.offsets, tracks.times.device)
    first, last = bounds[track], bounds[track + 1] - 1
    i = torch.minimum(row_before(tracks, track, times), (last - 1).maximum(first))
    j = torch.minimum(i + 1, last)
    before, after = tracks.times[i], tracks.times[j]
    clamped = torch.minimum(torch.maximum(times.to(before), tracks.times[first]), tracks.times[last])
    part = ((clamped - before) / (after - before).clamp(min=1e-9)).to(tracks.translations)
    return _motion(tracks, i, j).at(part)


def steady_motions(
    tracks: Tracks,
    track: Tensor,  # [...] number of a track
    row: Tensor,  # [...] one of its keyframes
) -> tuple[Tensor, Tensor, SteadyMotion]:
    """The object's motion from the key to the next one, the key's time [...] in seconds, and the motions a second [...].

    After the last key it stands still. A fraction within 0 to 1 of the motion gives the poses of `interpolate`.
    """
    following = torch.minimum(row + 1, key_rows(tracks.offsets, row.device)[track + 1] - 1)
    times = tracks.times
    rate = (following > row) / (times[following] - times[row]).clamp(min=1e-9)
    return times[row], rate, SteadyMotion.of(_motion(tracks, row, following))


def _motion(
    tracks: Tracks,
    row: Tensor,  # [...] a keyframe
    following: Tensor,  # [...] another one of the same track
) -> Motion:
    q, t = quat_normalize(tracks.quaternions), tracks.translations
    turn = quat_to_rotvec(quat_multiply(quat_conjugate(q[row]), q[following]))
    return Motion(q[row], turn, t[row], t[following] - t[row])


def row_before(
    tracks: Tracks,
    track: Tensor,  # [n] number of a track
    times: Tensor,  # [n] seconds
) -> Tensor:  # [n]
    """Finds the last keyframe of the track up to the time, by halving. Before the track begins, it is the first keyframe."""
    bounds = key_rows(tracks.offsets, tracks.times.device)
    first, last = bounds[track], bounds[track + 1] - 1
    most = max((b - a for a, b in pairwise(tracks.offsets)), default=0)
    for _ in range(most.bit_length()):
        middle = (first + last + 1) // 2
        after = tracks.times[middle] > times
        first, last = torch.where(after, first, middle), torch.where(after, torch.maximum(middle - 1, first), last)
    return first


def _keys_around(tracks: Tracks, times: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """[Q, K] each: rows of the keyframes before and after, how far between them (0 to 1), and seconds from one to the other."""
    bounds = key_rows(tracks.offsets, times.device)
    passed = F.pad((tracks.times <= times[:, None]).cumsum(1), (1, 0)).index_select(
        1, bounds
    )  # keys so far, of all tracks
    i = bounds[:-1] + (passed.diff(dim=1) - 1).clamp(min=0)
    i = torch.minimum(i, (bounds[1:] - 2).clamp(min=0).maximum(bounds[:-1]))
    j = torch.minimum(i + 1, bounds[1:] - 1)
    first, last = end_times(tracks)
    clamped = torch.minimum(torch.maximum(times[:, None].to(tracks.times), first), last)
    before = _rows(tracks.times, i)
    span = (_rows(tracks.times, j) - before).clamp(min=1e-9)
    return i, j, (clamped - before) / span, span


@lru_cache(maxsize=64)
def key_rows(
    offsets: tuple[int, ...],  # of the tracks
    device: torch.device,
) -> Tensor:  # [K + 1] rows of the keyframes of each track, kept on the device
    return upload(torch.tensor(offsets), device)


def end_times(tracks: Tracks) -> tuple[Tensor, Tensor]:  # [K] seconds of each track's first and last key
    bounds = key_rows(tracks.offsets, tracks.times.device)
    return tracks.times.index_select(0, bounds[:-1]), tracks.times.index_select(0, bounds[1:] - 1)


def spans(tracks: Tracks) -> tuple[Tensor, Tensor]:  # [K] seconds each: begin and end of each track
    first, last = end_times(tracks)
    return first - tracks.margin, last + tracks.margin


def within(
    first: Tensor,  # [K] seconds
    last: Tensor,  # [K] seconds
    times: Tensor,  # [Q] seconds
    dtype: torch.dtype,
) -> Tensor:  # [Q, K] 1 from the first to the last, else 0
    at = times[:, None]
    return (at.clamp(first, last) == at).to(dtype)


def exist(
    tracks: Tracks,
    times: Tensor,  # [Q] seconds
) -> Tensor:  # [Q, K] 1 where the track exists, else 0
    return within(*spans(tracks), times, tracks.translations.dtype)


def _rows(
    values: Tensor,  # [M, ...]
    index: Tensor,  # [Q, K]
) -> Tensor:  # [Q, K, ...]
    return values.index_select(0, index.flatten()).unflatten(0, index.shape)


def _no_poses(tracks: Tracks, times: Tensor) -> TrackPoses:
    zero = tracks.translations.new_zeros(len(times), 0, 3)
    valid = torch.zeros(len(times), 0, dtype=torch.bool, device=zero.device)
    return TrackPoses(zero, tracks.quaternions.new_zeros(len(times), 0, 4), valid, zero, zero)
