# SPDX-License-Identifier: Apache-2.0
"""Lidars of requests: the two that the service has by name, and patterns of one's own by YAML (docs/sensors.md).

The angles of these two are nominal and were not compared with a data sheet; a YAML file holds the angles of one's own unit.
"""

import math
from pathlib import Path

import torch
from torch import Tensor

from nurec_lite.base.errors import ConfigError
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.output.sensor_file import read_sensor
from nurec_lite.output.sensors import NovelSensor
from nurec_lite.service.errors import MISSING, RequestError
from nurec_lite.service.messages import ENUMS

FIRST_OWN = 100  # lidar_type of the first pattern of one's own; the next is 101
TURN_S = 0.1  # seconds of a revolution


def patterns(
    files: list[str],  # YAML, in the order of their numbers
    capture: Capture,
) -> dict[int, NovelSensor]:
    """The lidars by their lidar_type."""
    named = {ENUMS["LidarType"].index(lidar.sensor.name): lidar for lidar in (_pandar128(), _at128())}
    own = {FIRST_OWN + k: _own(Path(file), capture) for k, file in enumerate(files)}
    names = [lidar.sensor.name for lidar in (named | own).values()]
    for file, name in zip(files, names[len(named) :], strict=True):
        if names.count(name) > 1:
            raise ConfigError(f"{file}: name is '{name}', which another pattern has; give each a name of its own")
    return named | own


def _own(file: Path, capture: Capture) -> NovelSensor:
    sensor = read_sensor(file, capture)
    if not isinstance(sensor.sensor, Lidar):
        raise ConfigError(
            f"{file} describes a camera, but patterns takes lidars; leave it out, since requests describe their own cameras"
        )
    return sensor


def lidar_of(known: dict[int, NovelSensor], number: int) -> NovelSensor:
    if number not in known:
        names = ", ".join(f"{k} {one.sensor.name}" for k, one in known.items())
        raise RequestError(f"lidar_type is {number}, but must be one of {names}", MISSING)
    return known[number]


def _pandar128() -> NovelSensor:
    """128 beams from -25 to 15 degrees, an eighth of a degree apart between -6 and 2 and half a degree elsewhere, at 0.2 degrees of
    azimuth."""
    parts = torch.linspace(-25, -6, 39)[:-1], torch.linspace(-6, 2, 65), torch.linspace(2, 15, 26)[1:]
    return NovelSensor(_spinning("PANDAR128", torch.cat(parts), 200.0, 1800), TURN_S)


def _at128() -> NovelSensor:
    """128 beams from -12.5 to 12.9 degrees, over 120 degrees of azimuth at 0.1 degrees."""
    lidar = _spinning("AT128", torch.linspace(-12.5, 12.9, 128), 200.0, 3600)
    return NovelSensor(lidar, TURN_S, (math.radians(-60), math.radians(60)))


def _spinning(name: str, degrees: Tensor, max_range: float, steps: int) -> Lidar:
    return Lidar(name, torch.eye(4, dtype=torch.float64), torch.deg2rad(degrees.double()), max_range, steps)
