# SPDX-License-Identifier: Apache-2.0
"""Cuboids of PandaSet that move, as tracks. A box holds at the time at which the revolution passes its middle."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nurec_lite.capture.pandaset.rays import seen_at
from nurec_lite.capture.pandaset.sequence import TURN, Sequence
from nurec_lite.capture.pandaset.tables import numbers, read_table
from nurec_lite.geometry.lidar import Lidar, azimuth_elevation
from nurec_lite.geometry.se3 import invert, transform
from nurec_lite.geometry.tracks import Tracks

PLACE = ("position.x", "position.y", "position.z")
SIZE = ("dimensions.y", "dimensions.x", "dimensions.z")  # length, width, height: PandaSet's x is the width
MARGIN = 0.05  # metres
_OTHER_LIDAR = 1  # cuboids.sensor_id of what the PandarGT sees; boxes that both see are there twice


@dataclass(frozen=True)
class Cuboid:
    """One object in one revolution."""

    time: float  # seconds
    place: NDArray[np.float64]  # [3] world, metres
    size: NDArray[np.float64]  # [3] length, width, height; metres
    yaw: float  # radians about z, of the y axis, along which the length lies


def read_tracks(
    sequence: Sequence,
    files: dict[int, Path],  # number of a revolution -> its cuboids
    lidar: Lidar,
) -> Tracks:
    found: dict[str, list[Cuboid]] = {}
    classes: dict[str, str] = {}
    for number, path in files.items():
        table = read_table(path, ("uuid", "label", "yaw", "stationary", *PLACE, *SIZE))
        places, sizes = numbers(table, path, PLACE), numbers(table, path, SIZE)
        yaws = numbers(table, path, ("yaw",))[:, 0]
        moving = ~table["stationary"].astype(bool)
        if "cuboids.sensor_id" in table:
            moving &= numbers(table, path, ("cuboids.sensor_id",))[:, 0] != _OTHER_LIDAR
        times = _passed(sequence, number, torch.from_numpy(places), lidar)
        for row in np.flatnonzero(moving):
            name = str(table["uuid"][row])
            found.setdefault(name, []).append(Cuboid(float(times[row]), places[row], sizes[row], float(yaws[row])))
            classes[name] = str(table["label"][row])
    return _tracks(found, classes)


def _passed(sequence: Sequence, number: int, places: Tensor, lidar: Lidar) -> Tensor:  # [n, 3] -> [n] seconds
    end = float(sequence.ends[number])
    middle = sequence.path.at(end - 0.5 * TURN)
    return seen_at(lidar, azimuth_elevation(transform(invert(middle), places))[:, 0], end)


def _tracks(found: dict[str, list[Cuboid]], classes: dict[str, str]) -> Tracks:
    if not found:
        return Tracks.empty()
    rows = [box for boxes in found.values() for box in sorted(boxes, key=lambda box: box.time)]
    yaw = torch.tensor([box.yaw for box in rows], dtype=torch.float64) + 0.5 * math.pi
    none = torch.zeros_like(yaw)
    return Tracks(
        ids=tuple(found),
        classes=tuple(classes[name] for name in found),
        sizes=torch.tensor(np.array([np.median([box.size for box in boxes], axis=0) for boxes in found.values()])),
        offsets=tuple(np.cumsum([0, *map(len, found.values())]).tolist()),
        times=torch.tensor([box.time for box in rows], dtype=torch.float64),
        translations=torch.tensor(np.array([box.place for box in rows])),
        quaternions=torch.stack([(yaw / 2).cos(), none, none, (yaw / 2).sin()], dim=1),
        margin=MARGIN,
    )
