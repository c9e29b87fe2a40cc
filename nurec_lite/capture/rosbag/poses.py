# SPDX-License-Identifier: Apache-2.0
"""Poses of the rig from a recording: a topic of poses, tf, or a receiver of satellites with an inertial unit."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.capture.measured import Measured
from nurec_lite.capture.rosbag.index import Index, seconds
from nurec_lite.capture.rosbag.transforms import matrices
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.se3 import (
    interpolate_trajectory,
    invert,
    matrix_to_quat,
    pose_matrix,
    quat_normalize,
    quat_to_matrix,
)

BASES = ("base_link", "base_footprint", "base", "vehicle", "ego_vehicle", "chassis", "body", "imu_link")
WORLDS = ("odom", "map", "world", "earth", "local_origin")
_EQUATOR, _FLATTENING = 6378137.0, 1 / 298.257223563  # metres; of WGS 84
_DRIVES = 0.5  # least metres a second whose driven way tells the heading
_TILTED = 0.7  # cosine between the rig's up and the world's; if less, the world's axes are others
_BEYOND = 0.15  # seconds beyond the first and the last pose that are filled


@dataclass(frozen=True)
class Path:
    """Poses of the rig."""

    times: Tensor  # [n] seconds of the capture, strictly rising
    poses: Tensor  # [n, 4, 4] T_world_rig
    of: str = "poses"  # things that have these times, for messages

    def at(self, times: Tensor) -> Tensor:  # [m] seconds -> [m, 4, 4]
        return interpolate_trajectory(self.times, self.poses, times)

    def covers(self, times: Tensor) -> Tensor:  # [m] bool
        steps = self.times.diff()
        beyond = max(_BEYOND, 2 * float(steps.median()))
        near = torch.searchsorted(self.times, times).clamp(1, len(self.times) - 1)
        inside = steps[near - 1] <= max(1.0, 10 * float(steps.median()))  # poses do not reach over a gap
        at_an_end = (times < self.times[0]) | (times > self.times[-1])
        return (times >= self.times[0] - beyond) & (times <= self.times[-1] + beyond) & (inside | at_an_end)


def rig_frame(index: Index) -> str:
    """Frame of the rig: the mapping's, that of the poses, one of the usual names, or that of the first sensor."""
    entry = index.mapping.poses
    known = index.transforms.frames
    frames = [s.frame or index.frames_of(s).frame for s in index.mapping.sensors if s.T_rig_sensor is None]
    usual = next(
        (name for name in BASES if name in known and (not frames or index.transforms.connected(name, frames[0]))), None
    )
    posed = entry.frame or index.pose_frame
    return (
        index.mapping.rig or usual or (posed if posed in known else None) or (frames[0] if frames else posed or "rig")
    )


def read_path(
    index: Index,
    rig: str,  # its frame
    start: int,  # nanoseconds
) -> Path | None:  # None: the recording has no poses, or too few and sweeps to estimate them from
    entry = index.mapping.poses
    if entry.topic:
        stamps, poses = _of_topic(index, rig)
    elif entry.world:
        stamps, poses = _of_tf(index, rig, entry.world)
    elif entry.fix:
        stamps, poses = _of_fixes(index, rig)
    else:
        return None
    if len(stamps) < 2:
        few = f"{index.bag.path} holds {len(stamps)} poses in the seconds that are read, but needs 2"
        if not index.mapping.lidars:
            raise CaptureError(f"{few}; choose others")
        index.notes.append(f"{few}: they are estimated from the sweeps.")
        return None
    return Path(seconds(stamps.tolist(), start), _upright(index, poses))


def _of_topic(index: Index, rig: str) -> tuple[Tensor, Tensor]:  # [n] nanoseconds, rising, and T_world_rig [n, 4, 4]
    named_by = f"{index.bag.path}: {index.mapping.poses.topic}"
    rows = dict(sorted(index.poses.items()))
    stamps, poses = torch.tensor(list(rows), dtype=torch.int64), matrices(list(rows.values()))
    frame = index.mapping.poses.frame or index.pose_frame or rig
    return stamps, poses if frame == rig else poses @ index.transforms.fixed(frame, rig, named_by)


def _of_tf(index: Index, rig: str, world: str) -> tuple[Tensor, Tensor]:  # as of _of_topic
    named_by = f"{index.bag.path}: poses.world"
    frame = index.mapping.poses.frame or rig
    stamps = index.transforms.stamps(world, frame, named_by)
    if not len(stamps):
        raise CaptureError(
            f"{named_by}: nothing moves between the frames '{world}' and '{frame}'; name others in data.mapping"
        )
    poses = index.transforms.at(world, frame, stamps, named_by)
    return stamps, poses if frame == rig else poses @ index.transforms.fixed(frame, rig, named_by)


def _of_fixes(index: Index, rig: str) -> tuple[Tensor, Tensor]:  # as of _of_topic
    """Positions of the antenna, east, north and up of the first one; turned as the inertial unit says, or along the way driven."""
    rows = dict(sorted(index.fixes.items()))
    stamps = torch.tensor(list(rows), dtype=torch.int64)
    if len(stamps) < 2:
        return stamps, torch.zeros(len(stamps), 4, 4)
    places = local_metres(torch.tensor(list(rows.values()), dtype=torch.float64))
    times = (stamps - stamps[0]).double() * 1e-9
    R = _attitudes(index, rig, stamps)
    if R is None:
        index.notes.append("No inertial unit says how the vehicle is turned: its heading is the way that it drives.")
        R = _headings(times, places)
    poses = torch.eye(4, dtype=torch.float64).repeat(len(stamps), 1, 1)
    poses[:, :3, :3] = R
    antenna = index.mapping.poses.frame or index.fix_frame
    arm = torch.zeros(3, dtype=torch.float64)
    if antenna and index.transforms.connected(rig, antenna):
        arm = index.transforms.fixed(rig, antenna, f"{index.bag.path}: {index.mapping.poses.fix}")[:3, 3]
    poses[:, :3, 3] = places - R @ arm
    return stamps, poses


