# SPDX-License-Identifier: Apache-2.0
"""Sensors that a capture need not have: the capture with one of them, and the rays of a lidar's own pattern."""

from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from nurec_lite.capture.types import Capture
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar, Sweep, unit_directions

S = TypeVar("S", Camera, Lidar)


def with_sensor(capture: Capture, sensor: Camera | Lidar) -> Capture:
    """The capture whose sensor of that name is this one, which is the last one if the name is new."""
    if isinstance(sensor, Camera):
        return replace(capture, cameras=_with(capture.cameras, sensor))
    return replace(capture, lidars=_with(capture.lidars, sensor))


def _with(sensors: tuple[S, ...], sensor: S) -> tuple[S, ...]:
    places, own = [k for k, known in enumerate(sensors) if known.name == sensor.name], (sensor,)
    k = places[0] if places else len(sensors)
    return sensors[:k] + own + sensors[k + 1 :]


@dataclass(frozen=True)
class Pattern:
    """Makes the rays of one revolution: every beam at every step of azimuth, one step after another."""

    lidar: Lidar
    start: float  # seconds
    seconds: float  # that the revolution takes

    def __call__(self) -> Sweep:
        lidar, beams = self.lidar, len(self.lidar.elevations)
        steps = torch.arange(lidar.azimuth_steps, dtype=torch.float64) + 0.5
        fractions = (steps / lidar.azimuth_steps).repeat_interleave(beams)
        azimuths = lidar.azimuth_start + fractions / lidar.spin_rate
        angles = torch.stack([azimuths, lidar.elevations.double().repeat(lidar.azimuth_steps)], dim=-1)
        rings = torch.arange(beams).repeat(lidar.azimuth_steps)
        return unmeasured(unit_directions(angles).float(), self.start + fractions * self.seconds, rings)


def unmeasured(
    directions: Tensor,  # [R, 3]
    times: Tensor,  # [R]
    rings: Tensor,  # [R]
) -> Sweep:
    """Rays of which nothing is known."""
    zero = torch.zeros(len(rings))
    return Sweep(directions, zero, zero, times, rings, torch.zeros(len(rings), dtype=torch.bool))
