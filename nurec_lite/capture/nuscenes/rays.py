# SPDX-License-Identifier: Apache-2.0
"""Rays of nuScenes' lidar, an HDL-32E at 20 Hz.

A file holds columns of 32 points, in the order of the turn, all moved to the moment of its stamp, which ends the turn. A ray is where
the lidar saw the point: each is moved back to its own time. The lidar turns clockwise and begins on the left.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.files import mark_of_file, read_bytes
from nurec_lite.capture.kitti.gaps import whole_sweep
from nurec_lite.capture.nuscenes.scene import LIDAR, File, Scene
from nurec_lite.capture.trajectory import Trajectory
from nurec_lite.capture.types import CaptureError, SweepFrame
from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation
from nurec_lite.geometry.se3 import invert

BEAMS, STEPS, TURN = 32, 1084, 0.05  # the last in seconds
NOMINAL = torch.deg2rad(-30.67 + 4.0 / 3 * torch.arange(BEAMS, dtype=torch.float64))  # elevations of the data sheet
FARTHEST, FARTHEST_POINT = 105.0, 1e4  # metres that the lidar measures; from here on, a file is damaged
TURNING = Lidar(
    LIDAR, torch.eye(4, dtype=torch.float64), NOMINAL, FARTHEST, STEPS, azimuth_start=0.5 * math.pi
)  # of the data sheet
VEHICLE = (2.6, 1.3)  # metres ahead of the lidar and to its sides: nearer returns are the car's own
SURVEYED, LEAST = 6, 50  # sweeps that say where the beams lie, and points of a beam in them
RECORD = 5  # numbers of a point: x, y, z, intensity, ring
REMEDY = "copy the file again from its source"
# files have x to the right and y forward; a lidar here looks along x
T_FILE_LIDAR = torch.tensor([[0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=torch.float64)


@dataclass(frozen=True)
class Points:
    """Returns of a sweep in the lidar's axes, each at its own time, in the order of the file."""

    local: Tensor  # [n, 3] metres
    intensities: Tensor  # [n] 0 to 1
    rings: Tensor  # [n] from 0, the lowest
    times: Tensor  # [n] seconds


@dataclass(frozen=True)
class SweepLoad:
    """Loads the rays of one sweep. It pickles."""

    file: File
    trajectory: Trajectory
    T_rig_lidar: Tensor  # [4, 4]

    def __call__(self) -> Sweep:
        found = points_of(self.file, self.trajectory, self.T_rig_lidar)
        own = (found.local[:, 0].abs() < VEHICLE[0]) & (found.local[:, 1].abs() < VEHICLE[1])
        angles, ranges = azimuth_elevation(found.local), found.local.norm(dim=1)
        return whole_sweep(
            angles,
            ranges,
            found.intensities,
            found.times,
            found.rings,
            lambda azimuth, _: seen_at(azimuth, self.file.stamp),
            own,
        )

    def mark(self, thorough: bool) -> tuple[int, int]:
        return mark_of_file(self.file.path, thorough)


def points_of(file: File, trajectory: Trajectory, T_rig_lidar: Tensor) -> Points:  # [4, 4]
    data = read_bytes(file.path, REMEDY)
    if len(data) % (4 * RECORD):
        raise CaptureError(f"{file.path} has {len(data)} bytes, no multiple of a point's {4 * RECORD}; {REMEDY}")
    with np.errstate(invalid="ignore"):  # NaN is refused below
        values = torch.from_numpy(np.frombuffer(data, "<f4").reshape(-1, RECORD).astype(np.float64))
    rings = values[:, 4]
    if not bool(values.isfinite().all()) or not bool(((rings >= 0) & (rings < BEAMS) & (rings == rings.floor())).all()):
        raise CaptureError(
            f"{file.path} holds points that are not finite, or rings other than 0 to {BEAMS - 1}; {REMEDY}"
        )
    if not bool((values[:, :3].abs() < FARTHEST_POINT).all()):
        raise CaptureError(f"{file.path} holds points beyond 10 km; {REMEDY}")
    moved = (values[:, None, :3] @ T_FILE_LIDAR[:3, :3])[:, 0]  # the inverse of a rotation, from the right
    times = file.stamp - TURN + TURN * _turned(moved, rings)
    T_world_lidar = trajectory.at(torch.tensor(file.stamp, dtype=torch.float64)) @ T_rig_lidar
    T = invert(trajectory.at(times) @ T_rig_lidar) @ T_world_lidar
    local = (T[:, :3, :3] @ moved[..., None])[..., 0] + T[:, :3, 3]
    there = values[:, :3].norm(dim=1) > 0  # others did not return
    if not bool(there.any()):
        raise CaptureError(f"{file.path} holds no point but the origin; {REMEDY}")
    return Points(local[there], (values[there, 3] / 255).clamp(0, 1).float(), rings[there].long(), times[there])


def _turned(points: Tensor, rings: Tensor) -> Tensor:  # [n, 3], [n] -> [n] share of the turn
    """The share of the turn by columns where all are there, else by the azimuth."""
    n = len(points)
    if n % BEAMS == 0 and bool((rings.view(-1, BEAMS) == torch.arange(BEAMS)).all()):
        columns = n // BEAMS
        return ((torch.arange(columns, dtype=torch.float64) + 0.5) / columns).repeat_interleave(BEAMS)
    return TURNING.spin_fraction(azimuth_elevation(points)[:, 0])


def _elevations(files: list[File], trajectory: Trajectory, T_rig_lidar: Tensor) -> Tensor:  # [32] radians
    """The median of each ring over a few sweeps; that of the data sheet where too little returns."""
    some = [points_of(file, trajectory, T_rig_lidar) for file in files[:: max(1, len(files) // SURVEYED)]]
    local, rings = torch.cat([p.local for p in some]), torch.cat([p.rings for p in some])
    far = local.norm(dim=1) > VEHICLE[0]
    elevation, rings = azimuth_elevation(local[far])[:, 1], rings[far]
    found = [elevation[rings == k] for k in range(BEAMS)]
    beams = torch.stack([own.median() if len(own) >= LEAST else NOMINAL[k] for k, own in enumerate(found)])
    if not bool((beams.diff() > 0).all()):
        raise CaptureError(
            f"{files[0].path.parent}: the rings of the sweeps do not rise from the lowest beam; {REMEDY}"
        )
    return beams


def lidar_of(scene: Scene) -> Lidar:
    T_rig_lidar = scene.mountings[LIDAR] @ T_FILE_LIDAR
    return replace(
        TURNING, T_rig_lidar=T_rig_lidar, elevations=_elevations(scene.files[LIDAR], scene.path, T_rig_lidar)
    )


def seen_at(azimuth: Tensor, stamp: float) -> Tensor:  # [n] radians -> [n] seconds when the lidar looks there
    return stamp - TURN + TURN * TURNING.spin_fraction(azimuth)


def sweep_frames(scene: Scene, lidar: Lidar) -> list[SweepFrame]:
    files = scene.files[LIDAR]
    ends = torch.tensor([file.stamp for file in files], dtype=torch.float64)
    first, last = scene.path.at(ends - TURN), scene.path.at(ends)
    loads = [SweepLoad(file, scene.path, lidar.T_rig_lidar) for file in files]
    rows = zip(range(len(files)), (ends - TURN).tolist(), ends.tolist(), first, last, loads, strict=True)
    return [SweepFrame(LIDAR, *row) for row in rows]
