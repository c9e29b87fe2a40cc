# SPDX-License-Identifier: Apache-2.0
"""Waymo's cameras and their images, rows of a parquet file that hold a JPEG each. All have a rolling shutter."""

from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.arrow.library import REMEDY, check_once, damaged
from nurec_lite.capture.arrow.parquet import Row, read_columns
from nurec_lite.capture.files import mark_of_file, short
from nurec_lite.capture.images import check_header, decode_image
from nurec_lite.capture.types import CaptureError, Encoded, ImageFrame
from nurec_lite.capture.waymo.segment import CAMERA, CAMERAS, IMAGE, STAMP, Segment, named, poses_of
from nurec_lite.geometry.camera import Camera

PREFIX = "[CameraCalibrationComponent]."
LENS = ("f_u", "f_v", "c_u", "c_v", "k1", "k2", "p1", "p2", "k3")
# Waymo's cameras look along x, with y to the left and z up
T_WAYMO_CAM = torch.tensor([[0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]], dtype=torch.float64)
SHUTTERS = {
    1: "top_to_bottom",
    2: "left_to_right",
    3: "bottom_to_top",
    4: "right_to_left",
}  # others: all pixels at once
SHUTTER, TRIGGER, DONE = (
    f"{IMAGE}rolling_shutter_params.{k}" for k in ("shutter", "camera_trigger_time", "camera_readout_done_time")
)
LONGEST = 0.5  # seconds from the trigger to the end of the readout


@dataclass(frozen=True)
class ImageRow:
    """Loads one image. Plain data, so that it pickles."""

    row: Row
    size: tuple[int, int]  # width, height
    downscale: int

    def __call__(self) -> Tensor:  # [H, W, 3] uint8
        return decode_image(self.encoded())

    def check(self) -> None:
        check_header(self.encoded())

    def encoded(self) -> Encoded:
        value = self.row.read((f"{IMAGE}image",))[f"{IMAGE}image"]
        with damaged(self.row.path):
            data = value.as_py()
            if not isinstance(data, bytes):
                raise CaptureError(f"{self.row.path} row {self.row.number} holds no image; {REMEDY}")
        return Encoded(data, f"{self.row.path} row {self.row.number}", self.size, self.downscale, "camera_calibration")

    def mark(self, thorough: bool) -> tuple[int, int]:
        return mark_of_file(self.row.path, thorough)


def read_cameras(segment: Segment) -> dict[str, Camera]:
    path = segment.file("camera_calibration")
    pose, width, height, direction = (
        f"{PREFIX}{k}" for k in ("extrinsic.transform", "width", "height", "rolling_shutter_direction")
    )
    numbers = {f"{PREFIX}intrinsic.{k}": float for k in LENS}
    table = read_columns(path, {CAMERA: object, pose: list, width: int, height: int, direction: object, **numbers})
    mounted, found, names = poses_of(table, pose, path), {}, named(table[CAMERA], CAMERAS)
    check_once(names, path)
    _check_described(segment, names, path)
    for k, name in enumerate(names):
        fx, fy, cx, cy, *distortion = (float(table[key][k]) for key in numbers)
        w, h = int(table[width][k]), int(table[height][k])
        if not (0 < fx < 1e5 and 0 < fy < 1e5 and 0 < cx < w < 1e5 and 0 < cy < h < 1e5):
            raise CaptureError(f"{path}: {name} is no camera of {w}x{h} pixels; {REMEDY}")
        shutter = _shutter(table[direction][k])
        lens = tuple(distortion) if any(distortion) else ()
        found[name] = Camera(name, w, h, fx, fy, cx, cy, mounted[k] @ T_WAYMO_CAM, lens, shutter)
    return found


def _check_described(segment: Segment, names: Container[str], calibration: Path) -> None:
    """Refuses images of a camera without intrinsics."""
    for name in named(read_columns(segment.file("camera_image"), {CAMERA: object})[CAMERA], CAMERAS):
        if name not in names:
            raise CaptureError(f"{calibration} has no row of {short(name)}; {REMEDY}")


def _shutter(direction: object) -> str:
    """Shutter of a number, or of its name."""
    known = {name.upper(): name for name in SHUTTERS.values()} | {str(k): name for k, name in SHUTTERS.items()}
    return known.get(str(direction), "global")


def image_frames(segment: Segment, camera: Camera, downscale: int) -> list[ImageFrame]:
    """Frames of images. The first row is exposed around half of the shutter's time after the trigger, the last one as long before the
    end."""
    path = segment.file("camera_image")
    table = read_columns(path, {STAMP: int, CAMERA: object, SHUTTER: float, TRIGGER: float, DONE: float})
    own = np.array([name == camera.name for name in named(table[CAMERA], CAMERAS)])
    rows = np.flatnonzero(own)[np.argsort(table[STAMP][own], kind="stable")]
    first, last = _exposed(segment, table[SHUTTER][rows], table[TRIGGER][rows], table[DONE][rows])
    if camera.shutter == "global":
        first = last = 0.5 * (first + last)
    poses = [segment.path.at(torch.from_numpy(times)) for times in (first, last)]
    size = (camera.width, camera.height)
    loads = [ImageRow(Row(path, int(row)), size, downscale) for row in rows]
    if loads:
        loads[0].check()
    numbers = segment.number(table[STAMP][rows]).tolist()
    parts = zip(numbers, first.tolist(), last.tolist(), *poses, loads, strict=True)
    return [ImageFrame(camera.name, *part) for part in parts]


def _exposed(
    segment: Segment, shutter: "np.ndarray", trigger: "np.ndarray", done: "np.ndarray"
) -> tuple["np.ndarray", "np.ndarray"]:
    """Seconds [n] of the first and of the last row."""
    first, last = trigger + 0.5 * shutter - segment.start * 1e-6, done - 0.5 * shutter - segment.start * 1e-6
    if not ((shutter >= 0) & (first <= last) & (last - first < LONGEST)).all():
        raise CaptureError(
            f"{segment.file('camera_image')} has images that end before they begin, or last too long; {REMEDY}"
        )
    return first, last
