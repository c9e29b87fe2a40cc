# SPDX-License-Identifier: Apache-2.0
"""One segment of Waymo's: a parquet file for each component, the path of the vehicle, and when frames were.

The rig is Waymo's vehicle frame: x forward, y left, z up, at the rear axle. A frame's stamp is the time when the upper lidar begins its
turn; the pose of a frame holds at another time, which the files do not say.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nurec_lite.capture.arrow.library import REMEDY, Table
from nurec_lite.capture.arrow.parquet import read_columns
from nurec_lite.capture.choice import chosen_drive
from nurec_lite.capture.files import has_folder
from nurec_lite.capture.trajectory import MERGED_SECONDS, Trajectory
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.se3 import matrix_to_quat, pose_matrix

STAMP, CAMERA, LASER = "key.frame_timestamp_micros", "key.camera_name", "key.laser_name"
CAMERAS = {1: "FRONT", 2: "FRONT_LEFT", 3: "FRONT_RIGHT", 4: "SIDE_LEFT", 5: "SIDE_RIGHT"}
LASERS = {1: "TOP", 2: "FRONT", 3: "SIDE_LEFT", 4: "SIDE_RIGHT", 5: "REAR"}
IMAGE, VEHICLE = "[CameraImageComponent].", "[VehiclePoseComponent].world_from_vehicle.transform"
LONGEST = 3600.0  # seconds of a segment; Waymo's have 20
RIGID = 1e-3  # largest difference of R R^T from the identity, in single precision
TURN = 0.1  # seconds of a turn of the upper lidar
LATEST, STEP = 0.2, 0.002  # seconds: clocks of poses that are tried
DRIVEN = 1.0  # metres that show the offset of a clock


@dataclass(frozen=True, eq=False)
class Segment:
    folder: Path  # that holds the components
    name: str
    start: int  # microseconds of the capture's time 0: the first frame
    stamps: NDArray[np.int64]  # [n] microseconds of the frames, rising
    path: Trajectory
    timed: bool  # poses came with times

    def file(self, component: str) -> Path:
        return self.folder / component / f"{self.name}.parquet"

    def has(self, component: str) -> bool:
        return has_folder(self.folder / component) and os.path.lexists(
            self.file(component)
        )  # a link to nothing is refused as it is read

    def seconds(
        self, micros: NDArray[np.int64]
    ) -> NDArray[np.float64]:  # [n] of the set's clock -> [n] of the capture's
        return np.asarray((micros - self.start) * 1e-6)

    def number(self, stamps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places [n] of frames among those of the segment, by their stamps [n] in microseconds."""
        return np.asarray(np.searchsorted(self.stamps, stamps))


def open_segment(root: Path, drive: str | None) -> Segment:
    folder, name = _find(root, drive)
    paths = {part: folder / part / f"{name}.parquet" for part in ("camera_image", "lidar", "vehicle_pose")}
    found = [read_columns(path, {STAMP: int})[STAMP] for path in paths.values() if os.path.lexists(path)]
    stamps = np.unique(np.concatenate(found))
    if not 0 <= int(stamps[-1]) - int(stamps[0]) < LONGEST * 1e6:
        raise CaptureError(f"{folder}: {name} has frames of more than an hour; {REMEDY}")
    start = int(stamps[0])
    if os.path.lexists(paths["camera_image"]):
        return Segment(folder, name, start, stamps, _path_of_images(paths["camera_image"], start), True)
    if not os.path.lexists(paths["vehicle_pose"]):
        raise CaptureError(f"{folder} has neither camera_image nor vehicle_pose of {name}; download one of them")
    table = read_columns(paths["vehicle_pose"], {STAMP: int, VEHICLE: list})
    poses = poses_of(table, VEHICLE, paths["vehicle_pose"])
    return Segment(
        folder, name, start, stamps, _path((table[STAMP] - start) * 1e-6, poses, paths["vehicle_pose"]), False
    )


def _find(root: Path, drive: str | None) -> tuple[Path, str]:
    if not os.path.isdir(root):
        problem = "is no folder" if os.path.lexists(root) else "does not exist"
        raise CaptureError(f"{root} {problem}; data.root must be the folder that holds camera_image, lidar and so on")
    places = [root, *(path for path in sorted(root.iterdir()) if path.is_dir())]
    parts = [place / part for place in places for part in ("camera_image", "lidar") if has_folder(place / part)]
    known = {path.stem: path for part in parts for path in sorted(part.glob("[!.]*.parquet"))}
    if not known:
        raise CaptureError(
            f"{root} holds no segment of Waymo's version 2, parquet files in camera_image or lidar; correct data.root"
        )
    chosen = chosen_drive(dict(sorted(known.items())), drive, root, "segments")
    return chosen.parent.parent, chosen.stem


def _path_of_images(path: Path, start: int) -> Trajectory:
    pose, time = f"{IMAGE}pose.transform", f"{IMAGE}pose_timestamp"
    table = read_columns(path, {pose: list, time: float})
    return _path(table[time] - start * 1e-6, poses_of(table, pose, path), path)


def _path(seconds: NDArray[np.float64], poses: Tensor, path: Path) -> Trajectory:
    order = np.argsort(seconds, kind="stable")
    times = torch.from_numpy(seconds[order])
    if not float(times.abs().max()) < LONGEST:
        raise CaptureError(f"{path} has poses at other times than its frames; {REMEDY}")
    new = torch.cat([torch.ones(1, dtype=torch.bool), times.diff() > MERGED_SECONDS])
    return Trajectory(times[new], poses[torch.from_numpy(order)][new])


def poses_of(table: Table, name: str, path: Path) -> Tensor:  # [n, 4, 4] of rows of 16 numbers
    values = table[name]
    if values.shape[1] != 16:
        raise CaptureError(f"{path}: '{name}' holds {values.shape[1]} numbers, but a pose has 16; {REMEDY}")
    T = torch.from_numpy(values).view(-1, 4, 4)
    R = T[:, :3, :3]
    rigid = ((R @ R.transpose(1, 2) - torch.eye(3).double()).abs() < RIGID).all() and (torch.linalg.det(R) > 0).all()
    if not bool(rigid) or not float(T[:, :3, 3].abs().max()) < 1e8:
        raise CaptureError(f"{path}: '{name}' holds rows that are no poses; {REMEDY}")
    return pose_matrix(matrix_to_quat(R), T[:, :3, 3])


def named(values: NDArray[np.object_] | NDArray[np.int64], names: dict[int, str]) -> list[str]:
    """Sensors by name: files hold their numbers, or names."""
    return [value if isinstance(value, str) else names.get(int(value), str(value)) for value in values.tolist()]


def clock_of(
    path: Trajectory,
    times: Tensor,  # [n] seconds
    places: Tensor,  # [n, 3] metres, world: where the vehicle was a constant time later
) -> float:  # seconds
    """Delay of the clock in seconds, from the time when the path passes the places. 0 where the vehicle hardly
    moves."""
    if not len(times) or float((places - places[0]).norm(dim=1).max()) < DRIVEN:
        return 0.0
    steps = torch.arange(-LATEST, LATEST + STEP, STEP, dtype=torch.float64)
    far = (path.at(times + steps[:, None])[..., :3, 3] - places).norm(dim=-1).mean(dim=1)
    return round(float(steps[far.argmin()]), 6)
