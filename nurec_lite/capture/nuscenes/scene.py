# SPDX-License-Identifier: Apache-2.0
"""One scene of nuScenes: its files by sensor, where sensors sit, and the path of the vehicle.

The rig is nuScenes' ego frame: x forward, y left, z up, at the middle of the rear axle. Its poses are of a localisation in the plane:
z is 0 throughout.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from nurec_lite.capture.choice import chosen_drive
from nurec_lite.capture.files import short
from nurec_lite.capture.nuscenes.tables import REMEDY, Row, by_token, field, rows, vector
from nurec_lite.capture.trajectory import Trajectory
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.se3 import pose_matrix

LIDAR = "LIDAR_TOP"
CAMERAS = ("CAM_FRONT", "CAM_FRONT_LEFT", "CAM_FRONT_RIGHT", "CAM_BACK", "CAM_BACK_LEFT", "CAM_BACK_RIGHT")
Value = TypeVar("Value")
LONGEST = 3600.0  # seconds of a scene; nuScenes' have 20


@dataclass(frozen=True)
class File:
    """One image or sweep."""

    path: Path
    stamp: float  # seconds since the scene's time 0
    row: Row  # of sample_data


@dataclass(frozen=True, eq=False)
class Scene:
    root: Path
    tables: Path
    name: str
    samples: dict[str, Row]  # key frames by token
    start: float  # seconds of Unix time at the capture's time 0
    path: Trajectory
    files: dict[str, list[File]]  # by channel, in time order
    mountings: dict[str, Tensor]  # T_rig_sensor [4, 4] by channel
    lenses: dict[str, list[list[float]]]  # camera_intrinsic by channel
    absent: int  # files that tables name and that are not there


def open_scene(
    root: Path,  # the folder that holds samples, sweeps and the tables; or the tables, or the folder above
    name: str | None,  # or its place among the scenes; None: the only one
) -> Scene:
    root = _root_of(root)
    tables, found = _find(root, name)
    samples = by_token(rows(tables, "sample", "scene_token", {field(found, "token", str, "scene")}))
    if not samples:
        raise CaptureError(f"{tables / 'sample.json'} has no row of {found['name']}; {REMEDY}")
    channels = {token: str(row.get("channel")) for token, row in by_token(rows(tables, "sensor")).items()}
    data = list(rows(tables, "sample_data", "sample_token", samples.keys()))
    sensors = by_token(
        rows(tables, "calibrated_sensor", "token", {str(row.get("calibrated_sensor_token")) for row in data})
    )
    poses = by_token(rows(tables, "ego_pose", "token", {str(row.get("ego_pose_token")) for row in data}))
    start, path = _path(poses, tables)
    files: dict[str, list[File]] = {}
    mountings, lenses, absent = dict[str, Tensor](), {}, 0
    for row in sorted(data, key=lambda row: int(field(row, "timestamp", int, "sample_data"))):
        sensor = _named(sensors, row, "calibrated_sensor")
        channel = _named(channels, sensor, "sensor")
        if channel not in (LIDAR, *CAMERAS):
            continue
        file, T_rig_sensor = _file(root, row, start), pose_of(sensor, "calibrated_sensor")
        _named(poses, row, "ego_pose")
        if not os.path.isfile(file.path):  # also where the name is too long
            absent += 1
            continue
        files.setdefault(channel, []).append(file)
        if not torch.equal(mountings.setdefault(channel, T_rig_sensor), T_rig_sensor):
            raise CaptureError(f"calibrated_sensor.json has two places of {channel} in {found['name']}; {REMEDY}")
        lenses[channel] = sensor.get("camera_intrinsic", [])
    _check_posed(path, [file.stamp for own in files.values() for file in own], tables / "sample_data.json")
    _check_posed(path, [_seconds(row, "sample", start) for row in samples.values()], tables / "sample.json")
    if LIDAR not in files and not set(CAMERAS) & set(files):
        raise CaptureError(
            f"{root} holds none of the {absent} files of {found['name']}; download its samples, or choose another by data.drive"
        )
    return Scene(root, tables, str(found["name"]), samples, start, path, files, mountings, lenses, absent)


def _named(table: Mapping[str, Value], row: Row, name: str) -> Value:
    """The row of a table that another row names."""
    token = str(row.get(f"{name}_token"))
    if token not in table:
        raise CaptureError(f"{name}.json has no row of the token {short(token)}, which another table names; {REMEDY}")
    return table[token]


def _root_of(root: Path) -> Path:
    """Returns the folder above the tables: people name the tables, or unpack an archive into a folder that is called like them."""
    if not os.path.isdir(root):
        return root
    near = (root, root.absolute().parent, *(path for path in sorted(root.glob("v1.0-*")) if path.is_dir()))
    return next((place for place in near if any(place.glob("v1.0-*/scene.json"))), root)


def _find(root: Path, name: str | None) -> tuple[Path, Row]:
    """The tables that know the scene, and its row."""
    if not os.path.isdir(root):
        problem = "is no folder" if os.path.lexists(root) else "does not exist"
        raise CaptureError(
            f"{root} {problem}; data.root must be the folder that holds samples and v1.0-mini, v1.0-trainval or v1.0-test"
        )
    folders = sorted(path for path in root.glob("v1.0-*") if path.is_dir() and any(path.iterdir()))
    if not folders:
        raise CaptureError(
            f"{root} holds no tables such as v1.0-mini; data.root must be the folder that holds samples and the tables"
        )
    known: dict[str, tuple[Path, Row]] = {}
    for folder in folders:
        for row in rows(folder, "scene"):
            known.setdefault(field(row, "name", str, "scene"), (folder, row))
    return chosen_drive(known, name, root, "scenes")


def _file(root: Path, row: Row, start: float) -> File:
    name = field(row, "filename", str, "sample_data")
    path = Path(name)
    if path.is_absolute() or ".." in path.parts or not name.isprintable():
        raise CaptureError(f"sample_data.json names the file '{short(name)}', which lies elsewhere; {REMEDY}")
    return File(root / path, _seconds(row, "sample_data", start), row)


def _seconds(row: Row, table: str, start: float) -> float:
    return float(field(row, "timestamp", int, table) * 1e-6 - start)


def _check_posed(path: Trajectory, times: list[float], table: Path) -> None:
    if not path.reaches(torch.tensor(times, dtype=torch.float64)):
        raise CaptureError(f"{table} has rows at other times than the scene's poses in ego_pose.json; {REMEDY}")


def _path(poses: dict[str, Row], tables: Path) -> tuple[float, Trajectory]:
    found = {field(row, "timestamp", int, "ego_pose"): row for row in poses.values()}
    if not found or (max(found) - min(found)) * 1e-6 > LONGEST:
        raise CaptureError(f"{tables / 'ego_pose.json'} has no poses of the scene, or of more than an hour; {REMEDY}")
    stamps = sorted(found)
    start = stamps[0] * 1e-6 - 0.1  # before the first sweep begins
    times = torch.tensor([(stamp - stamps[0]) * 1e-6 + 0.1 for stamp in stamps], dtype=torch.float64)
    return start, Trajectory(times, torch.stack([pose_of(found[stamp], "ego_pose") for stamp in stamps]))


def pose_of(row: Row, table: str) -> Tensor:  # [4, 4]
    q = torch.tensor(vector(row, "rotation", 4, table), dtype=torch.float64)
    if not 0.5 < float(q.norm()) < 2:
        raise CaptureError(f"{table}.json: 'rotation' of row {short(row.get('token'))} is no quaternion; {REMEDY}")
    return pose_matrix(q / q.norm(), torch.tensor(vector(row, "translation", 3, table), dtype=torch.float64))
