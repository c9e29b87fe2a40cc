# SPDX-License-Identifier: Apache-2.0
"""Sensors and tracks of a capture as records of NCore's own library."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.ncore.clock import Clock
from nurec_lite.capture.ncore.poses import RIG
from nurec_lite.capture.ncore.rays import rows_of
from nurec_lite.capture.trajectory import Trajectory
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import invert, pose_matrix
from nurec_lite.geometry.tracks import Tracks, interpolate

if TYPE_CHECKING:
    from ncore.data import (
        CuboidTrackObservation,
        RowOffsetStructuredSpinningLidarModelParameters,
    )

USUAL = 10.0  # revolutions a second, where a sweep has no duration


def lidar_model(
    lidar: Lidar,
    period: float,  # seconds of a revolution
    offsets: Tensor,  # [B] radians, of each beam to the azimuth of its column
) -> "RowOffsetStructuredSpinningLidarModelParameters | None":
    """Returns rows and columns; None where beams share an elevation, since rows of NCore fall strictly, or where there are none."""
    if not lidar.spins:
        return None
    from ncore.data import RowOffsetStructuredSpinningLidarModelParameters

    order = rows_of(lidar.elevations).argsort()  # the beam of each row
    rows = lidar.elevations[order].numpy().astype(np.float32)
    if not (np.diff(rows) < 0).all() or lidar.azimuth_steps < 2:
        return None
    return RowOffsetStructuredSpinningLidarModelParameters(
        spinning_frequency_hz=1 / period if period > 0 else USUAL, spinning_direction="cw" if lidar.clockwise else "ccw",
        n_rows=len(rows), n_columns=lidar.azimuth_steps, row_elevations_rad=rows,
        column_azimuths_rad=_columns(lidar).numpy().astype(np.float32), row_azimuth_offsets_rad=offsets[order].numpy().astype(np.float32),
    )  # fmt: skip


def _columns(lidar: Lidar) -> Tensor:  # [columns] radians, in the order of the turn
    """Returns angles that go on without a jump of a turn: NCore's library finds the field of view from the first and the last one."""
    part = (torch.arange(lidar.azimuth_steps, dtype=torch.float64) + 0.5) / lidar.azimuth_steps
    start = math.remainder(lidar.azimuth_start, 2 * math.pi)
    return start + part * (-2 * math.pi if lidar.clockwise else 2 * math.pi)


def elements_of(
    lidar: Lidar,
    rings: Tensor,  # [n] beams
    azimuth: Tensor,  # [n] radians
    offsets: Tensor,  # [B] radians
) -> Tensor:  # [n, 2] row, and the nearest column
    azimuth = azimuth - offsets[rings]
    column = (lidar.spin_fraction(azimuth) * lidar.azimuth_steps).long().clamp(max=lidar.azimuth_steps - 1)
    return torch.stack([rows_of(lidar.elevations)[rings], column], dim=1)


# ---- tracks


def observations(
    tracks: Tracks,
    clock: Clock,
    path: Trajectory,  # of the rig
    sweeps: Sequence[tuple[int, int]],  # microseconds of the first and the last ray, in time order
) -> "list[CuboidTrackObservation]":
    """Returns the keyframes of all tracks as boxes beside the rig, where it stands when their sweep ends: a reader of NVIDIA's recordings
    (py123d) takes all boxes for such.

    Those outside of the sequence become one at its end, with the pose that the track has there.
    """
    return [row for k in range(len(tracks)) for row in _observed(tracks.select([k]), clock, path, sweeps)]


def _observed(
    track: Tracks, clock: Clock, path: Trajectory, sweeps: Sequence[tuple[int, int]]
) -> "list[CuboidTrackObservation]":
    from ncore.data import BBox3, CuboidTrackObservation, LabelSource

    stamps = clock.stamps(track.times).clamp(clock.first, clock.last).unique()
    inside = clock.stamps(track.times)
    at = torch.tensor([clock.seconds(t) for t in stamps.tolist()], dtype=torch.float64)
    exact = {int(t): k for k, t in enumerate(inside.tolist())}
    at = torch.stack([track.times[exact[t]] if t in exact else at[i] for i, t in enumerate(stamps.tolist())])
    poses = interpolate(track.to("cpu", torch.float64), at)
    ends = [_end_of_sweep(t, sweeps) for t in stamps.tolist()]
    T_rig_world = invert(path.at(clock.all_seconds(torch.tensor(ends, dtype=torch.int64))))
    T = T_rig_world @ pose_matrix(poses.quaternions[:, 0], poses.translations[:, 0])
    size = track.sizes[0].tolist()
    rows = zip(stamps.tolist(), ends, T[:, :3, 3].tolist(), euler_of(T[:, :3, :3]).tolist(), strict=True)
    return [
        CuboidTrackObservation(
            track.ids[0],
            track.classes[0],
            t,
            RIG,
            end,
            BBox3(tuple(place), tuple(size), tuple(turn)),
            LabelSource.EXTERNAL,
        )
        for t, end, place, turn in rows
    ]


def _end_of_sweep(stamp: int, sweeps: Sequence[tuple[int, int]]) -> int:
    """Returns the end of the first sweep with this microsecond; itself between sweeps."""
    k = bisect_left(sweeps, stamp, key=lambda sweep: sweep[1])
    return sweeps[k][1] if k < len(sweeps) and sweeps[k][0] <= stamp else stamp


def euler_of(
    R: Tensor,  # [..., 3, 3]
) -> Tensor:  # [..., 3] radians about the fixed axes x, then y, then z
    """Returns angles with R = Rz Ry Rx. A box that stands upright has no singular angle."""
    x = torch.atan2(R[..., 2, 1], R[..., 2, 2])
    y = torch.atan2(-R[..., 2, 0], torch.hypot(R[..., 2, 1], R[..., 2, 2]))
    return torch.stack([x, y, torch.atan2(R[..., 1, 0], R[..., 0, 0])], dim=-1)
