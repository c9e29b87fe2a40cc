# SPDX-License-Identifier: Apache-2.0
"""Measurements of the oxts unit of a KITTI drive: velocities, attitudes and positions.

A row of oxts holds 30 numbers: latitude, longitude, altitude, roll, pitch, yaw, velocities to the north and east, and, from the ninth on,
forward, left and up, parallel to the ground. Rows without these numbers are left out: poses come from the first six.
"""

import math
from pathlib import Path

import torch

from nurec_lite.capture.files import numbers
from nurec_lite.capture.kitti.poses import Clock, euler_matrix, map_positions, oxts_rows
from nurec_lite.capture.measured import Measured
from nurec_lite.geometry.se3 import matrix_to_quat

COLUMNS = 11  # numbers that are needed of a row
FASTEST = 150.0  # metres a second


def read_measured(
    folder: Path,  # oxts
    clock: Clock,
) -> Measured | None:  # None: fewer than two rows hold velocities
    rows = {frame: row for frame, text in oxts_rows(folder) if (row := _velocities(text)) is not None}
    frames = [frame for frame in rows if frame in clock.stamped(folder / "timestamps.txt")]
    if len(frames) < 2:
        return None
    values = torch.tensor([rows[frame] for frame in frames], dtype=torch.float64)
    positions, (roll, pitch, yaw, *ways) = map_positions(values[:, :3]), values[:, 3:].unbind(1)
    times = clock.seconds(folder / "timestamps.txt", frames)
    attitudes, level = euler_matrix(roll, pitch, yaw), euler_matrix(torch.zeros_like(yaw), torch.zeros_like(yaw), yaw)
    velocities = (attitudes.transpose(1, 2) @ level @ torch.stack(ways, dim=1)[..., None])[..., 0]
    return Measured(times, velocities=velocities, attitudes=matrix_to_quat(attitudes), positions=positions)


def _velocities(text: str) -> list[float] | None:
    """Numbers of a row: latitude and longitude in degrees, altitude in metres; roll, pitch, yaw in radians; forward, left, up in metres a
    second. None: it lacks some of them."""
    try:
        row = numbers(" ".join(text.split()[:COLUMNS]))
    except ValueError:
        return None
    known = len(row) == COLUMNS and max(map(abs, row[8:])) < FASTEST and max(map(abs, row[3:6])) <= 2 * math.pi
    return [*row[:6], *row[8:]] if known and abs(row[0]) < 90 else None
