# SPDX-License-Identifier: Apache-2.0
"""One drive of KITTI-360: its folders, the times of its sensors, and the path of the rig.

`cam0_to_world.txt` has poses of frames while the car moved. Between two of them a car stood still, or hardly moved; frames
elsewhere have no pose.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nurec_lite.capture.choice import chosen_drive
from nurec_lite.capture.files import natural, numbers, read_lines, short
from nurec_lite.capture.kitti.calibration import is_rotation
from nurec_lite.capture.kitti.poses import FARTHEST, SECOND, read_times
from nurec_lite.capture.kitti360.calibration import CAMERAS, FISHEYE, Calibration, checked_pose, open_calibration
from nurec_lite.capture.trajectory import Trajectory
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.se3 import invert

IMAGES, SCANS, POSES = "data_2d_raw", "data_3d_raw", "data_poses"
RESTORE = "restore the file"
PAUSE = 0.5  # seconds between two poses that follow one another in a drive that moves
STOOD = 1.0  # metres that the car may have moved in a longer pause
BEYOND = 0.11  # seconds before the first and after the last pose: a turn


@dataclass(frozen=True, eq=False)
class Drive:
    root: Path
    name: str  # 2013_05_28_drive_0000_sync
    calibration: Calibration
    start: np.datetime64  # at the capture's time 0
    path: Trajectory  # of the rig
    frames: Tensor  # [n] int64 number of the frame of each pose

    def seconds(self, path: Path) -> NDArray[np.float64]:
        """Returns the times of a sensor's frames, NaN where a frame has none."""
        return np.asarray((read_times(path) - self.start) / SECOND)

    def posed(self, start: Tensor, end: Tensor) -> Tensor:  # [n], [n] seconds -> [n] bool
        """Whether the rig's pose is known from start to end."""
        return self._known(start) & self._known(end)

    def _known(self, times: Tensor) -> Tensor:  # [n] bool
        keys = self.path.times
        i = (torch.searchsorted(keys, times.contiguous(), right=True) - 1).clamp(0, max(0, len(keys) - 2))
        j = (i + 1).clamp(max=len(keys) - 1)
        pause, way = keys[j] - keys[i], (self.path.poses[j] - self.path.poses[i])[:, :3, 3].norm(dim=1)
        near = torch.minimum((times - keys[i]).abs(), (times - keys[j]).abs()) <= BEYOND
        inside = (keys[0] <= times) & (times <= keys[-1])
        return times.isfinite() & (near | (inside & ((pause <= PAUSE) | (way <= STOOD))))


def open_drive(
    root: Path,  # the folder of KITTI-360
    name: str | None,  # of a drive, its number, or its place among the drives
) -> Drive:
    folder = find_drive(root, name)
    calibration = open_calibration(root / "calibration")
    stamps = _stamps_of_poses(folder)
    times = read_times(stamps)
    known = np.flatnonzero(~np.isnat(times))
    if not len(known):
        raise CaptureError(f"{stamps} holds no time; {RESTORE}")
    start = times[known[0]]
    frames, poses = _poses(root / POSES / folder.name / "cam0_to_world.txt", calibration)
    frames, path = _path((times - start) / SECOND, frames, poses)
    return Drive(root, folder.name, calibration, start, path, frames)


def _stamps_of_poses(folder: Path) -> Path:
    """Returns the times of camera 0, or those of another camera where camera 0 is not downloaded: all are triggered together."""
    paths = [folder / name / "timestamps.txt" for name in (*CAMERAS, *FISHEYE)]
    return next((path for path in paths if os.path.lexists(path)), paths[0])


def find_drive(root: Path, name: str | None) -> Path:
    """Returns the folder of the drive's images."""
    if not os.path.isdir(root / IMAGES):
        problem = f"holds no folder {IMAGES}" if os.path.isdir(root) else "is no folder"
        raise CaptureError(
            f"{root} {problem}; data.root must be the folder of KITTI-360 that holds {IMAGES} and {POSES}"
        )
    known = {path.name: path for path in sorted((root / IMAGES).glob("*_drive_*_sync")) if path.is_dir()}
    if not known:
        raise CaptureError(f"{root / IMAGES} holds no drive such as 2013_05_28_drive_0000_sync; download one")
    if name is not None and re.fullmatch("[0-9]{1,9}", name):
        numbered = [path for drive, path in known.items() if f"_drive_{int(name):04d}_" in drive]
        if len(numbered) == 1:
            return numbered[0]
    return chosen_drive(known, name, root, "drives")


def _poses(path: Path, calibration: Calibration) -> tuple[Tensor, Tensor]:  # frames [n], T_world_rig [n, 4, 4]
    """Reads a line for each frame: its number, and the matrix that takes points of the rectified camera 0 to the world."""
    frames, rows = list[int](), list[list[float]]()
    for line, text in enumerate(read_lines(path, "download data_poses of this drive"), start=1):
        number, _, values = text.strip().partition(" ")
        try:
            frames.append(natural(number))
            rows.append(numbers(values))
            if len(rows[-1]) != 16 or rows[-1][12:] != [0, 0, 0, 1] or frames[-2:-1] >= frames[-1:]:
                raise ValueError("no rising frame with a matrix 4x4")
        except ValueError as error:
            raise CaptureError(
                f"{path} line {line} is no frame with the 16 numbers of its pose ({short(error)}); {RESTORE}"
            ) from error
    if not rows:
        raise CaptureError(f"{path} holds no pose; {RESTORE}")
    T_world_rect = torch.tensor(rows, dtype=torch.float64).view(-1, 4, 4)
    if not is_rotation(T_world_rect[:, :3, :3]) or float(T_world_rect[:, :3, 3].norm(dim=1).max()) > FARTHEST:
        for frame, T in zip(frames, T_world_rect, strict=True):
            checked_pose(T, path, f"the pose of frame {frame}", FARTHEST)
    return torch.tensor(frames), T_world_rect @ invert(calibration.rectified(CAMERAS[0]))


def _path(times: NDArray[np.float64], frames: Tensor, poses: Tensor) -> tuple[Tensor, Trajectory]:
    """Path of the rig; poses hold at the times of camera 0."""
    stamped = torch.from_numpy(np.isfinite(times))[frames.clamp(max=len(times) - 1)] & (frames < len(times))
    if not bool(stamped.any()):
        raise CaptureError(
            f"no frame of cam0_to_world.txt has a time in timestamps.txt of {CAMERAS[0]}; restore both files"
        )
    return frames[stamped], Trajectory(torch.from_numpy(times)[frames[stamped]], poses[stamped])
