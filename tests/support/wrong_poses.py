# SPDX-License-Identifier: Apache-2.0
"""Drives whose poses are written in another convention, and drives through shapes that say little of one's motion."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise

import torch
from tiny_capture import Loaded
from torch import Tensor

from nurec_lite.capture.checks.register import exp, log
from nurec_lite.capture.simulate import simulate
from nurec_lite.capture.simulate.world import SimulationConfig
from nurec_lite.capture.types import Capture, Frame, SweepFrame
from nurec_lite.geometry.lidar import Lidar, Sweep, unit_directions
from nurec_lite.geometry.se3 import invert
from nurec_lite.geometry.tracks import Tracks

Change = Callable[[Tensor], Tensor]  # of a pose [4, 4]
SMALL = SimulationConfig(frames=16, width=16, height=8, beams=24, azimuth_steps=180, samples=1)
AXES_OF_A_CAMERA = torch.tensor([[0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]], dtype=torch.float64)


@lru_cache(maxsize=8)
def street(seed: int = 0) -> Capture:
    """Small, with its sweeps in memory."""
    capture = simulate(replace(SMALL, seed=seed))
    return replace(capture, sweeps=tuple(replace(f, load=Loaded(f.load())) for f in capture.sweeps))


def posed(capture: Capture, change: Change) -> Capture:
    """All poses changed."""

    def changed(frame: Frame) -> Frame:
        ends = change(frame.T_world_rig_start), change(frame.T_world_rig_end)
        return replace(frame, T_world_rig_start=ends[0], T_world_rig_end=ends[1])

    return replace(capture, images=tuple(map(changed, capture.images)), sweeps=tuple(map(changed, capture.sweeps)))


def scaled(factor: float, pose: Tensor) -> Tensor:
    return with_position(pose, factor * pose[:3, 3])


def with_position(pose: Tensor, position: Tensor) -> Tensor:
    moved = pose.clone()
    moved[:3, 3] = position
    return moved


def in_axes(axes: Tensor, pose: Tensor) -> Tensor:
    """World and rig have other axes: those of the rig are `axes` [4, 4] times them."""
    return axes.T @ pose @ axes


def transposed(pose: Tensor) -> Tensor:
    turned = pose.clone()
    turned[:3, :3] = pose[:3, :3].T.clone()
    return turned


def in_degrees(pose: Tensor) -> Tensor:
    """Angles in degrees that were taken for radians."""
    vector = log(pose)
    return exp(torch.cat([torch.rad2deg(vector[:3]), vector[3:]]))


def standing(pose: Tensor) -> Tensor:
    return torch.eye(4, dtype=torch.float64)


MIRROR = torch.diag(torch.tensor([1.0, -1, 1, 1], dtype=torch.float64))
CONVENTIONS: dict[str, tuple[Change, str]] = {  # how they are made, and how they are named
    "inverse": (invert, "if they are inverted (T_rig_world); invert them"),
    "mirror": (partial(in_axes, MIRROR), "if they are in left-handed axes with x forward, y right and z up"),
    "camera": (
        partial(in_axes, AXES_OF_A_CAMERA),
        "if they are those of camera_0; multiply them by the inverse of its mounting",
    ),
    "right, forward, up": (
        partial(in_axes, torch.tensor([[0.0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]).double()),
        "if they are in axes with x right, y forward and z up",
    ),
    "half": (partial(scaled, 0.5), "if their translations are too small by a factor of 2"),
    "feet": (partial(scaled, 3.28084), "if their translations are too large by a factor of 3.28"),
    "millimetres": (partial(scaled, 1000.0), "if their translations are too large by a factor of 1000"),
    "standing": (standing, "the poses stand still: give those of the drive"),
    "transposed": (transposed, "if their rotations are transposed"),
    "degrees": (in_degrees, "if their rotations are in degrees"),
    "positions": (
        lambda T: with_position(T, T[[1, 0, 2], 3]),
        "if their positions, unlike their rotations, are in other axes: (y, x, z) are right",
    ),
}


def relative(capture: Capture) -> Capture:
    """Each pose of a sweep is its motion to the next sweep."""
    frames = capture.sweeps
    steps = [invert(a.T_world_rig_start) @ b.T_world_rig_start for a, b in pairwise(frames)]
    poses = zip(frames, [*steps, steps[-1]], strict=True)
    return replace(capture, sweeps=tuple(replace(f, T_world_rig_start=T, T_world_rig_end=T) for f, T in poses))


def with_rays(capture: Capture, columns: list[int], signs: tuple[int, int, int] = (1, 1, 1)) -> Capture:
    """Directions with their axes exchanged or reversed."""

    def changed(frame: SweepFrame) -> SweepFrame:
        sweep = frame.load()
        directions = sweep.directions[:, columns] * torch.tensor(signs, dtype=torch.float32)
        return replace(frame, load=Loaded(replace(sweep, directions=directions)))

    return replace(capture, sweeps=tuple(map(changed, capture.sweeps)))


def tunnel(frames: int = 12, speed: float = 10.0) -> Capture:
    """Between two endless walls, which say nothing of the way along them."""
    eye = torch.eye(4, dtype=torch.float64)
    lidar = Lidar("lidar", eye, torch.linspace(-0.4, 0.3, 32), azimuth_steps=360)

    def at(seconds: float) -> Tensor:
        return with_position(eye, torch.tensor([speed * seconds, 0.0, 0.0]).double())

    sweeps = tuple(
        SweepFrame("lidar", i, 0.1 * i, 0.1 * (i + 1), at(0.1 * i), at(0.1 * (i + 1)), Loaded(_walls(lidar, 0.1 * i)))
        for i in range(frames)
    )
    return Capture("tunnel", (), (lidar,), (), sweeps, Tracks.empty())


def _walls(lidar: Lidar, start: float) -> Sweep:
    """A sweep between walls at y = 4 m and -5 m, a floor at -1.8 m and a roof at 4 m."""
    ring, k = torch.meshgrid(torch.arange(len(lidar.elevations)), torch.arange(lidar.azimuth_steps), indexing="ij")
    azimuth = math.pi - 2 * math.pi * (k.flatten() + 0.5) / lidar.azimuth_steps
    d = unit_directions(torch.stack([azimuth, lidar.elevations[ring.flatten()]], dim=1)).double()
    y = torch.where(d[:, 1] > 0, 4 / d[:, 1], -5 / d[:, 1])
    z = torch.where(d[:, 2] > 0, 4 / d[:, 2], -1.8 / d[:, 2])
    ranges = torch.minimum(y, z) + 0.01 * torch.randn(len(d), generator=torch.Generator().manual_seed(int(10 * start)))
    seen = ranges < 60
    times = start + 0.1 * lidar.spin_fraction(azimuth).double()
    ranges = torch.where(seen, ranges, 0)
    return Sweep(d.float(), ranges.float(), 0.5 * seen.float(), times, ring.flatten(), seen)
