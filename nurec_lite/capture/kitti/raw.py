# SPDX-License-Identifier: Apache-2.0
"""Reader of KITTI raw drives (the `sync` variant, with rectified images).

Layout: ROOT/DATE/calib_*.txt and ROOT/DATE/DATE_drive_NNNN_sync/{image_0X, velodyne_points, oxts}. Sweeps may be missing, and oxts where
other poses are given. The rig is the oxts unit, and a frame's index is the number in its file's name. Clock and world: see poses.py.
"""

import math
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from torch import Tensor

from nurec_lite.capture.downscale import downscaled
from nurec_lite.capture.files import numbered_files, short
from nurec_lite.capture.images import ImageFile
from nurec_lite.capture.kitti.calibration import other_mountings, read_camera, read_rig
from nurec_lite.capture.kitti.conventions import LIDAR as LIDAR_POSES
from nurec_lite.capture.kitti.conventions import meaning, others
from nurec_lite.capture.kitti.doubts import row_doubts, stamp_doubts
from nurec_lite.capture.kitti.inertial import read_measured
from nurec_lite.capture.kitti.poses import (
    Clock,
    PosesFile,
    Trajectory,
    read_camera_clock,
    read_clock,
    read_trajectory,
    sweep_times,
)
from nurec_lite.capture.kitti.scan import Scan
from nurec_lite.capture.kitti.survey import spread, survey
from nurec_lite.capture.kitti.sweeps import SweepFile
from nurec_lite.capture.kitti.tracks import (
    ORDERS,
    SIZES,
    LabelFormat,
    check_frames,
    read_label_file,
    read_tracklets,
    world_tracks,
)
from nurec_lite.capture.types import (
    GIVEN,
    POSITIONED,
    UNKNOWN,
    Capture,
    CaptureError,
    Doubt,
    ImageFrame,
    Labels,
    Reading,
    SweepFrame,
)
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import invert
from nurec_lite.geometry.tracks import Tracks

COLOUR, GREY = ("image_02", "image_03"), ("image_00", "image_01")
LIDAR = "velodyne"
MAX_RANGE = 80.0  # metres; KITTI's files hold nothing beyond
IMAGE_DELAY = 0.0075  # seconds, see read_kitti_raw
ALL = range(sys.maxsize)  # frames


@dataclass(frozen=True)
class Drive:
    folder: Path
    T_rig_lidar: Tensor  # [4, 4]
    T_rig_rect: Tensor  # [4, 4], rect = camera 0 after rectification
    clock: Clock
    trajectory: Trajectory
    all_sweeps: dict[int, Path]  # frame number -> file; none where the drive has no lidar
    sweeps: dict[int, Path]  # the chosen ones
    images: dict[str, dict[int, Path]]  # of each camera


