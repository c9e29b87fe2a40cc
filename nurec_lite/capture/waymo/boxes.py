# SPDX-License-Identifier: Apache-2.0
"""Boxes of Waymo's that move, as tracks.

A box lies in the vehicle's frame at the frame's pose, and holds when the upper lidar passes it.
"""

import math

import numpy as np
import torch

from nurec_lite.base.names import name_flaw
from nurec_lite.capture.arrow.library import REMEDY
from nurec_lite.capture.arrow.parquet import read_columns
from nurec_lite.capture.boxes import moving_tracks
from nurec_lite.capture.types import CaptureError
from nurec_lite.capture.waymo.rays import frame_poses
from nurec_lite.capture.waymo.segment import STAMP, TURN, Segment
from nurec_lite.geometry.se3 import pose_matrix
from nurec_lite.geometry.tracks import Tracks

BOX, OBJECT = "[LiDARBoxComponent].", "key.laser_object_id"
PLACE = tuple(f"{BOX}box.center.{k}" for k in "xyz")
SIZE = tuple(f"{BOX}box.size.{k}" for k in "xyz")  # length, width, height
HEADING, TYPE = f"{BOX}box.heading", f"{BOX}type"
TYPES = {0: "unknown", 1: "vehicle", 2: "pedestrian", 3: "sign", 4: "cyclist"}


def read_tracks(
    segment: Segment,
    late: float,  # seconds from a stamp to the begin of the upper lidar's turn
) -> Tracks:
    """Tracks of the boxes; none without boxes."""
    path = segment.file("lidar_box")
    if not segment.has("lidar_box"):
        return Tracks.empty()
    kinds = {STAMP: int, OBJECT: str, TYPE: object, HEADING: float, **dict.fromkeys((*PLACE, *SIZE), float)}
    table = read_columns(path, kinds, empty=True)
    if not len(table[STAMP]):
        return Tracks.empty()
    places, sizes = (torch.from_numpy(np.stack([table[k] for k in keys], axis=1)) for keys in (PLACE, SIZE))
    if not bool(((sizes > 0) & (sizes < 100)).all()) or not float(places.abs().max()) < 1e4:
        raise CaptureError(f"{path} has boxes without a size, or far from the vehicle; {REMEDY}")
    poses, _ = frame_poses(segment)
    if not set(table[STAMP].tolist()) <= poses.keys():
        raise CaptureError(f"{segment.file('vehicle_pose')} lacks frames that {path.name} has boxes of; {REMEDY}")
    half = 0.5 * torch.from_numpy(table[HEADING])
    turned = torch.stack([half.cos(), 0 * half, 0 * half, half.sin()], dim=1)
    T_world_box = torch.stack([poses[stamp] for stamp in table[STAMP].tolist()]) @ pose_matrix(turned, places)
    share = ((math.pi - torch.atan2(places[:, 1], places[:, 0])) / math.tau) % 1
    times = torch.from_numpy(segment.seconds(table[STAMP])) + late + TURN * share
    names = [name if name_flaw(name) is None else f"box{name}" for name in table[OBJECT].tolist()]
    return moving_tracks(names, [_type(value) for value in table[TYPE].tolist()], times, T_world_box, sizes)


def _type(value: object) -> str:
    return TYPES.get(value, "unknown") if isinstance(value, int) else str(value).removeprefix("TYPE_").lower()
