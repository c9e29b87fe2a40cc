# SPDX-License-Identifier: Apache-2.0
"""Reader of KITTI raw drives (the `sync` variant, with rectified images).

Layout: ROOT/DATE/calib_*.txt and ROOT/DATE/DATE_drive_NNNN_sync/{image_0X, velodyne_points, oxts}. The rig is the oxts unit.
The world is the rig's frame at the first pose of the trajectory. Times count from the lidar's forward time of frame 0, whichever
frames are read. A frame's index is the number in its file's name.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nurec_lite.capture.images import ImageFile, check_size
from nurec_lite.capture.kitti_calibration import read_camera, read_oxts, read_poses_file, read_rig, read_times
from nurec_lite.capture.kitti_sweeps import SweepFile, beam_elevations, find_rings, read_points
from nurec_lite.capture.kitti_tracks import read_label_file, read_tracklets, world_tracks
from nurec_lite.capture.types import Capture, CaptureError, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar, azimuth_elevation
from nurec_lite.geometry.se3 import interpolate_trajectory, invert
from nurec_lite.geometry.tracks import Tracks

LIDAR = "velodyne"
MAX_RANGE = 80.0  # metres; KITTI's files hold nothing beyond


@dataclass(frozen=True)
class Trajectory:
    times: Tensor  # [n] seconds, increasing
    poses: Tensor  # [n, 4, 4] T_world_rig

    def at(self, times: Tensor) -> Tensor:  # [...] seconds -> [..., 4, 4]
        return interpolate_trajectory(self.times, self.poses, times)


@dataclass(frozen=True)
class LidarClock:
    """Times of all sweeps of the drive, in seconds of the capture; NaN where there is none."""

    forward: np.ndarray  # [n] when the sensor faces forward
    period: np.ndarray  # [n] duration of a turn
    origin: np.datetime64  # zero of the capture's clock


def read_kitti_raw(
    root: Path,
    *,
    date: str | None = None,  # 2011_09_26; found automatically, like the drive, when root holds exactly one
    drive: str | int | None = None,  # 0009
    cameras: tuple[str, ...] = ("image_02", "image_03"),
    downscale: int = 1,
    frames: tuple[int, int] | None = None,  # first and last (exclusive) frame number
    poses_file: Path | None = None,  # T_world_velo at the lidar's forward times, a 3x4 row for each frame; else oxts
    tracks_file: Path | None = None,  # label file of the tracking benchmark; else tracklet_labels.xml, if there is one
    missing_rays: bool = True,  # add the rays that did not return
) -> Capture:
    folder = find_drive(Path(root), date, drive)
    T_rig_lidar, T_rig_rect = read_rig(folder.parent)
    clock = _read_clock(folder / "velodyne_points")
    sweep_files = _numbered_files(folder / "velodyne_points" / "data", "*.bin", frames)
    image_files = {name: _numbered_files(folder / name / "data", "*.*", frames) for name in cameras}
    n_frames = 1 + max(n for files in (sweep_files, *image_files.values()) for n in files)
    trajectory = _read_trajectory(folder, clock, poses_file, T_rig_lidar, n_frames)
    sensors = tuple(read_camera(folder.parent / "calib_cam_to_cam.txt", name, T_rig_rect) for name in cameras)
    images = [
        f for c in sensors for f in _image_frames(folder / c.name, c, image_files[c.name], clock, trajectory, downscale)
    ]
    return Capture(
        name=folder.name.removesuffix("_sync"),
        cameras=tuple(camera.downscaled(downscale) for camera in sensors),
        lidars=(_read_lidar(T_rig_lidar, sweep_files),),
        images=tuple(images),
        sweeps=tuple(_sweep_frames(folder, sweep_files, clock, trajectory, missing_rays)),
        tracks=_read_tracks(
            folder, tracks_file, invert(T_rig_lidar) @ T_rig_rect, sweep_files, clock, trajectory, T_rig_lidar
        ),
    )


def find_drive(root: Path, date: str | None, drive: str | int | None) -> Path:
    number = f"{int(drive):04d}" if drive is not None else "*"
    pattern = f"{date or '*'}/{date or '*'}_drive_{number}_sync"
    found = sorted(path for path in root.glob(pattern) if path.is_dir())
    if not found:
        raise CaptureError(
            f"{root} holds no folder {pattern}; root must be the folder that holds the dates of KITTI raw"
        )
    if len(found) > 1:
        raise CaptureError(
            f"{root} holds {len(found)} drives ({', '.join(p.name for p in found)}); choose by date and drive"
        )
    return found[0]


def _numbered_files(folder: Path, pattern: str, frames: tuple[int, int] | None) -> dict[int, Path]:
    first, last = frames or (0, 1 << 31)
    if not folder.is_dir():
        raise CaptureError(f"{folder} does not exist; complete the drive, or leave this sensor out")
    files = {int(path.stem): path for path in sorted(folder.glob(pattern)) if path.stem.isdigit()}
    files = {number: path for number, path in files.items() if first <= number < last}
    if not files:
        raise CaptureError(f"{folder} holds no file of the frames {first} to {last - 1}; choose other frames")
    return files


def _read_clock(folder: Path) -> LidarClock:
    forward, start, end = (read_times(folder / f"timestamps{part}.txt") for part in ("", "_start", "_end"))
    n = min(len(forward), len(start), len(end))
    known = forward[~np.isnat(forward)]
    if not len(known):
        raise CaptureError(f"{folder}/timestamps.txt is empty; restore the drive's time stamps")
    return LidarClock(_seconds(forward[:n], known[0]), (end[:n] - start[:n]) / np.timedelta64(1, "s"), known[0])


def _seconds(times: np.ndarray, origin: np.datetime64) -> np.ndarray:
    return (times - origin) / np.timedelta64(1, "s")


def _check_times(path: Path, times: np.ndarray, numbers: list[int]) -> None:
    if max(numbers) >= len(times) or not np.isfinite(times[numbers]).all():
        raise CaptureError(
            f"{path} has no time stamp for some of the frames up to {max(numbers)}; restore it, or read fewer frames"
        )


def _read_trajectory(
    folder: Path, clock: LidarClock, poses_file: Path | None, T_rig_lidar: Tensor, n_frames: int
) -> Trajectory:
    if poses_file is not None:
        poses = read_poses_file(Path(poses_file), n_frames) @ invert(T_rig_lidar)
        times = clock.forward[: len(poses)]
        numbers = np.flatnonzero(np.isfinite(times))
    else:
        frames, poses = read_oxts(folder / "oxts" / "data")
        path = folder / "oxts" / "timestamps.txt"
        times = _seconds(read_times(path), clock.origin)
        _check_times(path, times, frames)
        times, numbers = times[frames], np.arange(len(frames))
    key_times, key_poses = torch.from_numpy(times[numbers]), poses[torch.from_numpy(numbers)]
    if not (key_times.diff() > 0).all():
        raise CaptureError(f"{folder}: the time stamps of the poses do not increase; restore the drive's time stamps")
    return Trajectory(key_times, invert(key_poses[0]) @ key_poses)


def _image_frames(
    folder: Path, camera: Camera, files: dict[int, Path], clock: LidarClock, trajectory: Trajectory, downscale: int
) -> list[ImageFrame]:
    path = folder / "timestamps.txt"
    times = _seconds(read_times(path), clock.origin)
    _check_times(path, times, list(files))
    size = (camera.width, camera.height)
    _check_first_image(next(iter(files.values())), size)
    poses = trajectory.at(torch.from_numpy(times[list(files)]))
    return [
        ImageFrame(
            camera.name,
            number,
            float(times[number]),
            float(times[number]),
            pose,
            pose,
            ImageFile(file, size, downscale),
        )
        for (number, file), pose in zip(files.items(), poses, strict=True)
    ]


def _check_first_image(path: Path, size: tuple[int, int]) -> None:
    try:
        with Image.open(path) as image:
            found = image.size
    except OSError as error:
        raise CaptureError(f"{path} is no image ({error}); copy the file again from its source") from error
    check_size(str(path), found, size)


def _sweep_frames(
    folder: Path, files: dict[int, Path], clock: LidarClock, trajectory: Trajectory, missing_rays: bool
) -> list[SweepFrame]:
    """A sweep lasts one period around its forward time."""
    numbers = list(files)
    _check_times(folder / "velodyne_points" / "timestamps.txt", clock.forward + clock.period, numbers)
    forward, period = torch.from_numpy(clock.forward[numbers]), torch.from_numpy(clock.period[numbers])
    starts, ends = forward - period / 2, forward + period / 2
    first, last = trajectory.at(starts), trajectory.at(ends)
    times = zip(forward.tolist(), period.tolist(), starts.tolist(), ends.tolist(), strict=True)
    return [
        SweepFrame(LIDAR, number, start, end, first[i], last[i], SweepFile(file, time, length, missing_rays))
        for i, ((number, file), (time, length, start, end)) in enumerate(zip(files.items(), times, strict=True))
    ]


def _read_lidar(T_rig_lidar: Tensor, files: dict[int, Path]) -> Lidar:
    points = read_points(next(iter(files.values())))
    azimuth, elevation = azimuth_elevation(points[:, :3]).unbind(-1)
    return Lidar(LIDAR, T_rig_lidar, beam_elevations(elevation, find_rings(azimuth)), MAX_RANGE)


def _read_tracks(
    folder: Path, tracks_file: Path | None, T_lidar_rect: Tensor, files: dict[int, Path],
    clock: LidarClock, trajectory: Trajectory, T_rig_lidar: Tensor,
) -> Tracks:  # fmt: skip
    tracklets = folder / "tracklet_labels.xml"
    if tracks_file is not None:
        boxes = read_label_file(Path(tracks_file), T_lidar_rect)
    elif tracklets.is_file():
        boxes = read_tracklets(tracklets)
    else:
        return Tracks.empty()
    sweeps = {number: (float(clock.forward[number]), float(clock.period[number])) for number in files}
    return world_tracks(boxes, sweeps, lambda times: trajectory.at(times) @ T_rig_lidar)
