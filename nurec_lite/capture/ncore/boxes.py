# SPDX-License-Identifier: Apache-2.0
"""Cuboids of NCore as tracks. Each is seen at one time, in a frame of its own: the world, the rig or a sensor."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nurec_lite.base.names import label_flaw, of_other_program
from nurec_lite.capture.boxes import MOVED, repeated_boxes
from nurec_lite.capture.ncore.fields import field, numbers, stamp
from nurec_lite.capture.ncore.poses import Poses
from nurec_lite.capture.ncore.sequence import Sequence
from nurec_lite.capture.ncore.store import REMEDY
from nurec_lite.capture.types import CaptureError, Doubt
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


def read_tracks(sequence: Sequence, poses: Poses) -> tuple[Tracks, list[Doubt]]:
    """Objects that move; all objects of a store that we wrote, as they were chosen before. And findings about boxes that are not read."""
    part, groups = sequence.part("cuboids"), list(sequence.parts("cuboids"))
    if part is None:
        sentence = f"Boxes of {', '.join(groups)} are not read: none of these groups is called default."
        return Tracks.empty(), [Doubt("cuboids", False, sentence, "store those that are right as default")] * bool(
            groups
        )
    rows = part.attributes("cuboids").get("cuboid_track_observations", [])
    if not isinstance(rows, list):
        raise CaptureError(f"{part}: its observations are no list; {REMEDY}")
    found: dict[str, dict[int, Box]] = {}
    for row in rows:
        known = row if isinstance(row, dict) else {}
        box = _box(known, sequence, poses, f"{part}: an observation")
        found.setdefault(field(known, "track_id", str, str(part)), {}).setdefault(box.stamp, box)
    names = of_other_program(list(found))
    tracks = [_track(name, list(boxes.values()), sequence) for name, boxes in zip(names, found.values(), strict=True)]
    own = sequence.own
    chosen = joined([t for t in tracks if own or moves(t, MOVED)], MARGIN if own is None else own["margin"])
    return chosen, list(repeated_boxes(str(part), len(rows) - sum(map(len, found.values()))))


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


def _track(name: str, boxes: list[Box], sequence: Sequence) -> Tracks:
    times = torch.from_numpy(np.array([sequence.seconds(box.stamp) for box in boxes], dtype=np.float64))
    label = "unknown" if label_flaw(boxes[0].label) else boxes[0].label
    sizes, poses = torch.stack([box.size for box in boxes]), torch.stack([box.T_world_box for box in boxes])
    return single_track(name, label, sizes, times, poses)