def read_kitti_raw(
    root: Path,
    *,
    date: str | None = None,  # 2011_09_26; found automatically, like the drive, when root holds exactly one
    drive: str | int | None = None,  # 0009
    cameras: tuple[str, ...] | None = None,  # None: those of colour that the drive has, else the grey ones
    downscale: int = 1,
    frames: range = ALL,  # numbers of the frames that are read
    poses_file: Path | None = None,  # poses at the lidar's forward times, a 3x4 row for each frame; else oxts
    poses_convention: str = LIDAR_POSES,  # the meaning of its rows, one of CONVENTIONS; T_world_velo unless it is given
    tracks_file: Path | None = None,  # label file of the tracking benchmark; else tracklet_labels.xml, if there is one
    tracks_sizes: str = SIZES,  # order of its columns height, width and length
    tracks_first_frame: int = 0,  # the number that it gives the drive's frame 0
    missing_rays: bool = True,  # add the rays that did not return
    image_delay: float = IMAGE_DELAY,
    poses_needed: bool = True,  # false: a drive with sweeps and without poses is read, too
) -> Capture:
    """Reads a drive. `image_delay`: seconds from an exposure to the image's stamp.

    The lidar triggers the cameras as it faces forward, but images are stamped 10.5 ms later, when they arrive. On drive 0009
    lidar edges fall onto image edges, and static points keep their colour from image to image, best with 7.5 ms.
    """
    if not (math.isfinite(image_delay) and abs(image_delay) <= 1):
        raise CaptureError(
            f"data.image_delay is {image_delay:g}, but must be a second at most; KITTI's is {IMAGE_DELAY}"
        )
    file = None if poses_file is None else PosesFile(Path(poses_file), poses_convention)
    found = _open_drive(find_drive(Path(root), date, drive), cameras, frames, file, poses_needed)
    path, form = found.folder.parent / "calib_cam_to_cam.txt", LabelFormat(tracks_sizes, tracks_first_frame)
    scan = survey(spread(list(found.all_sweeps.values()))) if found.all_sweeps else None
    sensors = tuple(read_camera(path, name, found.T_rig_rect) for name in found.images)
    return Capture(
        name=found.folder.name.removesuffix("_sync"),
        cameras=tuple(downscaled(camera, downscale) for camera in sensors),
        lidars=() if scan is None else (_lidar(found, scan),),
        images=tuple(frame for camera in sensors for frame in _image_frames(found, camera, downscale, image_delay)),
        sweeps=() if scan is None else tuple(_sweep_frames(found, missing_rays, scan)),
        tracks=_read_tracks(found, tracks_file, form),
        labels=() if tracks_file is None else tuple(_labels(found, tracks_file, form)),
        part_labelled=True,  # KITTI labels objects that camera 2 sees
        doubts=tuple(_doubts(found, file, scan)),
        readings=() if file is None else tuple(_readings(found, file)),
        poses_from=GIVEN if file is not None else POSITIONED if os.path.isdir(found.folder / "oxts/data") else UNKNOWN,
        measured=read_measured(found.folder / "oxts", found.clock) if found.all_sweeps else None,
        mountings=other_mountings(path.parent, found.T_rig_rect, sensors),
    )


def find_drive(root: Path, date: str | None, drive: str | int | None) -> Path:
    if not os.path.isdir(root):
        problem = "is no folder" if os.path.lexists(root) else "does not exist"
        raise CaptureError(f"{root} {problem}; data.root must be the folder that holds the dates of KITTI raw")
    if found := re.fullmatch(r"([0-9]{4}_[0-9]{2}_[0-9]{2})_drive_([0-9]{1,9})(_sync)?", str(drive)):  # the whole name
        date, drive = date or found[1], found[2]
    day, number = _date(date), _drive_number(drive)
    name = f"{day}_drive_{number}_sync"
    pattern, whole = f"{day}/{name}", root.absolute()
    below = (path for form in (pattern, name) for path in root.glob(form))  # root may be a date, or the drive itself
    drives = [whole] if whole.match(name) else sorted(path for path in below if os.path.isdir(path))
    if not drives:
        raise CaptureError(
            f"{root} holds no folder {pattern}; data.root must be the folder that holds the dates of KITTI raw"
        )
    if len(drives) > 1:
        names = ", ".join(path.name for path in drives[:4]) + (", ..." if len(drives) > 4 else "")
        raise CaptureError(f"{root} holds {len(drives)} drives ({names}); choose by data.date and data.drive")
    return drives[0]


def _date(date: str | None) -> str:  # a pattern
    """The date, also if given without underscores: the command line takes 2011_09_26 for a number."""
    if date is None:
        return "*"
    found = re.fullmatch("([0-9]{4})_?([0-9]{2})_?([0-9]{2})", date)
    if not found:
        raise CaptureError(f"data.date is '{date}', which is no date of KITTI raw; write it as in data.date=2011_09_26")
    return "_".join(found.groups())


