# SPDX-License-Identifier: Apache-2.0
"""The plan of a render along a camera path (`path=FILE`)."""

from collections.abc import Sequence
from pathlib import Path

import torch

from nurec_lite.base.errors import ConfigError
from nurec_lite.capture.trajectory import nearest, trajectory_of
from nurec_lite.capture.types import Capture, ImageFrame
from nurec_lite.config import RenderConfig
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.se3 import invert
from nurec_lite.output.camera_path import CameraPath, Key, read_camera_path
from nurec_lite.output.plan import EDGE_S, Plan, Shot, check_formats, check_numbers, moments_of
from nurec_lite.output.sensors import NovelSensor, sensors_of, with_sensor

NAME = "path"  # of the camera, unless the path names one
_OTHERS = ("times", "shift", "sensors", "subset", "compare")  # keys that choose other frames


def path_plan(
    config: RenderConfig,
    capture: Capture,
    own: Sequence[NovelSensor],  # of `sensor=FILE`
) -> tuple[Plan, Capture]:
    """One shot for each picture of the film, and the capture with the path's camera. ConfigError where the path and the capture or other
    keys do not fit."""
    assert config.path is not None
    check_numbers(config)
    default = RenderConfig()
    given = [key for key in _OTHERS if getattr(config, key) != getattr(default, key)]
    if given:
        raise ConfigError(f"path={config.path} has its own times and places; leave out {given[0]}")
    path = read_camera_path(Path(config.path))
    camera = _camera(config.path, path, capture, own)
    check_formats(config, [camera.name], [], True)
    _check_times(config.path, path, capture)
    moments_of(config.path, path.keys[-1].film - path.keys[0].film, config.fps)
    shots = [
        _shot(capture, camera, key, f"{number:04d}")
        for number, key in enumerate(path.sampled(config.fps))
    ]  # fmt: skip
    return Plan({camera.name: shots}, {}), with_sensor(capture, camera)


def _camera(file: str, path: CameraPath, capture: Capture, own: Sequence[NovelSensor]) -> Camera:
    others = {one.sensor.name: one.sensor for one in own if isinstance(one.sensor, Camera)}
    named = path.lens if isinstance(path.lens, str) else None
    idle = [one.sensor.name for one in own if one.sensor.name != named]
    if idle:
        raise ConfigError(
            f"sensor gives '{idle[0]}', which {file} does not use; name it there as the camera, or leave it out"
        )
    if not isinstance(path.lens, str):
        return path.lens.camera(free_name(capture))
    known = {camera.name: camera for camera in capture.cameras} | others
    if path.lens not in known:
        raise ConfigError(f"{file}: camera is '{path.lens}', but the cameras of {capture.name} are {', '.join(known)}")
    return known[path.lens]


def free_name(capture: Capture) -> str:
    """A name for a camera that no sensor of the capture has."""
    names, name = {one.name.casefold() for one in sensors_of(capture)}, NAME
    while name in names:
        name += "-own"
    return name


def _check_times(file: str, path: CameraPath, capture: Capture) -> None:
    first, last = trajectory_of(capture).span
    for i, key in enumerate(path.keys):
        if not first - EDGE_S <= key.time <= last + EDGE_S:
            raise ConfigError(
                f"{file}: poses[{i}].time_s is {key.time:g}, but the drive spans {first:z.3f} to {last:z.3f} s; choose times within it"
            )


def _shot(capture: Capture, camera: Camera, key: Key, label: str) -> Shot[ImageFrame]:
    """Shot of a camera that stands still while it exposes."""
    T = key.T_world_cam.clone()
    T[:3, 3] -= torch.tensor(capture.origin, dtype=torch.float64)
    T_world_rig = T @ invert(camera.T_rig_cam.double())
    frame = NovelSensor(camera, 0.0).frame(key.time, T_world_rig, T_world_rig, int(label))
    assert isinstance(frame, ImageFrame)
    return Shot(frame, nearest(capture.images, key.time), False, label)
