# SPDX-License-Identifier: Apache-2.0
"""Sweeps of a capture as programs write them that take one array for another, or a unit for another."""

from collections.abc import Callable
from dataclasses import replace

import torch
from tiny_capture import Loaded
from torch import Tensor

from nurec_lite.capture.deskew import poses_at, world_points
from nurec_lite.capture.types import Capture, SweepFrame
from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation, unit_directions
from nurec_lite.geometry.se3 import invert, transform

Change = Callable[[SweepFrame, Sweep, Lidar], Sweep]


def changed(capture: Capture, change: Change) -> Capture:
    """Every sweep changed, in memory."""

    def other(frame: SweepFrame) -> SweepFrame:
        return replace(frame, load=Loaded(change(frame, frame.load(), capture.lidar(frame.sensor))))

    return replace(capture, sweeps=tuple(map(other, capture.sweeps)))


def with_arrays(change: Callable[[Sweep], dict[str, Tensor]]) -> Change:
    return lambda frame, sweep, lidar: replace(sweep, **change(sweep))  # type: ignore[arg-type]


def points(frame: SweepFrame, sweep: Sweep, lidar: Lidar) -> Sweep:
    """Points where directions belong."""
    return replace(sweep, directions=sweep.directions * torch.where(sweep.returned, sweep.ranges, 1.0)[:, None])


def in_degrees(frame: SweepFrame, sweep: Sweep, lidar: Lidar) -> Sweep:
    """Directions of angles in degrees that were taken for radians."""
    angles = torch.rad2deg(azimuth_elevation(sweep.directions.double()))
    return replace(sweep, directions=unit_directions(angles).float())


def compensated(part: float, one_time: bool = False) -> Change:
    """Points moved to where the lidar was at that part of the sweep, by their own times."""

    def change(frame: SweepFrame, sweep: Sweep, lidar: Lidar) -> Sweep:
        T = poses_at(frame, torch.tensor([part], dtype=torch.float64))[0] @ lidar.T_rig_lidar.double()
        moved = transform(invert(T), world_points(frame, sweep, lidar))
        ranges = moved.norm(dim=1)
        directions = torch.where(sweep.returned[:, None], (moved / ranges[:, None]).float(), sweep.directions)
        time = frame.time_start + part * (frame.time_end - frame.time_start)
        times = torch.full_like(sweep.times, time) if one_time else sweep.times
        ranges = torch.where(sweep.returned, ranges.float(), torch.zeros(()))
        return replace(sweep, directions=directions, ranges=ranges, times=times)

    return change


def at_one_time(frame: SweepFrame, sweep: Sweep, lidar: Lidar) -> Sweep:
    return replace(sweep, times=torch.full_like(sweep.times, frame.time_mid))


def reversed_times(frame: SweepFrame, sweep: Sweep, lidar: Lidar) -> Sweep:
    return replace(sweep, times=frame.time_start + frame.time_end - sweep.times)


def times_in(factor: float) -> Change:
    return lambda frame, sweep, lidar: replace(sweep, times=sweep.times * factor)


def from_its_start(frame: SweepFrame, sweep: Sweep, lidar: Lidar) -> Sweep:
    return replace(sweep, times=sweep.times - frame.time_start)


def cropped(keep: Callable[[Tensor], Tensor]) -> Change:
    """Rays whose points are cut away are said not to have returned."""

    def change(frame: SweepFrame, sweep: Sweep, lidar: Lidar) -> Sweep:
        kept = sweep.returned & keep(sweep.directions * sweep.ranges[:, None])
        return replace(sweep, ranges=sweep.ranges * kept, intensities=sweep.intensities * kept, returned=kept)

    return change


MEASURED = ("ranges", "intensities", "returned")


def by_column(frame: SweepFrame, sweep: Sweep, lidar: Lidar) -> Sweep:
    """Stores measurements ring by ring, directions column by column."""
    beams = len(lidar.elevations)
    return replace(sweep, **{f: getattr(sweep, f).view(-1, beams).T.flatten() for f in MEASURED})


def shuffled(frame: SweepFrame, sweep: Sweep, lidar: Lidar) -> Sweep:
    order = torch.randperm(len(sweep))
    return replace(sweep, **{f: getattr(sweep, f)[order] for f in MEASURED})


def two_turns(capture: Capture) -> Capture:
    """Two sweeps in one, at their own times."""

    def both(a: SweepFrame, b: SweepFrame) -> SweepFrame:
        one, other = a.load(), b.load()
        arrays = {f: torch.cat([getattr(one, f), getattr(other, f)]) for f in Sweep.__dataclass_fields__}
        return replace(a, time_end=b.time_end, T_world_rig_end=b.T_world_rig_end, load=Loaded(Sweep(**arrays)))

    pairs = zip(capture.sweeps[::2], capture.sweeps[1::2], strict=True)
    return replace(capture, sweeps=tuple(both(a, b) for a, b in pairs))
