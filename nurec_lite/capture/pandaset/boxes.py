# SPDX-License-Identifier: Apache-2.0
"""Cuboids of PandaSet that move, as tracks. A box holds at the time when the revolution passes its middle."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nurec_lite.capture.pandaset.rays import seen_at
from nurec_lite.capture.pandaset.sequence import TURN, Sequence
from nurec_lite.capture.pandaset.tables import numbers, read_table, texts
from nurec_lite.geometry.lidar import Lidar, azimuth_elevation
from nurec_lite.geometry.se3 import invert, pose_matrix, rotvec_to_quat, transform
from nurec_lite.geometry.tracks import Tracks, joined, single_track

PLACE = ("position.x", "position.y", "position.z")
SIZE = ("dimensions.y", "dimensions.x", "dimensions.z")  # length, width, height: PandaSet's x is the width
MARGIN = 0.05  # metres
_OTHER_LIDAR = 1  # cuboids.sensor_id of the PandarGT; boxes that both lidars see are there twice


@dataclass(frozen=True)
class Cuboid:
    """One object in one revolution."""

    time: float  # seconds
    place: NDArray[np.float64]  # [3] world, metres
    size: NDArray[np.float64]  # [3] length, width, height; metres
    yaw: float  # radians about z, of the y axis, the axis of the length


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
        moving = numbers(table, path, ("stationary",))[:, 0] == 0
        uuids, labels = texts(table, path, "uuid"), texts(table, path, "label")
        if "cuboids.sensor_id" in table:
            moving &= numbers(table, path, ("cuboids.sensor_id",))[:, 0] != _OTHER_LIDAR
        times = _passed(sequence, number, torch.from_numpy(places), lidar)
        for row in np.flatnonzero(moving):
            name = uuids[row]
            found.setdefault(name, []).append(Cuboid(float(times[row]), places[row], sizes[row], float(yaws[row])))
            classes[name] = labels[row]
    return joined([_track(name, classes[name], boxes) for name, boxes in found.items()], MARGIN)


def _passed(sequence: Sequence, number: int, places: Tensor, lidar: Lidar) -> Tensor:  # [n, 3] -> [n] seconds
    end = float(sequence.ends[number])
    middle = sequence.path.at(end - 0.5 * TURN)
    return seen_at(lidar, azimuth_elevation(transform(invert(middle), places))[:, 0], end)


def _track(name: str, label: str, boxes: list[Cuboid]) -> Tracks:
    yaw = torch.tensor([box.yaw for box in boxes], dtype=torch.float64) + 0.5 * math.pi
    turns = rotvec_to_quat(torch.stack([0 * yaw, 0 * yaw, yaw], dim=1))
    poses = pose_matrix(turns, torch.from_numpy(np.array([box.place for box in boxes])))
    sizes = torch.from_numpy(np.array([box.size for box in boxes]))
    return single_track(name, label, sizes, torch.tensor([box.time for box in boxes], dtype=torch.float64), poses)
