# SPDX-License-Identifier: Apache-2.0
"""Frames that no sensor captured: a sensor of the capture, or one of the caller's own, at any pose and time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.texts import type_of
from nurec_lite.capture.check import sensor_flaws
from nurec_lite.capture.trajectory import frame_at, nearest, trajectory_of
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import invert
from nurec_lite.output.sensors import REVOLUTION_S, NovelSensor, sensors_of, with_sensor

Sensor = Camera | Lidar
S = TypeVar("S", Camera, Lidar)


class Frames:
    """Makes frames of a capture's sensors and of others."""

    def __init__(self, capture: Capture) -> None:
        self.capture, self.path = capture, trajectory_of(capture)
        self._with: dict[int, tuple[Sensor, Capture]] = {}  # by the identity of a sensor, which is kept

    def known(self, sensor: str | Sensor | NovelSensor) -> Sensor:
        """The sensor of that name, or the sensor itself."""
        if isinstance(sensor, NovelSensor):
            return sensor.sensor
        names = {one.name: one for one in sensors_of(self.capture)}
        return _of(sensor, names, (Camera, Lidar), "sensor")

    def camera(self, camera: str | Camera | NovelSensor) -> NovelSensor | Camera:
        return self._found(camera, {one.name: one for one in self.capture.cameras}, Camera, "camera")

    def lidar(self, lidar: str | Lidar | NovelSensor) -> NovelSensor | Lidar:
        return self._found(lidar, {one.name: one for one in self.capture.lidars}, Lidar, "lidar")

    def _found(self, given: object, known: Mapping[str, S], kind: type[S], what: str) -> NovelSensor | S:
        if isinstance(given, NovelSensor) and isinstance(given.sensor, kind):
            return given
        found = _of(given, known, (kind,), what)
        assert isinstance(found, kind)
        return found

    def capture_with(self, given: Sensor | NovelSensor) -> Capture:
        """The capture that has the sensor. Always the same object, because views cache results for a capture."""
        sensor = given.sensor if isinstance(given, NovelSensor) else given
        if self._owns(sensor):
            return self.capture
        if id(sensor) not in self._with:
            self._with[id(sensor)] = sensor, with_sensor(self.capture, sensor)
        return self._with[id(sensor)][1]

    def pose(self, sensor: Sensor, times: Tensor, shift: Sequence[float]) -> Tensor:
        """T_world_sensor [..., 4, 4] on the path, off it by a shift in the rig's axes, in the world of the capture's files."""
        T = self.path.at(times) @ _translation(shift) @ _mount(sensor)
        return _translation(self.capture.origin) @ T

    def images(
        self,
        camera: Camera | NovelSensor,
        start: Tensor | None,  # [B, 4, 4] T_world_sensor; None: on the path
        end: Tensor | None,  # [B, 4, 4] poses at the ends
        times: Tensor,  # [B] seconds
        seconds: float | None,  # of the readout; None: as long as it takes
    ) -> Iterable[ImageFrame]:
        """A frame of each time."""
        own = camera if isinstance(camera, NovelSensor) else None
        sensor = camera.sensor if isinstance(camera, NovelSensor) else camera
        captured = [] if own else [frame for frame in self.capture.images if frame.sensor == sensor.name]
        for k, time in enumerate(times.tolist()):
            last = (own.seconds if own else _lasts(captured, time)) if seconds is None else seconds
            if start is None and captured and seconds is None:
                yield frame_at(captured, self.path, time)
            else:
                frame = NovelSensor(sensor, last).frame(time, *self._ends(sensor, start, end, k, time, last))
                assert isinstance(frame, ImageFrame)
                yield frame

    def sweeps(
        self,
        lidar: Lidar | NovelSensor,
        start: Tensor | None,  # [B, 4, 4] T_world_sensor; None: on the path
        end: Tensor | None,  # [B, 4, 4] poses at the ends
        times: Tensor,  # [B] seconds
        seconds: float | None,  # of a revolution, of a lidar of the caller's own
    ) -> Iterable[SweepFrame]:
        """A frame of each time: the rays of the nearest sweep, or those of the lidar's own pattern."""
        own = lidar if isinstance(lidar, NovelSensor) else NovelSensor(lidar, REVOLUTION_S)
        captured = [frame for frame in self.capture.sweeps if frame.sensor == own.sensor.name and self._owns(lidar)]
        if captured and seconds is not None:
            raise ConfigError(
                f"seconds is for a lidar of your own, but {own.sensor.name} turns as recorded; leave it out"
            )
        own = own if seconds is None else replace(own, seconds=seconds)
        for k, time in enumerate(times.tolist()):
            frame = frame_at(captured, self.path, time) if captured else None
            last = own.seconds if frame is None else frame.time_end - frame.time_start
            ends = self._ends(own.sensor, start, end, k, time, last)
            if frame is not None and start is None:
                yield frame
            elif frame is not None:
                yield replace(frame, T_world_rig_start=ends[0], T_world_rig_end=ends[1])
            else:
                made = own.frame(time, *ends)
                assert isinstance(made, SweepFrame)
                yield made

    def _owns(self, sensor: Sensor | NovelSensor) -> bool:
        return any(sensor is known for known in sensors_of(self.capture))

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
        _check_sensor(given, known, what)  # type: ignore[arg-type]
        return given  # type: ignore[return-value]
    if isinstance(given, str) and given in known:
        return known[given]
    named = f"'{given}'" if isinstance(given, str) else type_of(given)
    there = f"the {what}s are {', '.join(known)}" if known else f"there is no {what}"
    raise ConfigError(
        f"{what} is {named}, but {there}; a {' or '.join(k.__name__ for k in kinds)} of your own may be given, too"
    )


def _check_sensor(given: Sensor, known: Mapping[str, Sensor], what: str) -> None:
    """Raises ConfigError for a flaw of a sensor that is not the capture's."""
    if any(given is one for one in known.values()):
        return
    for flaw in sensor_flaws(given):
        raise ConfigError(f"{what} {given.name} has {flaw}; correct it")


def _lasts(captured: Sequence[ImageFrame], time: float) -> float:
    if not captured:
        return 0.0
    frame = nearest(captured, time)
    return frame.time_end - frame.time_start


def _mount(sensor: Sensor) -> Tensor:
    return (sensor.T_rig_cam if isinstance(sensor, Camera) else sensor.T_rig_lidar).double()


def _translation(metres: Sequence[float]) -> Tensor:
    T = torch.eye(4, dtype=torch.float64)
    T[:3, 3] = torch.tensor([float(one) for one in metres], dtype=torch.float64)
    return T
