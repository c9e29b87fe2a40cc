# SPDX-License-Identifier: Apache-2.0
"""Reads a drive of KITTI-360 (https://www.cvlibs.net/datasets/kitti-360) as a capture: the two perspective cameras, if asked for the
two fisheye cameras, the Velodyne, and moving objects. The SICK scanners are left out.

Seconds count from the first image. An image is seen at its stamp. A sweep's stamp is the moment when the lidar faces forward, as
in KITTI.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.boxes import repeated_boxes
from nurec_lite.capture.choice import chosen_sensors
from nurec_lite.capture.downscale import downscaled
from nurec_lite.capture.files import has_folder, numbered_files, numbered_images
from nurec_lite.capture.images import ImageFile
from nurec_lite.capture.kitti.raw import LIDAR, MAX_RANGE
from nurec_lite.capture.kitti.scan import Scan
from nurec_lite.capture.kitti.survey import spread, survey
from nurec_lite.capture.kitti.sweeps import SweepFile
from nurec_lite.capture.kitti.turns import TURN
from nurec_lite.capture.kitti360.boxes import Box, boxes_file, read_boxes, tracks_of
from nurec_lite.capture.kitti360.calibration import CAMERAS, FISHEYE
from nurec_lite.capture.kitti360.drive import IMAGES, SCANS, Drive, open_drive
from nurec_lite.capture.types import Capture, CaptureError, Doubt, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import invert

USUAL = 0.1  # seconds of a turn
_REMEDY = "restore the folder, or choose other cameras by data.cameras"


@dataclass(frozen=True, eq=False)
class Sweeps:
    """The sweeps that have a time and a pose."""

    scan: Scan
    files: dict[int, Path]  # by frame
    forward: dict[int, float]  # seconds when the lidar faces forward
    period: float  # seconds of a turn
    left_out: int  # sweeps without a pose


def read_kitti360(
    root: Path,  # the folder that holds calibration, data_2d_raw, data_3d_raw and data_poses
    *,
    drive: str | None = None,  # its name, its number, or its place
    cameras: tuple[str, ...] | None = None,  # None: the perspective ones that are there, or else the fisheyes
    lidars: tuple[str, ...] | None = None,
    downscale: int = 1,
) -> Capture:
    found = open_drive(Path(root), drive)
    known = found.calibration
    sensors = [(known.fisheye if name in FISHEYE else known.camera)(name) for name in _cameras(found, cameras)]
    images = [frame for camera in sensors for frame in _images(found, camera, downscale)]
    sweeps = _sweeps(found)
    names = chosen_sensors("data.lidars", lidars, () if sweeps is None else (LIDAR,), found.name)
    tracks, repeated = tracks_of(_boxes(found), lambda box: _seen(found, sweeps, box))
    capture = Capture(
        name=f"kitti360_{found.name.removesuffix('_sync')}",
        cameras=tuple(downscaled(camera, downscale) for camera in sensors),
        lidars=tuple(_lidar(sweeps.scan) for _ in names if sweeps is not None),
        images=tuple(images),
        sweeps=() if sweeps is None else tuple(_sweep_frames(found, sweeps)),
        tracks=tracks,
        doubts=(
            *_doubts(found, [camera.name for camera in sensors], images, sweeps),
            *repeated_boxes(f"{found.name}.xml", repeated),
        ),
    )
    if not capture.images and not capture.sweeps:
        raise CaptureError(f"{found.name}: no frame has a pose in cam0_to_world.txt; download data_poses of this drive")
    return capture


def _cameras(drive: Drive, asked: tuple[str, ...] | None) -> tuple[str, ...]:
    known = (*CAMERAS, *(name for name in FISHEYE if name in drive.calibration.T_pose_cam))
    there = [name for name in known if has_folder(drive.root / IMAGES / drive.name / name / _folder(name))]
    usual = [name for name in there if name in CAMERAS] or there
    return chosen_sensors("data.cameras", asked, usual if asked is None else there, drive.name)


# ---- images


def _images(drive: Drive, camera: Camera, downscale: int) -> list[ImageFrame]:
    folder = drive.root / IMAGES / drive.name / camera.name
    files = numbered_images(folder / _folder(camera.name), "*.png", _REMEDY)
    size = (camera.width, camera.height)
    times = _times(drive, folder, list(files))
    posed = drive.posed(times, times)
    poses = drive.path.at(times.nan_to_num())
    calibration = f"{camera.name}.yaml" if camera.name in FISHEYE else "perspective.txt"
    loads = [ImageFile(path, size, downscale, calibration) for path in files.values()]
    loads[0].check()
    rows = zip(files, times.tolist(), poses, loads, posed.tolist(), strict=True)
    return [ImageFrame(camera.name, n, time, time, T, T, load) for n, time, T, load, known in rows if known]


def _folder(name: str) -> str:
    return "data_rgb" if name in FISHEYE else "data_rect"


def _times(drive: Drive, folder: Path, frames: list[int]) -> Tensor:  # [n] seconds, NaN where there is none
    known = drive.seconds(folder / "timestamps.txt")
    return torch.tensor([known[n] if n < len(known) else np.nan for n in frames], dtype=torch.float64)


# ---- sweeps


def _sweeps(drive: Drive) -> Sweeps | None:
    """Returns None where the sweeps of the drive are not downloaded."""
    folder = drive.root / SCANS / drive.name / "velodyne_points"
    if not has_folder(folder / "data"):
        return None
    files = numbered_files(folder / "data", "*.bin", "restore the folder, or remove it to go without lidar")
    times = _times(drive, folder, list(files))
    steps = np.diff(drive.seconds(folder / "timestamps.txt"))
    period = float(np.nanmedian(steps)) if np.isfinite(steps).any() else USUAL
    scan = survey(spread(list(files.values())))
    before, after = (part * period for part in (scan.forward_fraction, 1 - scan.forward_fraction))
    posed = drive.posed(times - before, times + after).tolist()
    kept = [n for n, known in zip(files, posed, strict=True) if known]
    forward = dict(zip(files, times.tolist(), strict=True))
    return Sweeps(scan, {n: files[n] for n in kept}, {n: forward[n] for n in kept}, period, len(files) - len(kept))


def _lidar(scan: Scan) -> Lidar:
    T = torch.eye(4, dtype=torch.float64)
    return Lidar(LIDAR, T, scan.elevations, MAX_RANGE, scan.azimuth_steps, scan.start, scan.clockwise)


def _sweep_frames(drive: Drive, sweeps: Sweeps) -> list[SweepFrame]:
    forward = torch.tensor(list(sweeps.forward.values()), dtype=torch.float64)
    starts = forward - sweeps.scan.forward_fraction * sweeps.period
    ends = starts + sweeps.period
    loads = [SweepFile(path, sweeps.scan, sweeps.forward[n], sweeps.period) for n, path in sweeps.files.items()]
    rows = zip(
        sweeps.files, starts.tolist(), ends.tolist(), drive.path.at(starts), drive.path.at(ends), loads, strict=True
    )
    return [SweepFrame(LIDAR, *row) for row in rows]


# ---- boxes and findings


def _boxes(drive: Drive) -> list[Box]:
    path = boxes_file(drive.root, drive.name)
    return [] if path is None else read_boxes(path)


def _seen(drive: Drive, sweeps: Sweeps | None, box: Box) -> float | None:  # seconds
    """Returns the time when the lidar looks at a box of its frame; without a sweep, the time of camera 0."""
    if sweeps is not None and box.frame in sweeps.forward:
        time = sweeps.forward[box.frame]
        place = (invert(drive.path.at(time)) @ box.T_world_box)[:3, 3]
        turned = sweeps.scan.turned(torch.atan2(place[1], place[0])[None])
        return time + float(turned[0]) * sweeps.period / TURN
    at = (drive.frames == box.frame).nonzero()[:, 0]
    return float(drive.path.times[at[0]]) if len(at) else None


def _doubts(
    drive: Drive,
    cameras: list[str],  # that are read
    images: list[ImageFrame],
    sweeps: Sweeps | None,
) -> list[Doubt]:
    found = [Doubt(LIDAR, False, note) for note in (() if sweeps is None else sweeps.scan.notes)]
    there = sum(
        len(numbered_images(drive.root / IMAGES / drive.name / name / _folder(name), "*.png", _REMEDY))
        for name in cameras
    )
    lost = there - len(images) + (0 if sweeps is None else sweeps.left_out)
    if lost:
        frames, have = ("image or sweep", "has") if lost == 1 else ("images and sweeps", "have")
        are = "is" if lost == 1 else "are"
        sentence = f"{lost} {frames} of {drive.name} {have} no time or no pose, and {are} left out."
        found.append(Doubt(drive.name, False, sentence, "choose other frames by data.frames or data.seconds"))
    return found