def _drive_number(drive: str | int | None) -> str:  # a pattern
    if drive is None:
        return "*"
    if not re.fullmatch("[0-9]{1,9}", str(drive)):
        raise CaptureError(f"data.drive is '{drive}', which is no number of a drive; write it as in data.drive=0009")
    return f"{int(drive):04d}"


def _select(folder: Path, files: dict[int, Path], frames: range) -> dict[int, Path]:
    chosen = {number: path for number, path in files.items() if number in frames}
    if not chosen:
        raise CaptureError(f"{folder} holds no file of the frames {_shown(frames)}; choose others by data.frames")
    return chosen


def _shown(frames: range) -> str:
    step = f" in steps of {frames.step}" if frames.step > 1 else ""
    return f"{frames.start} to {frames.stop - 1}{step}"


def _open_drive(
    folder: Path, cameras: tuple[str, ...] | None, frames: range, poses_file: PosesFile | None, needed: bool
) -> Drive:
    T_rig_lidar, T_rig_rect = read_rig(folder.parent)
    data = folder / "velodyne_points" / "data"
    no_lidar = "restore the folder, or remove it to go without lidar"
    all_sweeps = numbered_files(data, "*.bin", no_lidar) if os.path.isdir(data) else {}
    sweeps = _select(data, all_sweeps, frames) if all_sweeps else {}
    images = _images(folder, cameras, frames)
    stamped = all_sweeps or os.path.lexists(folder / "velodyne_points" / "timestamps.txt")
    clock = read_clock(folder / "velodyne_points") if stamped else read_camera_clock(folder / next(iter(images)))
    posed = set(sweeps).union(*images.values())
    trajectory = read_trajectory(folder, clock, poses_file, T_rig_lidar, T_rig_rect, posed, needed or not sweeps)
    return Drive(folder, T_rig_lidar, T_rig_rect, clock, trajectory, all_sweeps, sweeps, images)


def _images(folder: Path, cameras: tuple[str, ...] | None, frames: range) -> dict[str, dict[int, Path]]:
    """Files of each camera that is named; else of those that the drive has."""
    if cameras is None:
        cameras = next((there for group in (COLOUR, GREY) if (there := _with_images(folder, group))), ())
        if not cameras:
            raise CaptureError(
                f"{folder} has no images in image_00/data to image_03/data; complete the drive: nothing is learned without images"
            )
    _check_cameras(folder, cameras)
    data_of = {name: folder / name / "data" for name in cameras}
    remedy = (
        "restore the folder" if len(cameras) == 1 else "restore the folder, or choose other cameras by data.cameras"
    )
    return {name: _select(data, numbered_files(data, "*.*", remedy), frames) for name, data in data_of.items()}


