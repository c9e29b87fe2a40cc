# SPDX-License-Identifier: Apache-2.0
"""Reader of KITTI raw drives (the `sync` variant, with rectified images).

Layout: ROOT/DATE/calib_*.txt and ROOT/DATE/DATE_drive_NNNN_sync/{image_0X, velodyne_points, oxts}. The rig is the oxts unit,
and a frame's index is the number in its file's name. Clock and world: see kitti_poses.py.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from nurec_lite.capture.images import ImageFile, check_size
from nurec_lite.capture.kitti_calibration import read_camera, read_rig
from nurec_lite.capture.kitti_poses import Clock, Trajectory, read_clock, read_trajectory, sweep_times
from nurec_lite.capture.kitti_sweeps import SweepFile, survey
from nurec_lite.capture.kitti_tracks import read_label_file, read_tracklets, world_tracks
from nurec_lite.capture.types import Capture, CaptureError, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import invert
from nurec_lite.geometry.tracks import Tracks

LIDAR = "velodyne"
MAX_RANGE = 80.0  # metres; KITTI's files hold nothing beyond
IMAGE_DELAY = 0.0075  # seconds, see read_kitti_raw
N_SURVEY = 8  # sweeps, spread over the drive


@dataclass(frozen=True)
class Drive:
    folder: Path
    T_rig_lidar: Tensor  # [4, 4]
    T_rig_rect: Tensor  # [4, 4], rect = camera 0 after rectification
    clock: Clock
    trajectory: Trajectory
    sweeps: dict[int, Path]  # frame number -> file
    images: dict[str, dict[int, Path]]  # of each camera


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
    image_delay: float = IMAGE_DELAY,
) -> Capture:
    """`image_delay` is how many seconds after the exposure an image is stamped.

    The lidar triggers the cameras as it faces forward, but images are stamped 10.5 ms later, when they arrive. On drive 0009
    lidar edges fall onto image edges, and static points keep their colour from image to image, best with 7.5 ms.
    """
    found = _open_drive(find_drive(Path(root), date, drive), tuple(cameras), frames, poses_file)
    path = found.folder.parent / "calib_cam_to_cam.txt"
    elevations, blocked = survey(_spread(found.folder / "velodyne_points" / "data"))
    sensors = tuple(read_camera(path, name, found.T_rig_rect) for name in cameras)
    return Capture(
        name=found.folder.name.removesuffix("_sync"),
        cameras=tuple(camera.downscaled(downscale) for camera in sensors),
        lidars=(Lidar(LIDAR, found.T_rig_lidar, elevations, MAX_RANGE),),
        images=tuple(frame for camera in sensors for frame in _image_frames(found, camera, downscale, image_delay)),
        sweeps=tuple(_sweep_frames(found, missing_rays, blocked)),
        tracks=_read_tracks(found, tracks_file),
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


def _open_drive(
    folder: Path, cameras: tuple[str, ...], frames: tuple[int, int] | None, poses_file: Path | None
) -> Drive:
    T_rig_lidar, T_rig_rect = read_rig(folder.parent)
    clock = read_clock(folder / "velodyne_points")
    sweeps = _numbered_files(folder / "velodyne_points" / "data", "*.bin", frames)
    images = {name: _numbered_files(folder / name / "data", "*.*", frames) for name in cameras}
    n_frames = 1 + max(number for files in (sweeps, *images.values()) for number in files)
    trajectory = read_trajectory(folder, clock, poses_file, T_rig_lidar, n_frames)
    return Drive(folder, T_rig_lidar, T_rig_rect, clock, trajectory, sweeps, images)


def _image_frames(drive: Drive, camera: Camera, downscale: int, delay: float) -> list[ImageFrame]:
    files, size = drive.images[camera.name], (camera.width, camera.height)
    _check_first_image(next(iter(files.values())), size)
    times = drive.clock.seconds(drive.folder / camera.name / "timestamps.txt", list(files)) - delay
    poses = drive.trajectory.at(times)
    return [
        ImageFrame(camera.name, number, time, time, pose, pose, ImageFile(file, size, downscale))
        for (number, file), time, pose in zip(files.items(), times.tolist(), poses, strict=True)
    ]


def _check_first_image(path: Path, size: tuple[int, int]) -> None:
    try:
        with Image.open(path) as image:
            found = image.size
    except OSError as error:
        raise CaptureError(f"{path} is no image ({error}); copy the file again from its source") from error
    check_size(str(path), found, size)


def _sweep_frames(drive: Drive, missing_rays: bool, blocked: Tensor) -> list[SweepFrame]:
    """A sweep lasts one period around its forward time."""
    numbers, files = list(drive.sweeps), list(drive.sweeps.values())
    forward, period = sweep_times(drive.clock, drive.folder / "velodyne_points" / "timestamps.txt", numbers)
    starts, ends = forward - period / 2, forward + period / 2
    first, last = drive.trajectory.at(starts), drive.trajectory.at(ends)
    loads = [
        SweepFile(file, time, length, missing_rays, blocked)
        for file, time, length in zip(files, forward.tolist(), period.tolist(), strict=True)
    ]
    rows = zip(numbers, starts.tolist(), ends.tolist(), first, last, loads, strict=True)
    return [SweepFrame(LIDAR, *row) for row in rows]


def _spread(folder: Path) -> list[Path]:
    paths = list(_numbered_files(folder, "*.bin", None).values())
    indices = torch.linspace(0, len(paths) - 1, min(N_SURVEY, len(paths))).long().tolist()
    return [paths[i] for i in indices]


def _read_tracks(drive: Drive, tracks_file: Path | None) -> Tracks:
    tracklets = drive.folder / "tracklet_labels.xml"
    if tracks_file is not None:
        boxes = read_label_file(Path(tracks_file), invert(drive.T_rig_lidar) @ drive.T_rig_rect)
    elif tracklets.is_file():
        boxes = read_tracklets(tracklets)
    else:
        return Tracks.empty()
    clock = drive.clock
    sweeps = {number: (float(clock.forward[number]), float(clock.period[number])) for number in drive.sweeps}
    return world_tracks(boxes, sweeps, lambda times: drive.trajectory.at(times) @ drive.T_rig_lidar)
