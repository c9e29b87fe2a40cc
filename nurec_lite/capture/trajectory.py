# SPDX-License-Identifier: Apache-2.0
"""The rig's path through a capture, and frames of its sensors at any time, on the path or off it."""

from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

import torch
from torch import Tensor

from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.se3 import (
    interpolate_trajectory,
    invert,
    matrix_to_quat,
    motion_between,
    quat_conjugate,
    quat_multiply,
    quat_to_rotvec,
    transform,
)
from nurec_lite.geometry.steady import SteadyMotion

HALF_SECONDS = 0.05  # before and after a moment: errors of single poses hardly change velocities between them
MERGED_SECONDS = 1e-6  # poses closer in time are one: sensors share their triggers, up to rounding
BEYOND = 0.2  # seconds that a frame may lie before the first pose and after the last one
AnyFrame = TypeVar("AnyFrame", ImageFrame, SweepFrame)


@dataclass(frozen=True)
class Trajectory:
    """Poses of the rig, n of them, in time order."""

    times: Tensor  # [n] seconds, strictly increasing, float64
    poses: Tensor  # [n, 4, 4] T_world_rig, float64

    @property
    def span(self) -> tuple[float, float]:  # seconds
        return float(self.times[0]), float(self.times[-1])

    def reaches(self, times: Tensor) -> bool:  # [n] seconds
        """Whether poses are known at all times. A few rays may lie before the first and after the last one."""
        first, last = self.span
        return bool(((first - BEYOND <= times) & (times <= last + BEYOND)).all())

    def velocities(
        self,
        half: float = HALF_SECONDS,  # of the interval about each time, where it does not reach beyond the ends
    ) -> Tensor:  # [n, 6] turning and motion in the rig's own axes, radians and metres a second
        """Velocities at the times, by the difference of the poses about each; zeros for a single pose."""
        if len(self.times) == 1:
            return self.poses.new_zeros(1, 6)
        first, last = ((self.times + d).clamp(self.times[0], self.times[-1]) for d in (-half, half))
        before, after = (interpolate_trajectory(self.times, self.poses, times) for times in (first, last))
        axes, q = self.poses[:, :3, :3], [matrix_to_quat(T[:, :3, :3]) for T in (before, after)]
        turn = quat_to_rotvec(quat_multiply(quat_conjugate(q[0]), q[1]))
        way = ((after - before)[:, None, :3, 3] @ axes)[:, 0]
        return torch.cat([turn, way], dim=1) / (last - first)[:, None]

    def at(
        self,
        times: Tensor | float,  # [...] seconds
    ) -> Tensor:  # [..., 4, 4]
        """Poses by lerp of the translation and slerp of the rotation; beyond the ends the outermost velocity continues."""
        return interpolate_trajectory(self.times, self.poses, torch.as_tensor(times, dtype=self.times.dtype))

    def to_rig(
        self,
        points: Tensor,  # [n, 3] metres, world
        times: Tensor,  # [n] seconds
    ) -> Tensor:  # [n, 3]
        """Points in the rig's axes at their own times: as with the inverse of `at`, in a tenth of the time."""
        if len(self.times) == 1:
            return transform(invert(self.poses[0]), points)
        step = (torch.searchsorted(self.times, times.contiguous(), right=True) - 1).clamp(0, len(self.times) - 2)
        found = torch.empty_like(points)
        for k in step.unique().tolist():
            some = (step == k).nonzero()[:, 0]
            motion = SteadyMotion.of(motion_between(self.poses[k], self.poses[k + 1]))
            fraction = (times[some] - self.times[k]) / (self.times[k + 1] - self.times[k])
            found[some] = motion.to_rig(points[some], fraction)
        return found


@dataclass(frozen=True)
class Retimed:
    """Decodes a sweep as if it had begun later. It pickles, as the wrapped loader does."""

    load: Callable[[], Sweep]
    delay: float  # seconds

    def __call__(self) -> Sweep:
        sweep = self.load()
        return replace(sweep, times=sweep.times + self.delay)


