# SPDX-License-Identifier: Apache-2.0
"""Reads a sequence of PandaSet (https://pandaset.org) as a capture: cameras, the Pandar64 and the moving objects.

Seconds count from the begin of the first revolution. The PandarGT is read where it is asked for: its rays lie in no rows.
Images are used as they are: `intrinsics.json` holds no distortion, and edges of the lidar fall onto those of the images without one.
"""

import re
from collections.abc import Sequence as Names
from pathlib import Path

from nurec_lite.capture.choice import chosen_sensors
from nurec_lite.capture.downscale import downscaled
from nurec_lite.capture.files import has_folder, numbered_images
from nurec_lite.capture.images import ImageFile
from nurec_lite.capture.pandaset import front
from nurec_lite.capture.pandaset.boxes import read_tracks
from nurec_lite.capture.pandaset.rays import LIDAR, elevations_of, lidar_of, sweep_frames
from nurec_lite.capture.pandaset.sequence import (
    GT,
    Sequence,
    cameras_of,
    check_posed,
    find_sequence,
    open_sequence,
    read_json_file,
    stamps_of,
)
from nurec_lite.capture.types import Capture, CaptureError, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar

WIDTH, HEIGHT = 1920, 1080
SHUTTER = (-0.03, 0.01)  # seconds from an image's stamp to its first and last row (NeuRAD, arXiv:2311.15260)
ORDER = ("front_camera", "front_left_camera", "front_right_camera", "left_camera", "right_camera", "back_camera")
_REMEDY = "restore the file, or remove the images and tables that have no time"


def read_pandaset(
    root: Path,  # a sequence, or a folder that holds several
    *,
    drive: str | None = None,  # which of them
    cameras: Names[str] | None = None,  # None: all that are there
    lidars: Names[str] | None = None,  # None: the Pandar64
    downscale: int = 1,
) -> Capture:
    folder = find_sequence(root, drive)
    there = cameras_of(folder)
    in_order = [*(name for name in ORDER if name in there), *(name for name in there if name not in ORDER)]
    names = chosen_sensors("data.cameras", cameras, in_order, folder)
    scanning = chosen_sensors("data.lidars", lidars, (LIDAR, front.LIDAR), folder) if lidars else (LIDAR,)
    sequence = open_sequence(folder, (*names, *((GT,) if front.LIDAR in scanning else ())))
    tables = _tables(folder / "lidar")
    _check_numbers(tables, len(sequence.ends), folder / "lidar/timestamps.json")
    lidar = lidar_of(elevations_of(tables, sequence.start, sequence.path))
    cuboids = folder / "annotations/cuboids"
    boxes = (
        {k: path for k, path in _tables(cuboids, ", or remove it").items() if k < len(sequence.ends)}
        if has_folder(cuboids)
        else {}
    )
    scans = [_scan(sequence, tables, name, lidar) for name in scanning]
    sensors = {name: _camera(sequence, name) for name in names}
    return Capture(
        name=f"pandaset_{folder.name}",
        cameras=tuple(downscaled(camera, downscale) for camera in sensors.values()),
        lidars=tuple(sensor for sensor, _ in scans),
        images=tuple(frame for name in names for frame in _images(sequence, name, downscale)),
        sweeps=tuple(frame for _, frames in scans for frame in frames),
        tracks=read_tracks(sequence, boxes, lidar),
    )


def _scan(sequence: Sequence, tables: dict[int, Path], name: str, upper: Lidar) -> tuple[Lidar, list[SweepFrame]]:
    if name == LIDAR:
        return upper, sweep_frames(sequence, tables, upper)
    lidar = front.front_lidar(sequence, tables)
    return lidar, front.front_frames(sequence, tables, lidar)


def _tables(folder: Path, remedy: str = "") -> dict[int, Path]:
    """Tables by number, packed or not; where both are there, the packed one."""
    found: dict[int, Path] = {}
    for path in sorted(folder.glob("*.pkl*"), reverse=True):
        if match := re.fullmatch(r"([0-9]{1,9})\.pkl(\.gz)?", path.name):
            other = found.setdefault(int(match.group(1)), path)
            if other.name.split(".")[0] != path.name.split(".")[0]:
                raise CaptureError(f"{folder} holds {other.name} and {path.name} for one frame; remove one of them")
    if not found:
        raise CaptureError(f"{folder} holds no table such as 00.pkl.gz; restore the folder{remedy}")
    return dict(sorted(found.items()))


def _check_numbers(files: dict[int, Path], count: int, stamps: Path) -> None:
    if max(files) >= count:
        raise CaptureError(f"{stamps} has {count} times, but {files[max(files)].name} lies next to it; {_REMEDY}")


def _camera(sequence: Sequence, name: str) -> Camera:
    path = sequence.folder / "camera" / name / "intrinsics.json"
    known = read_json_file(path)
    try:
        fx, fy, cx, cy = (float(known[k]) for k in ("fx", "fy", "cx", "cy"))
    except (KeyError, TypeError, ValueError) as error:
        raise CaptureError(f"{path} must have the numbers fx, fy, cx and cy; restore the file") from error
    if not (0 < fx < 1e5 and 0 < fy < 1e5 and 0 < cx < WIDTH and 0 < cy < HEIGHT):
        raise CaptureError(
            f"{path} has fx {fx:g}, fy {fy:g}, cx {cx:g}, cy {cy:g}, which is no camera of {WIDTH}x{HEIGHT} pixels; restore the file"
        )
    return Camera(name, WIDTH, HEIGHT, fx, fy, cx, cy, T_rig_cam=sequence.mountings[name], shutter="top_to_bottom")


def _images(sequence: Sequence, name: str, downscale: int) -> list[ImageFrame]:
    folder = sequence.folder / "camera" / name
    stamps = stamps_of(folder / "timestamps.json") - sequence.start
    files = numbered_images(folder, "*.jpg", "restore the folder, or choose other cameras by data.cameras")
    _check_numbers(files, len(stamps), folder / "timestamps.json")
    loads = [ImageFile(path, (WIDTH, HEIGHT), downscale, "intrinsics.json") for path in files.values()]
    loads[0].check()
    first, last = (stamps[list(files)] + d for d in SHUTTER)
    check_posed(sequence, last, folder / "timestamps.json")
    rows = zip(
        files, first.tolist(), last.tolist(), sequence.path.at(first), sequence.path.at(last), loads, strict=True
    )
    return [ImageFrame(name, *row) for row in rows]
