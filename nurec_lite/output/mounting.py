# SPDX-License-Identifier: Apache-2.0
"""Mountings in the words of a vehicle: metres forward, left and up, and yaw, pitch and roll in degrees.

The axes are those of the vehicle or of another sensor: x forward, y left, z up, a camera looking along x. The sensor is turned by
R = Rz(yaw) Ry(-pitch) Rx(roll): yaw to the left, pitch upwards, roll with the left side up.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.errors import ConfigError
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.camera import Camera
from nurec_lite.output.sensors import sensors_of

RIG = "rig"
# takes x right, y down, z forward to x forward, y left, z up
FORWARD_FROM_OPTICAL = torch.tensor([[0.0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]], dtype=torch.float64)


def mounting(
    path: Path,  # of the file, for messages
    given: Mapping[str, Any],  # relative_to, forward_m, left_m, up_m, yaw_deg, pitch_deg, roll_deg
    capture: Capture,
    camera: bool,  # whether a camera is mounted
) -> Tensor:  # [4, 4] T_rig_sensor, float64
    """The place of a sensor on the vehicle."""
    base = _base(path, given.get("relative_to", RIG), capture)
    T = turned(*(math.radians(given.get(f"{angle}_deg", 0.0)) for angle in ("yaw", "pitch", "roll")))
    T[:3, 3] = torch.tensor([float(given.get(f"{way}_m", 0.0)) for way in ("forward", "left", "up")])
    return base @ T @ (FORWARD_FROM_OPTICAL if camera else torch.eye(4, dtype=torch.float64))


def _base(path: Path, name: str, capture: Capture) -> Tensor:  # [4, 4] rig from the axes of `relative_to`
    if name == RIG:
        return torch.eye(4, dtype=torch.float64)
    for sensor in sensors_of(capture):
        if sensor.name == name and isinstance(sensor, Camera):
            return sensor.T_rig_cam.double() @ FORWARD_FROM_OPTICAL.T
        if sensor.name == name and not isinstance(sensor, Camera):
            return sensor.T_rig_lidar.double()
    names = ", ".join([RIG, *(sensor.name for sensor in sensors_of(capture))])
    raise ConfigError(f"{path}: mounting.relative_to is '{name}', but must be one of {names}")


def turned(yaw: float, pitch: float, roll: float) -> Tensor:  # [4, 4]; angles in radians
    (cy, cp, cr), (sy, sp, sr) = ([f(a) for a in (yaw, pitch, roll)] for f in (math.cos, math.sin))
    Rz = torch.tensor([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]], dtype=torch.float64)
    Ry = torch.tensor([[cp, 0, -sp], [0, 1, 0], [sp, 0, cp]], dtype=torch.float64)
    Rx = torch.tensor([[1, 0, 0], [0, cr, -sr], [0, sr, cr]], dtype=torch.float64)
    T = torch.eye(4, dtype=torch.float64)
    T[:3, :3] = Rz @ Ry @ Rx
    return T


def angles(
    T: Tensor,  # [4, 4], or a rotation [3, 3]
) -> tuple[float, float, float]:  # radians
    """Yaw, pitch and roll that `turned` makes the rotation from. Straight up or down the roll is zero."""
    R = T[:3, :3].double()
    level = math.hypot(float(R[0, 0]), float(R[1, 0]))
    pitch = math.atan2(float(R[2, 0]), level)
    if level < 1e-9:
        return math.atan2(-float(R[0, 1]), float(R[1, 1])), pitch, 0.0
    return math.atan2(float(R[1, 0]), float(R[0, 0])), pitch, math.atan2(float(R[2, 1]), float(R[2, 2]))
