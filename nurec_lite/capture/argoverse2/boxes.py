# SPDX-License-Identifier: Apache-2.0
"""Boxes of Argoverse 2 that move, as tracks.

A box lies in the vehicle's frame at the stamp of a sweep, and holds at the time when the lidars pass it.
"""

import math
import os
from collections.abc import Sequence

import torch
from torch import Tensor

from nurec_lite.capture.argoverse2.log import POSE, Log, poses_of, seconds_of
from nurec_lite.capture.argoverse2.rays import TURN, Pattern
from nurec_lite.capture.arrow.feather import read_feather
from nurec_lite.capture.arrow.library import REMEDY
from nurec_lite.capture.boxes import moving_tracks
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.lidar import azimuth_elevation
from nurec_lite.geometry.se3 import invert, transform
from nurec_lite.geometry.tracks import Tracks

SIZE = {name: float for name in ("length_m", "width_m", "height_m")}
COLUMNS = {"timestamp_ns": int, "track_uuid": str, "category": str, **SIZE, **POSE}


def read_tracks(
    log: Log,
    patterns: Sequence[Pattern],  # of the lidars that are read
) -> Tracks:
    """Tracks of the annotations; none without annotations, as in the test set."""
    path = log.folder / "annotations.feather"
    if not os.path.lexists(path):
        return Tracks.empty()
    table = read_feather(path, COLUMNS, empty=True)
    sizes = torch.stack([torch.from_numpy(table[name]) for name in SIZE], dim=1)
    if not bool(((sizes > 0) & (sizes < 100)).all()):
        raise CaptureError(f"{path} has boxes with sizes that are not above 0 m; {REMEDY}")
    if not len(sizes):
        return Tracks.empty()
    T_rig_box, stamps = poses_of(table, path), seconds_of(log, table["timestamp_ns"])
    if not log.path.reaches(stamps):
        raise CaptureError(f"{path} has boxes at other times than city_SE3_egovehicle.feather; {REMEDY}")
    poses, times = log.path.at(stamps) @ T_rig_box, stamps + _passed(T_rig_box[:, :3, 3], patterns)
    return moving_tracks(table["track_uuid"].tolist(), table["category"].tolist(), times, poses, sizes)


def _passed(
    places: Tensor, patterns: Sequence[Pattern]
) -> Tensor:  # [n, 3] of the rig at the stamp -> [n] seconds since it
    """Seconds until the lidars look there, the mean of the lidars: a box is drawn around the points of both."""
    passed = torch.zeros(len(places), dtype=torch.float64)
    for pattern in patterns:
        azimuth = azimuth_elevation(transform(invert(pattern.lidar.T_rig_lidar), places))[:, 0]
        turned = ((pattern.lidar.azimuth_start - azimuth) * TURN / math.tau) % TURN
        passed += (pattern.begin + turned) / len(patterns)
    return passed
