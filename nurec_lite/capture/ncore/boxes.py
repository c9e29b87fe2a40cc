# SPDX-License-Identifier: Apache-2.0
"""Cuboids of NCore as tracks. Each is seen at one time, in a frame of its own: the world, the rig or a sensor."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nurec_lite.base.names import label_flaw, name_flaw
from nurec_lite.capture.boxes import MOVED
from nurec_lite.capture.ncore.fields import field, numbers, stamp
from nurec_lite.capture.ncore.poses import Poses
from nurec_lite.capture.ncore.sequence import Sequence
from nurec_lite.capture.ncore.store import REMEDY
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.se3 import pose_matrix, quat_multiply, rotvec_to_quat
from nurec_lite.geometry.tracks import Tracks, joined, moves, single_track

MARGIN = 0.05  # seconds
LARGEST = 1000.0  # metres


@dataclass(frozen=True)
class Box:
    """One object at one time."""

    label: str
    stamp: int  # microseconds
    T_world_box: Tensor  # [4, 4]
    size: Tensor  # [3] length, width, height; metres


def read_tracks(sequence: Sequence, poses: Poses) -> Tracks:
    """Objects that move; all objects of a store that we wrote, as they were chosen before."""
    part = sequence.part("cuboids")
    if part is None:
        return Tracks.empty()
    rows = part.attributes("cuboids").get("cuboid_track_observations", [])
    if not isinstance(rows, list):
        raise CaptureError(f"{part}: its observations are no list; {REMEDY}")
    found: dict[str, dict[int, Box]] = {}
    for row in rows:
        known = row if isinstance(row, dict) else {}
        box = _box(known, sequence, poses, f"{part}: an observation")
        found.setdefault(field(known, "track_id", str, str(part)), {}).setdefault(box.stamp, box)
    tracks = [_track(name, list(boxes.values()), k, sequence) for k, (name, boxes) in enumerate(found.items())]
    own = sequence.own
    return joined([t for t in tracks if own or moves(t, MOVED)], MARGIN if own is None else own["margin"])


def _box(row: dict[str, Any], sequence: Sequence, poses: Poses, where: str) -> Box:
    box = field(row, "bbox3", dict, where)
    centre, size, angles = (numbers(box, key, (3,), where) for key in ("centroid", "dim", "rot"))
    if not bool(((size > 0) & (size < LARGEST)).all()):
        raise CaptureError(f"{where} has a box of {size.tolist()} metres; {REMEDY}")
    seen = sequence.seconds(stamp(row, "reference_frame_timestamp_us", where))
    T = poses.world(field(row, "reference_frame_id", str, where), seen) @ pose_matrix(turned(angles), centre)
    return Box(field(row, "class_id", str, where), stamp(row, "timestamp_us", where), T, size)


def turned(
    angles: Tensor,  # [..., 3] radians about the fixed axes x, then y, then z
) -> Tensor:  # [..., 4]
    x, y, z = (rotvec_to_quat(angles[..., k : k + 1] * torch.eye(3, dtype=angles.dtype)[k]) for k in range(3))
    return quat_multiply(z, quat_multiply(y, x))


def _track(name: str, boxes: list[Box], number: int, sequence: Sequence) -> Tracks:
    """Track under its own name and class if files and tables can have them."""
    times = torch.from_numpy(np.array([sequence.seconds(box.stamp) for box in boxes], dtype=np.float64))
    label = boxes[0].label
    return single_track(
        f"track-{number}" if name_flaw(name) else name, "unknown" if label_flaw(label) else label,
        torch.stack([box.size for box in boxes]), times, torch.stack([box.T_world_box for box in boxes]),
    )  # fmt: skip
