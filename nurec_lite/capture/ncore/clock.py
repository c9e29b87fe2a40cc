# SPDX-License-Identifier: Apache-2.0
"""Times and poses of a capture as NCore wants them: whole microseconds above 0, and one path of the rig that covers the whole sequence."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.capture.plausible import BESIDE
from nurec_lite.capture.types import Capture, CaptureError, Frame
from nurec_lite.geometry.se3 import interpolate_between, pose_matrix

SAME = 1e-3  # largest difference in metres of two poses of one microsecond


@dataclass(frozen=True)
class Clock:
    """Converts seconds of the capture to microseconds of NCore."""

    zero: int  # microseconds at the capture's time 0
    first: int  # microseconds: the sequence
    last: int

    def stamp(self, time: float) -> int:
        return round(time * 1e6) + self.zero

    def stamps(self, times: Tensor) -> Tensor:  # [n] seconds -> [n] int64 microseconds
        return (times.double() * 1e6).round().long() + self.zero

    def seconds(self, stamp: int) -> float:
        return (stamp - self.zero) * 1e-6

    def all_seconds(self, stamps: Tensor) -> Tensor:  # [n] int64 microseconds -> [n] seconds
        return torch.tensor([self.seconds(t) for t in stamps.tolist()], dtype=torch.float64)


def clock_of(capture: Capture) -> Clock:
    """Clock that covers all frames, and the largest times of rays outside of their sweep."""
    frames = (*capture.images, *capture.sweeps)
    if not frames:
        raise CaptureError(f"{capture.name} has no frames; choose some by data.frames")
    beside = max([BESIDE, *(0.5 * (f.time_end - f.time_start) for f in capture.sweeps)])
    first = min(f.time_start for f in frames) - beside
    zero = 1_000_000 * max(0, math.ceil(-first))  # NCore has no times before 0
    last = max(f.time_end for f in frames) + beside
    return Clock(zero, math.floor(first * 1e6) + zero, math.ceil(last * 1e6) + zero)


def ends_of(capture: Capture, frame: Frame) -> tuple[float, float, Tensor, Tensor]:  # seconds, [4, 4] T_world_rig
    """Returns the times and poses at both ends of a frame.  A global shutter sees in the middle, and has one time in NCore."""
    still = any(c.name == frame.sensor and c.shutter == "global" for c in capture.cameras)
    if not still:
        return frame.time_start, frame.time_end, frame.T_world_rig_start, frame.T_world_rig_end
    middle = _between(frame, 0.5)
    return frame.time_mid, frame.time_mid, middle, middle


def _between(frame: Frame, part: float) -> Tensor:  # [4, 4]
    poses = frame.T_world_rig_start.double(), frame.T_world_rig_end.double()
    return pose_matrix(*interpolate_between(*poses, torch.tensor(part, dtype=torch.float64)))


def path_of(capture: Capture, clock: Clock) -> tuple[Tensor, Tensor]:  # [n] int64 microseconds, [n, 4, 4] T_world_rig
    """Returns every pose that a frame knows, and one at each end of the sequence."""
    found: dict[int, Tensor] = {}
    for stamp, pose in _known(capture, clock):
        before = found.setdefault(stamp, pose)
        apart = float((before[:3, 3] - pose[:3, 3]).norm())
        if apart > SAME:
            raise CaptureError(
                f"{capture.name}: two sensors put the rig {apart:.3g} m apart at {clock.seconds(stamp):.6f} s, but NCore has one "
                "path of the rig; give all frames the poses of one path"
            )
    found.setdefault(clock.first, _outside(capture, clock.seconds(clock.first)))
    found.setdefault(clock.last, _outside(capture, clock.seconds(clock.last)))
    stamps = sorted(found)
    return torch.tensor(stamps), torch.stack([found[stamp] for stamp in stamps])


def _known(capture: Capture, clock: Clock) -> Iterator[tuple[int, Tensor]]:
    for frame in (*capture.sweeps, *capture.images):
        start, end, T_start, T_end = ends_of(capture, frame)
        yield clock.stamp(start), T_start.double()
        yield clock.stamp(end), T_end.double()


def _outside(capture: Capture, time: float) -> Tensor:  # [4, 4]
    """Returns the pose before or after all frames: the motion of the nearest frame goes on."""
    frames = (*capture.sweeps, *capture.images)
    frame = min(frames, key=lambda f: min(abs(f.time_start - time), abs(f.time_end - time)))
    lasts = frame.time_end - frame.time_start
    return _between(frame, (time - frame.time_start) / lasts if lasts > 0 else 0.5)
