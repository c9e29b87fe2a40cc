# SPDX-License-Identifier: Apache-2.0
"""Frames that nobody captured: a sensor of the capture, or one of the caller's own, at any pose and time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

import torch
from torch import Tensor

from nurec_lite.base.errors import ConfigError
from nurec_lite.capture.trajectory import AnyFrame, frame_at, nearest, trajectory_of
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import invert
from nurec_lite.output.sensors import Pattern, with_sensor

REVOLUTION_S = 0.1  # seconds, of a lidar of the caller's own
Sensor = Camera | Lidar


class Frames:
    """Makes frames of a capture's sensors and of others."""

    def __init__(self, capture: Capture) -> None:
        self.capture, self.path = capture, trajectory_of(capture)
        self._with: dict[int, tuple[Sensor, Capture]] = {}  # by the identity of a sensor, which is kept

    def known(self, sensor: str | Sensor) -> Sensor:
        """The sensor of that name, or the sensor itself."""
        sensors: tuple[Sensor, ...] = (*self.capture.cameras, *self.capture.lidars)
        names = {one.name: one for one in sensors}
        return _of(sensor, names, (Camera, Lidar), "sensor")

    def camera(self, camera: str | Camera) -> Camera:
        found = _of(camera, {one.name: one for one in self.capture.cameras}, (Camera,), "camera")
        assert isinstance(found, Camera)
        return found

    def lidar(self, lidar: str | Lidar) -> Lidar:
        found = _of(lidar, {one.name: one for one in self.capture.lidars}, (Lidar,), "lidar")
        assert isinstance(found, Lidar)
        return found

    def capture_with(self, sensor: Sensor) -> Capture:
        """The capture that has the sensor. Always the same one, since views keep what they work out for a capture."""
        if self._owns(sensor):
            return self.capture
        if id(sensor) not in self._with:
            self._with[id(sensor)] = sensor, with_sensor(self.capture, sensor)
        return self._with[id(sensor)][1]

    def pose(self, sensor: Sensor, times: Tensor, shift: Sequence[float]) -> Tensor:
        """T_world_sensor [..., 4, 4] on the path, beside it by a shift in the rig's axes, in the world of the capture's files."""
        T = self.path.at(times) @ _translation(shift) @ _mount(sensor)
        return _translation(self.capture.origin) @ T

    def images(
        self, camera: Camera, start: Tensor | None, end: Tensor | None, times: Tensor, seconds: float | None
    ) -> Iterable[ImageFrame]:
        captured = [frame for frame in self.capture.images if frame.sensor == camera.name]
        for k, time in enumerate(times.tolist()):
            last = _lasts(captured, time, 0.0) if seconds is None else seconds
            if start is None and captured and seconds is None:
                yield frame_at(captured, self.path, time)
            else:
                ends = self._ends(camera, start, end, k, time, last)
                yield ImageFrame(camera.name, 0, time - 0.5 * last, time + 0.5 * last, *ends, _not_captured)

    def sweeps(
        self, lidar: Lidar, start: Tensor | None, end: Tensor | None, times: Tensor, seconds: float | None
    ) -> Iterable[SweepFrame]:
        captured = [frame for frame in self.capture.sweeps if frame.sensor == lidar.name and self._owns(lidar)]
        if captured and seconds is not None:
            raise ConfigError(f"seconds is for a lidar of your own; {lidar.name} turns as it did when it was recorded")
        for k, time in enumerate(times.tolist()):
            last = _lasts(captured, time, REVOLUTION_S) if seconds is None else seconds
            if captured:
                frame = frame_at(captured, self.path, time)
            else:
                load = Pattern(lidar, time - 0.5 * last, last)
                ends = self._ends(lidar, None, None, k, time, last)
                frame = SweepFrame(lidar.name, 0, time - 0.5 * last, time + 0.5 * last, *ends, load)
            poses = None if start is None else self._ends(lidar, start, end, k, time, last)
            yield frame if poses is None else replace(frame, T_world_rig_start=poses[0], T_world_rig_end=poses[1])

    def _owns(self, sensor: Sensor) -> bool:
        return any(sensor is known for known in (*self.capture.cameras, *self.capture.lidars))

    def _ends(
        self, sensor: Sensor, start: Tensor | None, end: Tensor | None, k: int, time: float, last: float
    ) -> tuple[Tensor, Tensor]:
        """T_world_rig [4, 4] at the start and at the end of a frame, about the capture's origin."""
        if start is None:
            return self.path.at(time - 0.5 * last), self.path.at(time + 0.5 * last)
        back, T_sensor_rig = _translation([-metres for metres in self.capture.origin]), invert(_mount(sensor))
        first, final = start[k], (start if end is None else end)[k]
        return back @ first @ T_sensor_rig, back @ final @ T_sensor_rig


def _of(given: object, known: Mapping[str, Sensor], kinds: tuple[type, ...], what: str) -> Sensor:
    if isinstance(given, kinds):
        return given  # type: ignore[return-value]
    if isinstance(given, str) and given in known:
        return known[given]
    named = f"'{given}'" if isinstance(given, str) else f"a {type(given).__name__}"
    there = f"the {what}s are {', '.join(known)}" if known else f"there is no {what}"
    raise ConfigError(
        f"{what} is {named}, but {there}; a {' or '.join(k.__name__ for k in kinds)} of your own may be given, too"
    )


def _lasts(captured: Sequence[AnyFrame], time: float, otherwise: float) -> float:
    if not captured:
        return otherwise
    frame = nearest(captured, time)
    return frame.time_end - frame.time_start


def _mount(sensor: Sensor) -> Tensor:
    return (sensor.T_rig_cam if isinstance(sensor, Camera) else sensor.T_rig_lidar).double()


def _translation(metres: Sequence[float]) -> Tensor:
    T = torch.eye(4, dtype=torch.float64)
    T[:3, 3] = torch.tensor([float(one) for one in metres], dtype=torch.float64)
    return T


def _not_captured() -> NoReturn:
    raise AssertionError("nothing was captured here")
