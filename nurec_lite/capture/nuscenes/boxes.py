# SPDX-License-Identifier: Apache-2.0
"""Boxes of nuScenes that move, as tracks: key frames are half a second apart, and poses between them are interpolated."""

import os
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.capture.boxes import moving_tracks
from nurec_lite.capture.nuscenes.rays import TURN, seen_at
from nurec_lite.capture.nuscenes.scene import Scene, pose_of
from nurec_lite.capture.nuscenes.tables import REMEDY, Row, by_token, field, rows, vector
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.lidar import Lidar, azimuth_elevation
from nurec_lite.geometry.se3 import invert, transform
from nurec_lite.geometry.tracks import Tracks


@dataclass(frozen=True)
class Box:
    """One object at one key frame."""

    time: float  # seconds
    T_world_box: Tensor  # [4, 4]
    size: list[float]  # length, width, height; metres


def read_tracks(scene: Scene, lidar: Lidar | None) -> Tracks:
    """Tracks of the annotations; none without annotations, as in the test set."""
    if not os.path.lexists(scene.tables / "sample_annotation.json"):
        return Tracks.empty()
    names, boxes = [], []
    for row in rows(scene.tables, "sample_annotation", "sample_token", scene.samples.keys()):
        names.append(field(row, "instance_token", str, "sample_annotation"))
        boxes.append(_box(scene, row, lidar))
    if not boxes:
        return Tracks.empty()
    classes = _classes(scene, set(names))
    times, sizes = (torch.tensor(v, dtype=torch.float64) for v in ([b.time for b in boxes], [b.size for b in boxes]))
    poses = torch.stack([box.T_world_box for box in boxes])
    return moving_tracks(names, [classes[name] for name in names], times, poses, sizes)


def _box(scene: Scene, row: Row, lidar: Lidar | None) -> Box:
    width, length, height = vector(row, "size", 3, "sample_annotation")
    if not 0 < min(width, length, height) <= max(width, length, height) < 100:
        raise CaptureError(f"sample_annotation.json: 'size' of row {row.get('token')} must be metres above 0; {REMEDY}")
    T = pose_of(row, "sample_annotation")
    stamp = field(scene.samples[row["sample_token"]], "timestamp", int, "sample") * 1e-6 - scene.start
    return Box(_passed(scene, stamp, T[:3, 3], lidar), T, [length, width, height])


def _passed(scene: Scene, stamp: float, place: Tensor, lidar: Lidar | None) -> float:
    """The time when the lidar sees the box: a key frame has the stamp of its sweep, which ends the turn."""
    if lidar is None:
        return stamp
    T_world_lidar = scene.path.at(stamp - 0.5 * TURN) @ lidar.T_rig_lidar
    return float(seen_at(azimuth_elevation(transform(invert(T_world_lidar), place[None]))[:, 0], stamp)[0])


def _classes(scene: Scene, names: Collection[str]) -> dict[str, str]:
    categories = by_token(rows(scene.tables, "category"))
    instances = by_token(rows(scene.tables, "instance", "token", names))
    return {
        name: str(categories.get(str(instances.get(name, {}).get("category_token")), {}).get("name", "unknown"))
        for name in names
    }
