# SPDX-License-Identifier: Apache-2.0
"""Sensors that a capture need not have: their frames and rays, and the capture with one of them."""

import math
from dataclasses import dataclass, replace
from typing import NoReturn, TypeVar

import torch
from torch import Tensor

from nurec_lite.base.errors import ConfigError
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.free_lidar import bands_of
from nurec_lite.geometry.lidar import Lidar, Sweep, unit_directions

S = TypeVar("S", Camera, Lidar)
REVOLUTION_S = 0.1  # seconds, of a lidar of unknown rate
WHOLE = (-math.pi, math.pi)


@dataclass(frozen=True)
class NovelSensor:
    """A camera or lidar of one's own, with the duration of its readout and its field of view."""

    sensor: Camera | Lidar
    seconds: float  # of the readout, or of a revolution
    azimuths: tuple[float, float] = WHOLE  # radians, to the left: limits of a lidar's rays

    def frame(
        self,
        time: float,  # seconds, of the middle
        T_world_rig_start: Tensor,  # [4, 4]
        T_world_rig_end: Tensor,  # [4, 4]
        index: int = 0,
    ) -> ImageFrame | SweepFrame:
        """An exposure or a revolution that no sensor captured."""
        start, end = time - 0.5 * self.seconds, time + 0.5 * self.seconds
        given = self.sensor.name, index, start, end, T_world_rig_start, T_world_rig_end
        if isinstance(self.sensor, Camera):
            return ImageFrame(*given, _not_captured)
        return SweepFrame(*given, Pattern(self.sensor, start, self.seconds, self.azimuths))


@dataclass(frozen=True)
class Pattern:
    """Makes the rays of one sweep: those of the lidar's table, or every beam at every step of azimuth, one step after another."""

    lidar: Lidar
    start: float  # seconds
    seconds: float  # that the revolution takes
    azimuths: tuple[float, float] = WHOLE  # radians

    def __call__(self) -> Sweep:
        """Returns the rays; ConfigError for a lidar without rows and columns and without known rays."""
        return self._spun() if self.lidar.spins else self._of_table()

    def _of_table(self) -> Sweep:
        lidar, table = self.lidar, self.lidar.table
        if table is None:
            raise ConfigError(
                f"lidar {lidar.name} has no rows and columns, and its rays differ from sweep to sweep; render a lidar with rays: FILE "
                "from a YAML file (docs/sensors.md)"
            )
        zero = torch.zeros(len(table.fractions))
        times = self.start + table.fractions * self.seconds
        return Sweep(table.directions, zero, zero, times, bands_of(lidar, table.directions), zero.bool())

    def _spun(self) -> Sweep:
        lidar, beams, (first, last) = self.lidar, len(self.lidar.elevations), self.azimuths
        steps = (torch.arange(lidar.azimuth_steps, dtype=torch.float64) + 0.5) / lidar.azimuth_steps
        azimuths = lidar.azimuth_start + steps / lidar.spin_rate
        seen = (
            torch.remainder(azimuths - first, 2 * math.pi) < last - first if last - first < 2 * math.pi else steps > 0
        )
        steps, azimuths = (values[seen].repeat_interleave(beams) for values in (steps, azimuths))
        turns = int(seen.sum())
        angles = torch.stack([azimuths, lidar.elevations.double().repeat(turns)], dim=-1)
        zero, nothing = torch.zeros(len(steps)), torch.zeros(len(steps), dtype=torch.bool)
        times, rings = self.start + steps * self.seconds, torch.arange(beams).repeat(turns)
        return Sweep(unit_directions(angles).float(), zero, zero, times, rings, nothing)


def sensors_of(capture: Capture) -> tuple[Camera | Lidar, ...]:
    return (*capture.cameras, *capture.lidars)


def with_sensor(capture: Capture, sensor: Camera | Lidar) -> Capture:
    """The capture with this sensor: it replaces the one of its name, or comes last if the name is new."""
    if isinstance(sensor, Camera):
        return replace(capture, cameras=_with(capture.cameras, sensor))
    return replace(capture, lidars=_with(capture.lidars, sensor))


def _with(sensors: tuple[S, ...], sensor: S) -> tuple[S, ...]:
    places, own = [k for k, known in enumerate(sensors) if known.name == sensor.name], (sensor,)
    k = places[0] if places else len(sensors)
    return sensors[:k] + own + sensors[k + 1 :]


def _not_captured() -> NoReturn:
    raise AssertionError("nothing was captured here")