@lru_cache(maxsize=4)
def trajectory_of(capture: Capture) -> Trajectory:
    """Trajectory through every pose that the frames know: both ends of each, of all sensors. Kept: it reads each frame of a drive."""
    frames = (*capture.images, *capture.sweeps)
    times = torch.tensor([t for f in frames for t in (f.time_start, f.time_end)], dtype=torch.float64)
    poses = torch.stack([T.double() for f in frames for T in (f.T_world_rig_start, f.T_world_rig_end)])
    times, order = times.sort(stable=True)
    new = torch.cat([torch.ones(1, dtype=torch.bool), times.diff() > MERGED_SECONDS])
    return Trajectory(times[new], poses[order][new])


@dataclass(frozen=True)
class Velocities:
    """Velocities of a sensor, at n times."""

    times: list[float]  # seconds, rising
    values: Tensor  # [n, 6] float32, turning and motion in the sensor's own axes, radians and metres a second

    def at(self, time: float) -> Tensor:  # [6]
        """Returns the value of the nearest time."""
        k = bisect(self.times, time)
        near = (i for i in (k - 1, k) if 0 <= i < len(self.times))
        return self.values[min(near, key=lambda i: abs(self.times[i] - time))].clone()


@lru_cache(maxsize=4)
def _moving(capture: Capture) -> tuple[Trajectory, Tensor]:
    """The trajectory, and its velocities [n, 6] as `Trajectory.velocities` has them. All cameras share them: each pose takes operators."""
    path = trajectory_of(capture)
    return path, path.velocities()


@lru_cache(maxsize=16)
def velocities(
    capture: Capture,
    camera: str,  # its name
) -> Velocities:
    """Velocities of a camera on the rig. Worked out once: views are made in every step."""
    (path, moving), T = _moving(capture), capture.camera(camera).T_rig_cam.double()
    turn, way = moving.split(3, dim=1)
    way = way + torch.linalg.cross(turn, T[:3, 3].expand_as(turn))
    return Velocities(path.times.tolist(), torch.cat([turn @ T[:3, :3], way @ T[:3, :3]], dim=1).float())


def nearest(
    frames: Sequence[AnyFrame],  # of one sensor, at least one
    time: float,  # seconds
) -> AnyFrame:
    """Returns the frame with the nearest middle."""
    return min(frames, key=lambda frame: abs(frame.time_mid - time))


def frame_at(
    frames: Sequence[AnyFrame],  # of one sensor, at least one
    trajectory: Trajectory,
    time: float,  # seconds, of the middle of the frame
) -> AnyFrame:
    """An exposure or revolution that was not captured. It lasts as long as the nearest one that was, and has its index and its content:
    a sweep the same rays, later by the same time; an image keeps its old content, which is no longer the truth."""
    like = nearest(frames, time)
    half = 0.5 * (like.time_end - like.time_start)
    start, end = time - half, time + half
    moved = replace(
        like, time_start=start, time_end=end, T_world_rig_start=trajectory.at(start), T_world_rig_end=trajectory.at(end)
    )
    if isinstance(moved, SweepFrame):
        moved = replace(moved, load=Retimed(moved.load, start - like.time_start))
    return moved


def shifted(
    frame: AnyFrame,
    shift: Sequence[float],  # metres forward, left and up in the rig's axes at each time
) -> AnyFrame:
    """The frame of a rig that drives a constant offset from the captured one."""
    T_rig_shifted = torch.eye(4, dtype=torch.float64)
    T_rig_shifted[:3, 3] = torch.tensor(shift, dtype=torch.float64)
    start, end = (T.double() @ T_rig_shifted for T in (frame.T_world_rig_start, frame.T_world_rig_end))
    return replace(frame, T_world_rig_start=start, T_world_rig_end=end)