def _with_images(folder: Path, cameras: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(
        name for name in cameras if any(path.stem.isdecimal() for path in (folder / name / "data").glob("*.*"))
    )


def _check_cameras(folder: Path, cameras: tuple[str, ...]) -> None:
    known = sorted(path.name for path in folder.glob("image_[0-9][0-9]"))
    for name in cameras:
        if name not in known:
            raise CaptureError(
                f"data.cameras names '{short(name)}', but {folder} has {', '.join(known) or 'none'}; choose some of these"
            )


def _image_frames(drive: Drive, camera: Camera, downscale: int, delay: float) -> list[ImageFrame]:
    files, size = drive.images[camera.name], (camera.width, camera.height)
    loads = [ImageFile(file, size, downscale) for file in files.values()]
    loads[0].check()
    times = drive.clock.seconds(drive.folder / camera.name / "timestamps.txt", list(files)) - delay
    poses = drive.trajectory.at(times)
    return [
        ImageFrame(camera.name, number, time, time, pose, pose, load)
        for number, time, pose, load in zip(files, times.tolist(), poses, loads, strict=True)
    ]


def _lidar(drive: Drive, scan: Scan) -> Lidar:
    return Lidar(
        LIDAR, drive.T_rig_lidar, scan.elevations, MAX_RANGE, scan.azimuth_steps, scan.start, scan.clockwise
    )  # fmt: skip


def _sweep_frames(drive: Drive, missing_rays: bool, scan: Scan) -> list[SweepFrame]:
    """Frames of sweeps: each lasts one period around its forward time."""
    numbers, files = list(drive.sweeps), list(drive.sweeps.values())
    forward, period = sweep_times(drive.clock, drive.folder / "velodyne_points" / "timestamps.txt", numbers)
    starts = forward - scan.forward_fraction * period
    ends = forward + (1 - scan.forward_fraction) * period
    first, last = drive.trajectory.at(starts), drive.trajectory.at(ends)
    loads = [
        SweepFile(file, scan, time, length, missing_rays)
        for file, time, length in zip(files, forward.tolist(), period.tolist(), strict=True)
    ]
    rows = zip(numbers, starts.tolist(), ends.tolist(), first, last, loads, strict=True)
    return [SweepFrame(LIDAR, *row) for row in rows]


def _doubts(drive: Drive, file: PosesFile | None, scan: Scan | None) -> Iterator[Doubt]:
    if file is not None:
        yield from row_doubts(file.path, drive.clock, drive.all_sweeps or drive.clock.frames)
    for name in drive.images if len(drive.all_sweeps) > 1 else ():
        yield from stamp_doubts(drive.folder / name / "timestamps.txt", drive.clock)
    yield from (Doubt(LIDAR, False, note) for note in (() if scan is None else scan.notes))


def _readings(drive: Drive, file: PosesFile) -> Iterator[Reading]:
    """Readings of the poses' file by other conventions."""
    for convention in others(file.convention):
        read = partial(_read_as, drive, PosesFile(file.path, convention))
        yield Reading(meaning(convention), f"give data.poses.convention={convention}", read)


def _read_as(drive: Drive, file: PosesFile, times: Tensor) -> Tensor:  # [n] seconds -> T_world_rig [n, 4, 4]
    frames = set(drive.sweeps)
    path = read_trajectory(drive.folder, drive.clock, file, drive.T_rig_lidar, drive.T_rig_rect, frames)
    return path.at(times)


def _labels(drive: Drive, tracks_file: Path, form: LabelFormat) -> Iterator[Labels]:
    """Other readings of a label file."""
    names = {"h": "height", "w": "width", "l": "length"}
    other = 1 if form.first_frame == 0 else 0
    forms = {
        f"the sizes of the label file are {', '.join(names[k] for k in order)}": (
            f"give data.tracks.sizes={order}", replace(form, sizes=order),
        )
        for order in ORDERS if order != form.sizes
    } | {
        f"the label file counts frames from {other}": (
            f"give data.tracks.first_frame={other}", replace(form, first_frame=other),
        ),
        "x, y and z of the label file are in the lidar's axes": (
            "write them in the axes of camera 0, as the tracking benchmark does", replace(form, in_lidar=True),
        ),
    }  # fmt: skip
    for what, (remedy, meant) in forms.items():
        yield Labels(what, remedy, partial(_read_tracks, drive, tracks_file, meant))


def _read_tracks(drive: Drive, tracks_file: Path | None, form: LabelFormat) -> Tracks:
    path = drive.folder / "tracklet_labels.xml" if tracks_file is None else Path(tracks_file)
    if tracks_file is not None:
        boxes = read_label_file(path, invert(drive.T_rig_lidar) @ drive.T_rig_rect, form)
    elif os.path.lexists(path):
        boxes = read_tracklets(path)
    else:
        return Tracks.empty()
    check_frames(path, boxes, drive.all_sweeps or drive.clock.frames)
    clock, chosen = drive.clock, drive.sweeps or {n for files in drive.images.values() for n in files}
    sweeps = {number: (float(clock.forward[number]), float(clock.period[number])) for number in chosen}
    return world_tracks(boxes, sweeps, lambda times: drive.trajectory.at(times) @ drive.T_rig_lidar)
