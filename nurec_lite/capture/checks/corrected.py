# SPDX-License-Identifier: Apache-2.0
"""Captures as they are once a convention is corrected: other poses, another mounting or other rays of a lidar."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.capture.types import Capture, Frame, SweepFrame
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.se3 import interpolate_trajectory

AnyFrame = TypeVar("AnyFrame", bound=Frame)
Correction = Callable[[Capture], Capture]


def with_poses(
    poses: Mapping[str, Tensor],  # [n, 4, 4] T_world_rig at the middles of each lidar's sweeps
) -> Correction:
    """Returns a correction that puts all frames on the path through the poses of the lidar that is named first."""
    name, path = next(iter(poses.items()))

    def correct(capture: Capture) -> Capture:
        times = torch.tensor([f.time_mid for f in capture.sweeps if f.sensor == name], dtype=torch.float64)

        def moved(frame: AnyFrame) -> AnyFrame:
            ends = torch.tensor([frame.time_start, frame.time_end], dtype=torch.float64)
            first, last = interpolate_trajectory(times, path, ends)
            return replace(frame, T_world_rig_start=first, T_world_rig_end=last)

        return replace(capture, images=tuple(map(moved, capture.images)), sweeps=tuple(map(moved, capture.sweeps)))

    return correct


def with_mounting(lidar: str, change: Callable[[Tensor], Tensor]) -> Correction:
    """Returns a correction that changes T_rig_lidar [4, 4]."""

    def correct(capture: Capture) -> Capture:
        lidars = (replace(s, T_rig_lidar=change(s.T_rig_lidar)) if s.name == lidar else s for s in capture.lidars)
        return replace(capture, lidars=tuple(lidars))

    return correct


@dataclass(frozen=True)
class _Turned:
    """Loads a sweep, and turns its directions into other axes. It pickles."""

    load: Callable[[], Sweep]
    axes: Tensor  # [3, 3]

    def __call__(self) -> Sweep:
        sweep = self.load()
        return replace(sweep, directions=F.normalize(sweep.directions @ self.axes.T.float(), dim=1))


def with_rays(lidar: str, axes: Tensor) -> Correction:
    """Returns a correction that multiplies directions by `axes` [3, 3]."""

    def correct(capture: Capture) -> Capture:
        sweeps = (replace(f, load=_Turned(f.load, axes)) if f.sensor == lidar else f for f in capture.sweeps)
        return replace(capture, sweeps=tuple(sweeps))

    return correct


@dataclass(frozen=True)
class _Scaled:
    """Loads a sweep, multiplies its ranges and makes those of returns longer. It pickles."""

    load: Callable[[], Sweep]
    factor: float
    metres: float

    def __call__(self) -> Sweep:
        sweep = self.load()
        longer = (sweep.ranges * self.factor + self.metres).clamp(min=0)
        return replace(sweep, ranges=longer.where(sweep.returned, sweep.ranges))


def with_ranges(lidar: str, factor: float = 1.0, metres: float = 0.0) -> Correction:
    """Returns a correction that multiplies ranges by a factor, then adds a length."""

    def correct(capture: Capture) -> Capture:
        sweeps = (replace(f, load=_Scaled(f.load, factor, metres)) if f.sensor == lidar else f for f in capture.sweeps)
        return replace(capture, sweeps=tuple(sweeps))

    return correct


def half_a_turn_later(sweep: Sweep, frame: SweepFrame) -> Sweep:
    """Rays with times half of the sweep later, those of the second half earlier."""
    first, length = frame.time_start, frame.time_end - frame.time_start
    return replace(sweep, times=first + torch.remainder(sweep.times - first + 0.5 * length, max(length, 1e-9)))


@dataclass(frozen=True)
class _HalfATurnLater:
    """Loads a sweep, and gives its rays times that are half a turn off. It pickles."""

    load: Callable[[], Sweep]
    frame: SweepFrame

    def __call__(self) -> Sweep:
        return half_a_turn_later(self.load(), self.frame)


def half_turns(lidar: str, capture: Capture) -> Capture:
    """The capture with times of rays that are half a turn off."""
    sweeps = (replace(f, load=_HalfATurnLater(f.load, f)) if f.sensor == lidar else f for f in capture.sweeps)
    return replace(capture, sweeps=tuple(sweeps))