def local_metres(
    places: Tensor,  # [n, 3] latitude and longitude in degrees, altitude in metres
) -> Tensor:  # [n, 3] metres east, north and up of the first
    """Places on the plane that touches the ellipsoid of WGS 84 there: right within a millimetre over a kilometre of
    level ground."""
    latitude, longitude = torch.deg2rad(places[:, 0]), torch.deg2rad(places[:, 1])
    e2 = _FLATTENING * (2 - _FLATTENING)
    root = (1 - e2 * latitude.sin() ** 2).sqrt()
    across = _EQUATOR / root
    x = (across + places[:, 2]) * latitude.cos() * longitude.cos()
    y = (across + places[:, 2]) * latitude.cos() * longitude.sin()
    z = (across * (1 - e2) + places[:, 2]) * latitude.sin()
    sp, cp, sl, cl = latitude[0].sin(), latitude[0].cos(), longitude[0].sin(), longitude[0].cos()
    zero = torch.zeros_like(sp)
    axes = torch.stack(
        [torch.stack([-sl, cl, zero]), torch.stack([-sp * cl, -sp * sl, cp]), torch.stack([cp * cl, cp * sl, sp])]
    )
    earth = torch.stack([x, y, z], dim=1)
    return (earth - earth[0]) @ axes.T


def _attitudes(index: Index, rig: str, stamps: Tensor) -> Tensor | None:  # [n, 3, 3] R_world_rig; None: nothing says it
    rows = {stamp: row[3:] for stamp, row in sorted(index.imu.items()) if any(row[3:])}
    if len(rows) < 2:
        return None
    q = quat_normalize(torch.tensor(list(rows.values()), dtype=torch.float64))
    first = next(iter(rows))
    known = torch.tensor([stamp - first for stamp in rows], dtype=torch.float64) * 1e-9
    at = interpolate_trajectory(
        known, pose_matrix(q, torch.zeros(len(q), 3).double()), (stamps - first).double() * 1e-9
    )
    R = at[:, :3, :3]
    if index.imu_frame and index.imu_frame != rig and index.transforms.connected(rig, index.imu_frame):
        R = R @ index.transforms.fixed(index.imu_frame, rig, f"{index.bag.path}: {index.mapping.poses.imu}")[:3, :3]
    return R


def _headings(times: Tensor, places: Tensor) -> Tensor:  # [n, 3, 3]
    """Rotations along the driven way of about a second; where the vehicle stands, that of the nearest moving moment."""
    keys = torch.eye(4, dtype=torch.float64).repeat(len(times), 1, 1)
    keys[:, :3, 3] = places
    ends = (times + 0.5).clamp(max=times[-1]), (times - 0.5).clamp(min=times[0])
    way = (
        interpolate_trajectory(times, keys, ends[0])[:, :3, 3] - interpolate_trajectory(times, keys, ends[1])[:, :3, 3]
    )
    drives = (way[:, :2].norm(dim=1) > _DRIVES * (ends[0] - ends[1])).nonzero()[:, 0]
    if not len(drives):
        return keys[:, :3, :3]
    near = drives[(torch.arange(len(times))[:, None] - drives).abs().argmin(dim=1)]
    half = 0.5 * torch.atan2(way[near, 1], way[near, 0])
    zero = torch.zeros_like(half)
    return quat_to_matrix(torch.stack([half.cos(), zero, zero, half.sin()], dim=1))


def _upright(index: Index, poses: Tensor) -> Tensor:  # [n, 4, 4]
    """Poses in a world with z along the vehicle's up: visual odometry often has the axes of a camera."""
    if float(poses[0, 2, 2]) > _TILTED:
        return poses
    tilt = math.degrees(math.acos(max(-1.0, min(1.0, float(poses[0, 2, 2])))))
    index.notes.append(
        f"The world of the poses is tilted by {tilt:.0f} degrees against the vehicle: the first pose is the world's origin."
    )
    return invert(poses[0]) @ poses


def read_measured(index: Index, rig: str, start: int) -> Measured | None:
    """Velocities and rates of odometry; None where it has none: many programs leave them zero."""
    rows = dict(sorted(index.twists.items()))
    twists = torch.tensor(list(rows.values()), dtype=torch.float64).view(-1, 6)
    if len(rows) < 2 or not bool(twists.isfinite().all()) or not bool(twists[:, :3].any()):
        return None
    frame, T = index.mapping.poses.frame or index.pose_frame or rig, torch.eye(4, dtype=torch.float64)
    if frame != rig:
        T = index.transforms.fixed(frame, rig, f"{index.bag.path}: {index.mapping.poses.topic}")
    way, turn = twists[:, :3], twists[:, 3:]
    way = way + torch.linalg.cross(turn, T[:3, 3].expand_as(turn))
    times = seconds(list(rows), start)
    if not bool(turn.any()):
        poses = matrices([index.poses[stamp] for stamp in rows]) @ T
        return Measured(times, velocities=way @ T[:3, :3], attitudes=matrix_to_quat(poses[:, :3, :3]))
    return Measured(times, velocities=way @ T[:3, :3], rates=turn @ T[:3, :3])
