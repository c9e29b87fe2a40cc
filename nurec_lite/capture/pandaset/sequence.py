# SPDX-License-Identifier: Apache-2.0
"""Files of a sequence of PandaSet: folders, calibration, time stamps and the path of the rig.

The rig is the Pandar64 with x forward. Its pose is that of the front camera times the camera's extrinsic calibration:
`lidar/poses.json` is another place of the car, 0.5 to 0.8 m behind and 1.85 m below.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.texts import parse_json
from nurec_lite.capture.choice import chosen_drive, numbered_drive
from nurec_lite.capture.files import read_bytes, short
from nurec_lite.capture.trajectory import Trajectory
from nurec_lite.capture.types import CaptureError
from nurec_lite.capture.yaml_files import read_yaml
from nurec_lite.geometry.se3 import invert, pose_matrix

CALIBRATION = "static_extrinsic_calibration.yaml"
FRONT, GT = "front_camera", "front_gt"  # the latter is the PandarGT
TURN = 0.1  # seconds of a revolution
FARTHEST_STAMP = 3600.0  # seconds between the first and the last stamp of a sequence; PandaSet's last 8
RESTORE = "restore the file"
# the rig looks along -y of the Pandar64; its x points left
T_PANDAR_RIG = torch.tensor([[0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Sequence:
    folder: Path
    start: float  # Unix seconds: begin of the first revolution
    path: Trajectory  # of the rig, seconds since the start
    ends: Tensor  # [n] seconds: ends of the revolutions
    mountings: dict[str, Tensor]  # T_rig_sensor [4, 4]
    leading: str  # the camera whose poses give the path


def find_sequence(
    root: Path,
    drive: str | None,  # name of a sequence, or its place among them
) -> Path:
    """The folder itself where it is a sequence, else the one of its sequences that is named, or the only one."""
    if not os.path.isdir(root):
        problem = "is no folder" if os.path.lexists(root) else "does not exist"
        raise CaptureError(f"{root} {problem}; data.root must be the folder of a sequence, or of several")
    if _is_sequence(root):
        return root
    known = {path.name: path for path in sorted(root.iterdir()) if _is_sequence(path)}
    if not known:
        raise CaptureError(
            f"{root} holds no sequence of PandaSet, a folder with camera and lidar in it; correct data.root"
        )
    return chosen_drive(known, numbered_drive(known, drive), root, "sequences")


def _is_sequence(folder: Path) -> bool:
    return (folder / "camera").is_dir() and (folder / "lidar").is_dir()


def cameras_of(folder: Path) -> list[str]:
    """Folders of cameras; an empty one is no camera."""
    return sorted(path.name for path in (folder / "camera").iterdir() if path.is_dir() and any(path.iterdir()))


def open_sequence(
    folder: Path,
    sensors: tuple[str, ...],  # their mountings are needed, and the front camera's
) -> Sequence:
    calibration = _calibration_file(folder)
    known = _entries(calibration)
    leading = _leading(folder)
    mountings = {name: _mounting(known, name, calibration) for name in {leading, *sensors}}
    ends = stamps_of(folder / "lidar/timestamps.json")
    start = float(ends[0]) - TURN
    front = folder / "camera" / leading
    times, poses = stamps_of(front / "timestamps.json"), _poses(front / "poses.json")
    if len(times) != len(poses):
        raise CaptureError(
            f"{front / 'poses.json'} has {len(poses)} poses, but timestamps.json next to it {len(times)} times; restore both"
        )
    path = Trajectory(times - start, poses @ invert(mountings[leading]))
    sequence = Sequence(folder, start, path, ends - start, mountings, leading)
    check_posed(sequence, sequence.ends, folder / "lidar/timestamps.json")
    return sequence


def _leading(folder: Path) -> str:
    """Returns the front camera, or, where it is not there, another one: poses of all cameras agree within 2 cm."""
    there = cameras_of(folder)
    return FRONT if FRONT in there or not there else there[0]


def check_posed(sequence: Sequence, times: Tensor, path: Path) -> None:  # [n] seconds
    if not sequence.path.reaches(times):
        raise CaptureError(
            f"{path} has other times than the poses of {sequence.leading}; restore the poses and times of this sequence"
        )


def stamps_of(path: Path) -> Tensor:  # [n] Unix seconds, rising
    values = read_json_file(path)
    if not isinstance(values, list) or not values or not all(type(v) in (int, float) for v in values):
        raise CaptureError(f"{path} must be a list of seconds; {RESTORE}")
    times = torch.tensor(values, dtype=torch.float64)
    if not bool((times.diff() > 0).all()) or not float(times[-1] - times[0]) < FARTHEST_STAMP:
        raise CaptureError(f"{path} must hold rising times of less than an hour in all; {RESTORE}")
    return times


def read_json_file(path: Path) -> Any:
    data = read_bytes(path, RESTORE)
    try:
        return parse_json(data)
    except ValueError as error:
        raise CaptureError(f"{path} is no JSON ({short(error)}); {RESTORE}") from error


def _calibration_file(folder: Path) -> Path:
    """The calibration's file next to the sequence, or next to all sequences."""
    path = next(
        (
            place / CALIBRATION
            for place in (folder, folder.parent, folder.parent.parent)
            if (place / CALIBRATION).is_file()
        ),
        None,
    )
    if path is None:
        raise CaptureError(
            f"{folder.parent / CALIBRATION} does not exist; copy it there from the folder docs of PandaSet's development kit"
        )
    return path


def _entries(path: Path) -> dict[str, Any]:
    known = read_yaml(path, RESTORE)
    if not isinstance(known, dict):
        raise CaptureError(f"{path} must have an entry for each sensor; {RESTORE}")
    return known


def _mounting(known: dict[str, Any], name: str, path: Path) -> Tensor:  # [4, 4] T_rig_cam
    try:
        values = known[name]["extrinsic"]["transform"]
        T_cam_pandar = _pose(values["rotation"], values["translation"])
    except (KeyError, TypeError, ValueError) as error:
        raise CaptureError(f"{path} has no extrinsic.transform of {name}; {RESTORE}") from error
    return invert(T_PANDAR_RIG) @ invert(T_cam_pandar)


def _poses(path: Path) -> Tensor:  # [n, 4, 4] T_world_sensor
    rows = read_json_file(path)
    try:
        return torch.stack([_pose(row["heading"], row["position"]) for row in rows])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CaptureError(f"{path} must be a list of poses with position and heading; {RESTORE}") from error


def _pose(turn: dict[str, float], place: dict[str, float]) -> Tensor:  # [4, 4]
    q = torch.tensor([float(turn[k]) for k in "wxyz"], dtype=torch.float64)
    t = torch.tensor([float(place[k]) for k in "xyz"], dtype=torch.float64)
    if not bool(q.isfinite().all() & t.isfinite().all()) or not 0.5 < float(q.norm()) < 2:
        raise ValueError("no rotation")
    return pose_matrix(q / q.norm(), t)
