# SPDX-License-Identifier: Apache-2.0
"""The poses that a scene was trained with, for the frames of a capture that is opened for it. Letters: n poses."""

import torch
from torch import Tensor

from nurec_lite.capture.digest import KnownPath
from nurec_lite.capture.odometry.clouds import Poses
from nurec_lite.capture.odometry.replace import with_poses
from nurec_lite.capture.trajectory import HALF_SECONDS, Trajectory, trajectory_of
from nurec_lite.capture.types import CHOSEN, ESTIMATED, POSITIONED, UNKNOWN, Capture
from nurec_lite.geometry.se3 import interpolate_trajectory, invert

NEAR = 1.2 * HALF_SECONDS  # seconds from a known pose; nearer poses are interpolated


def replaces(known: KnownPath, capture: Capture) -> bool:
    """Whether the capture's own poses give way to the known ones. A pack keeps the poses that were estimated for it, and the drive
    that it was made from does not have them."""
    return known.poses_from == ESTIMATED or (known.poses_from == CHOSEN and capture.poses_from in (POSITIONED, UNKNOWN))


def about(known: KnownPath, capture: Capture) -> Trajectory:
    """The known path about the capture's origin."""
    poses = known.trajectory.poses.clone()
    poses[:, :3, 3] -= torch.tensor(capture.origin, dtype=torch.float64)
    return Trajectory(known.trajectory.times, poses)


def covers(path: Trajectory, capture: Capture) -> bool:
    """Whether a known pose is near the begin and the end of each frame."""
    times = trajectory_of(capture).times
    after = torch.searchsorted(path.times, times).clamp(1, max(1, len(path.times) - 1))
    nearest = torch.stack([path.times[(after - k).clamp(max=len(path.times) - 1)] for k in (0, 1)])
    return float((nearest - times).abs().amin(0).max()) <= NEAR


def as_known(capture: Capture, path: Trajectory) -> Capture:
    return with_poses(capture, path.at)


def completed(capture: Capture, path: Trajectory) -> Capture:
    """The path with the capture's poses in its gaps and beyond its ends."""
    return with_poses(capture, joined(path, trajectory_of(capture).at))


def joined(path: Trajectory, others: Poses) -> Poses:
    """Poses of another path, moved onto this one: within it by their difference in the rig's axes, beyond an end by that at the end."""
    first, last = path.times[:1], path.times[-1:]
    start = path.poses[:1] @ invert(others(first))
    apart = invert(start @ others(path.times)) @ path.poses  # [n, 4, 4]

    def at(times: Tensor) -> Tensor:  # [...] seconds -> [..., 4, 4]
        within = start @ others(times) @ interpolate_trajectory(path.times, apart, times.clamp(first, last))
        beyond = path.poses[-1:] @ invert(others(last)) @ others(times)
        before = start @ others(times)
        return torch.where(
            (times > last)[..., None, None], beyond, torch.where((times < first)[..., None, None], before, within)
        )

    return at
