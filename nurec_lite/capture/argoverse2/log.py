# SPDX-License-Identifier: Apache-2.0
"""Files of one log of Argoverse 2: where sensors sit, the path of the vehicle, and files by their time stamps.

The rig is Argoverse's vehicle frame: x forward, y left, z up, at the rear axle. Stamps are whole nanoseconds.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nurec_lite.capture.arrow.feather import read_feather
from nurec_lite.capture.arrow.library import REMEDY, Table, check_once
from nurec_lite.capture.choice import chosen_drive
from nurec_lite.capture.files import has_folder
from nurec_lite.capture.trajectory import MERGED_SECONDS, Trajectory
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.se3 import pose_matrix

POSE = {name: float for name in ("qw", "qx", "qy", "qz", "tx_m", "ty_m", "tz_m")}
LONGEST = 3600.0  # seconds of a log; Argoverse's have 16


@dataclass(frozen=True, eq=False)
class Log:
    folder: Path
    start: int  # nanoseconds at the capture's time 0, which is the first pose
    path: Trajectory
    mountings: dict[str, Tensor]  # T_rig_sensor [4, 4]

    def seconds(self, stamp: int) -> float:
        return (stamp - self.start) * 1e-9


def find_log(
    root: Path,  # a log, or a folder that holds several, or their splits train, val and test
    drive: str | None,
) -> Path:
    if not os.path.isdir(root):
        problem = "is no folder" if os.path.lexists(root) else "does not exist"
        raise CaptureError(f"{root} {problem}; data.root must be the folder of a log, or of several")
    if _is_log(root):
        return root
    places = [path for path in sorted(root.iterdir()) if path.is_dir()]
    inner = [path for place in places if not _is_log(place) for path in sorted(place.iterdir()) if path.is_dir()]
    known = {path.name: path for path in (*places, *inner) if _is_log(path)}
    if not known:
        raise CaptureError(
            f"{root} holds no log of Argoverse 2, a folder with city_SE3_egovehicle.feather and calibration in it; correct data.root"
        )
    return chosen_drive(known, drive, root, "logs")


def _is_log(folder: Path) -> bool:
    return (folder / "city_SE3_egovehicle.feather").is_file() and (folder / "calibration").is_dir()


def open_log(folder: Path) -> Log:
    path = folder / "calibration/egovehicle_SE3_sensor.feather"
    table = read_feather(path, {"sensor_name": str, **POSE})
    check_once(table["sensor_name"].tolist(), path)
    mountings = dict(zip(table["sensor_name"].tolist(), poses_of(table, path), strict=True))
    start, trajectory = _path(folder / "city_SE3_egovehicle.feather")
    return Log(folder, start, trajectory, mountings)


def _path(path: Path) -> tuple[int, Trajectory]:
    table = read_feather(path, {"timestamp_ns": int, **POSE})
    order = np.argsort(table["timestamp_ns"], kind="stable")
    stamps, poses = table["timestamp_ns"][order], poses_of(table, path)[torch.from_numpy(order)]
    times = torch.from_numpy((stamps - stamps[0]) * 1e-9)
    if not 0 <= float(times[-1]) < LONGEST:
        raise CaptureError(f"{path} has poses of more than an hour; {REMEDY}")
    new = torch.cat([torch.ones(1, dtype=torch.bool), times.diff() > MERGED_SECONDS])  # some lie 1 ns apart
    return int(stamps[0]), Trajectory(times[new], poses[new])


def poses_of(table: Table, path: Path) -> Tensor:  # [n, 4, 4]
    values = torch.from_numpy(np.stack([table[name] for name in POSE], axis=1))
    q, place = values[:, :4], values[:, 4:]
    length = q.norm(dim=1, keepdim=True)
    if not bool(((length > 0.5) & (length < 2)).all()) or not float(place.abs().max()) < 1e8:
        raise CaptureError(f"{path} has rows that are no poses; {REMEDY}")
    return pose_matrix(q / length, place)


def stamped_files(
    log: Log,
    folder: Path,
    fits: Callable[[Path], bool],  # whether a file is one of the sensor's
) -> dict[int, Path]:  # by nanoseconds, in time order
    """Files of one sensor; none where the folder is missing."""
    if not has_folder(folder):
        return {}
    found = {int(p.stem): p for p in sorted(folder.iterdir()) if fits(p) and re.fullmatch(r"[0-9]{1,18}", p.stem)}
    files = dict(sorted(found.items()))
    for stamp in (min(files), max(files)) if files else ():
        if not log.path.reaches(torch.tensor([log.seconds(stamp)])):
            raise CaptureError(
                f"{files[stamp]} lies outside of the times of city_SE3_egovehicle.feather; restore the poses of this log"
            )
    return files


def seconds_of(log: Log, stamps: NDArray[np.int64]) -> Tensor:  # [n] -> [n]
    return torch.from_numpy((stamps - log.start) * 1e-9)
