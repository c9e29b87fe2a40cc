# SPDX-License-Identifier: Apache-2.0
"""Reads a scene of nuScenes (https://www.nuscenes.org) as a capture: cameras at 12 Hz, the lidar at 20 Hz, moving objects of key frames.

Seconds count from 0.1 s before the first pose. Radars are left out.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from nurec_lite.capture.choice import chosen_sensors
from nurec_lite.capture.downscale import downscaled
from nurec_lite.capture.images import ImageFile
from nurec_lite.capture.nuscenes.boxes import read_tracks
from nurec_lite.capture.nuscenes.rays import lidar_of, sweep_frames
from nurec_lite.capture.nuscenes.scene import CAMERAS, LIDAR, Scene, open_scene
from nurec_lite.capture.nuscenes.tables import field
from nurec_lite.capture.types import Capture, CaptureError, Doubt, ImageFrame
from nurec_lite.geometry.camera import Camera


def read_nuscenes(
    root: Path,
    *,
    drive: str | None = None,  # name of a scene, such as scene-0061, or its place among them
    cameras: Sequence[str] | None = None,  # None: all that are there
    lidars: Sequence[str] | None = None,  # None: LIDAR_TOP, if it is there
    downscale: int = 1,
) -> Capture:
    scene = open_scene(root, drive)
    names = chosen_sensors("data.cameras", cameras, [name for name in CAMERAS if name in scene.files], scene.name)
    chosen_sensors("data.lidars", lidars, [LIDAR] if LIDAR in scene.files else [], scene.name)
    sensors = {name: _camera(scene, name, downscale) for name in names}
    lidar = lidar_of(scene) if LIDAR in scene.files else None
    return Capture(
        name=f"nuscenes_{scene.name}",
        cameras=tuple(sensors.values()),
        lidars=() if lidar is None else (lidar,),
        images=tuple(frame for name in names for frame in _images(scene, name, downscale)),
        sweeps=() if lidar is None else tuple(sweep_frames(scene, lidar)),
        tracks=read_tracks(scene, lidar),
        doubts=tuple(_doubts(scene)),
    )


def _camera(scene: Scene, name: str, downscale: int) -> Camera:
    width, height = _size(scene, name)
    rows = scene.lenses[name]
    try:
        (fx, _, cx), (_, fy, cy), _ = ([float(v) for v in row] for row in rows)
    except (TypeError, ValueError) as error:
        raise CaptureError(
            f"calibrated_sensor.json: camera_intrinsic of {name} must be 3x3 numbers; restore the table"
        ) from error
    if not (0 < fx < 1e5 and 0 < fy < 1e5 and 0 < cx < width and 0 < cy < height):
        raise CaptureError(f"calibrated_sensor.json: {name} is no camera of {width}x{height} pixels; restore the table")
    return downscaled(Camera(name, width, height, fx, fy, cx, cy, T_rig_cam=scene.mountings[name]), downscale)


def _size(scene: Scene, name: str) -> tuple[int, int]:
    row = scene.files[name][0].row
    return field(row, "width", int, "sample_data"), field(row, "height", int, "sample_data")


def _images(scene: Scene, name: str, downscale: int) -> list[ImageFrame]:
    files, size = scene.files[name], _size(scene, name)
    loads = [ImageFile(file.path, size, downscale, "sample_data.json") for file in files]
    loads[0].check()
    times = [file.stamp for file in files]
    poses = scene.path.at(torch.tensor(times, dtype=torch.float64))
    return [
        ImageFrame(name, k, time, time, pose, pose, load)
        for k, (time, pose, load) in enumerate(zip(times, poses, loads, strict=True))
    ]


def _doubts(scene: Scene) -> list[Doubt]:
    if not scene.absent:
        return []
    files, are = ("file", "is") if scene.absent == 1 else ("files", "are")
    sentence = f"{scene.absent} {files} of {scene.name} {are} not there, so that sensors have fewer frames."
    return [Doubt(scene.name, False, sentence, "download samples and sweeps of its part of nuScenes")]
