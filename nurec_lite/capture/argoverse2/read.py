# SPDX-License-Identifier: Apache-2.0
"""Reads a log of Argoverse 2's sensor data set (https://www.argoverse.org) as a capture.

Cameras run at 20 Hz, two lidars at 10 Hz.

Seconds count from the first pose. Images are stored without distortion, so k1 to k3 of `intrinsics.feather` do not apply to them.
"""

from collections.abc import Container, Sequence
from pathlib import Path

import torch

from nurec_lite.capture.argoverse2.boxes import read_tracks
from nurec_lite.capture.argoverse2.log import Log, find_log, open_log, stamped_files
from nurec_lite.capture.argoverse2.rays import LASERS, SweepFile, find_pattern, sweep_frames
from nurec_lite.capture.arrow.feather import read_feather
from nurec_lite.capture.arrow.library import REMEDY, check_once
from nurec_lite.capture.check import without_unseen_tracks
from nurec_lite.capture.choice import chosen_sensors
from nurec_lite.capture.downscale import downscaled
from nurec_lite.capture.files import has_folder, is_picture, short
from nurec_lite.capture.images import ImageFile
from nurec_lite.capture.types import Capture, CaptureError, ImageFrame
from nurec_lite.geometry.camera import Camera

ORDER = (
    "ring_front_center", "ring_front_left", "ring_front_right", "ring_side_left",
    "ring_side_right", "ring_rear_left", "ring_rear_right",
)  # fmt: skip
INTRINSICS = {
    "sensor_name": str, "fx_px": float, "fy_px": float, "cx_px": float, "cy_px": float,
    "width_px": int, "height_px": int,
}  # fmt: skip


def read_argoverse2(
    root: Path,
    *,
    drive: str | None = None,  # name of a log, its first letters, or its place among the logs
    cameras: Sequence[str] | None = None,  # None: the seven of the ring that have images
    lidars: Sequence[str] | None = None,  # None: both
    downscale: int = 1,
) -> Capture:
    log = open_log(find_log(root, drive))
    known = _cameras(log)
    images = {name: stamped_files(log, log.folder / "sensors/cameras" / name, is_picture) for name in known}
    there = [name for name in (*ORDER, *known) if images.get(name)]
    _check_described(log, known)
    names = chosen_sensors("data.cameras", cameras, there, log.folder)
    if cameras is None and any(name in ORDER for name in names):
        names = tuple(name for name in names if name in ORDER)
    files = {
        stamp: SweepFile(path, log.seconds(stamp), log.path)
        for stamp, path in stamped_files(log, log.folder / "sensors/lidar", is_feather).items()
    }
    mounted = [name for name in LASERS if name in log.mountings]
    if files and not mounted:
        raise CaptureError(
            f"{log.folder / 'calibration/egovehicle_SE3_sensor.feather'} has no row of a lidar; {REMEDY}"
        )
    patterns = [
        find_pattern(list(files.values()), name, log.mountings[name])
        for name in chosen_sensors("data.lidars", lidars, mounted if files else (), log.folder)
    ]
    if not names and not patterns:
        raise CaptureError(f"{log.folder / 'sensors'} holds neither images nor sweeps; restore the folder")
    capture = Capture(
        name=f"argoverse2_{log.folder.name}",
        cameras=tuple(downscaled(known[name], downscale) for name in names),
        lidars=tuple(pattern.lidar for pattern in patterns),
        images=tuple(frame for name in names for frame in _images(log, known[name], images[name], downscale)),
        sweeps=tuple(frame for pattern in patterns for frame in sweep_frames(log, files, pattern)),
        tracks=read_tracks(log, patterns),
    )
    return without_unseen_tracks(capture)


def is_feather(path: Path) -> bool:
    return path.suffix == ".feather"


def _check_described(log: Log, known: Container[str]) -> None:
    """Refuses images of a camera without intrinsics."""
    folder = log.folder / "sensors/cameras"
    for name in sorted(path.name for path in folder.iterdir()) if has_folder(folder) else ():
        if name not in known and not name.startswith(".") and stamped_files(log, folder / name, is_picture):
            raise CaptureError(f"{log.folder / 'calibration/intrinsics.feather'} has no row of {short(name)}; {REMEDY}")


def _cameras(log: Log) -> dict[str, Camera]:
    path = log.folder / "calibration/intrinsics.feather"
    table = read_feather(path, INTRINSICS)
    check_once(table["sensor_name"].tolist(), path)
    rows = zip(*(table[key].tolist() for key in INTRINSICS), strict=True)
    return {row[0]: _camera(log, path, *row) for row in rows}


def _camera(
    log: Log, path: Path, name: str, fx: float, fy: float, cx: float, cy: float, width: int, height: int
) -> Camera:
    if name not in log.mountings:
        raise CaptureError(f"{path} names '{name}', which egovehicle_SE3_sensor.feather does not; {REMEDY}")
    if not (0 < fx < 1e5 and 0 < fy < 1e5 and 0 < cx < width < 1e5 and 0 < cy < height < 1e5):
        raise CaptureError(f"{path}: {name} is no camera of {width}x{height} pixels; {REMEDY}")
    return Camera(name, width, height, fx, fy, cx, cy, T_rig_cam=log.mountings[name])


def _images(log: Log, camera: Camera, files: dict[int, Path], downscale: int) -> list[ImageFrame]:
    size = (camera.width, camera.height)
    loads = [ImageFile(path, size, downscale, "intrinsics.feather") for path in files.values()]
    loads[0].check()
    times = [log.seconds(stamp) for stamp in files]
    poses = log.path.at(torch.tensor(times, dtype=torch.float64))
    return [
        ImageFrame(camera.name, k, time, time, poses[k], poses[k], load)
        for k, (time, load) in enumerate(zip(times, loads, strict=True))
    ]
