# SPDX-License-Identifier: Apache-2.0
"""The YAML that assigns topics of a recording to sensors, and adds data that messages lack."""

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nurec_lite.capture.files import short
from nurec_lite.capture.rosbag.storage import ALWAYS
from nurec_lite.capture.types import CaptureError
from nurec_lite.capture.yaml_files import read_yaml
from nurec_lite.geometry.camera import SHUTTERS

REMEDY = "python -m nurec_lite.inspect data=rosbag data.root=BAG writes one that fits"
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
MODELS = ("plumb_bob", "rational_polynomial", "equidistant")
STAMPS = ("start", "middle", "end")
VEHICLE = (2.5, 1.6)  # metres ahead of the lidar and to its sides; nearer returns are the vehicle's own
_RIGID = 1e-3  # largest deviation of a rotation
_LATEST = 1e10  # seconds


@dataclass(frozen=True)
class Intrinsics:
    """Intrinsics of a camera without CameraInfo, as OpenCV has them: the centre of the first pixel is at (0, 0)."""

    width: int  # pixels
    height: int
    fx: float  # pixels
    fy: float
    cx: float
    cy: float
    model: str = "plumb_bob"  # of MODELS
    distortion: tuple[float, ...] = ()


@dataclass(frozen=True)
class CameraEntry:
    name: str
    images: str  # topic
    info: str | None = None  # topic
    frame: str | None = None  # None: that of the images' headers
    rectified: bool = False  # images are those that the projection matrix of CameraInfo describes
    optical: bool | None = None  # the frame's z looks ahead; False: its x does. None: as it is mounted
    delay: float = 0.0  # seconds from the middle of the exposure to the stamp
    readout: float = 0.0  # seconds from the first row to the last
    shutter: str = "global"  # of SHUTTERS
    T_rig_sensor: Tensor | None = None  # [4, 4]; None: by tf
    intrinsics: Intrinsics | None = None  # None: by CameraInfo

    @property
    def topic(self) -> str:
        return self.images


@dataclass(frozen=True)
class LidarEntry:
    name: str
    points: str  # topic
    frame: str | None = None  # None: that of the points' headers
    ring: str | None = None  # name of the field; None: found
    time: str | None = None  # name of the field; None: found
    unit: str | None = None  # of UNITS, of the field's time; None: found
    intensity: str | None = None  # name of the field; None: found
    stamp: str = "start"  # of STAMPS: the stamped moment of the sweep, where points have no time on its clock
    spins: bool | None = None  # False: rays in any directions at any times, without rows and columns; None: found
    rays: Path | None = (
        None  # table of the rays of every sweep (ray_files.py); None: they differ, or are those of beams
    )
    compensated: bool = False  # points are those that the lidar would have seen at the stamp
    vehicle: tuple[float, ...] = VEHICLE
    delay: float = 0.0  # seconds from the measurement to the stamp
    T_rig_sensor: Tensor | None = None  # [4, 4]; None: by tf

    @property
    def topic(self) -> str:
        return self.points


Sensor = CameraEntry | LidarEntry


@dataclass(frozen=True)
class PosesEntry:
    """Source of the poses: a topic of poses, tf, or positions of a receiver with the attitude of an inertial unit."""

    topic: str | None = None
    frame: str | None = None  # the frame that has the poses; None: as the messages say
    world: str | None = None  # of tf: the frame that stands still
    fix: str | None = None  # topic of NavSatFix
    imu: str | None = None  # topic of Imu


@dataclass(frozen=True)
class Mapping:
    source: str  # file or recording, for messages
    cameras: tuple[CameraEntry, ...]
    lidars: tuple[LidarEntry, ...] = ()
    poses: PosesEntry = field(default_factory=PosesEntry)
    rig: str | None = None  # frame of the vehicle; None: found
    seconds: tuple[float, ...] | None = None  # first and last of the recording that are read

    @property
    def sensors(self) -> tuple[Sensor, ...]:
        return (*self.lidars, *self.cameras)

    @property
    def topics(self) -> list[str]:
        """Topics that it names."""
        found: list[str | None] = [*(s.topic for s in self.sensors), *(c.info for c in self.cameras)]
        found += [self.poses.topic, self.poses.fix, self.poses.imu]
        return [topic for topic in found if topic]


def read_mapping(path: Path) -> Mapping:
    value = read_yaml(path, REMEDY)
    return Reader(str(path)).mapping(value)


# ---- values: each function returns the value, or raises ValueError with the allowed ones


def _text(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 1024 or not value.isprintable():
        raise ValueError("a text")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= _LATEST:
        raise ValueError("a finite number")
    return float(value)


def _size(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= 1 << 16:
        raise ValueError("a number of pixels")
    return value


def _some(value: Any, counts: tuple[int, ...]) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) not in counts:
        raise ValueError(f"a list of {' or '.join(map(str, counts))} numbers")
    return tuple(_number(v) for v in value)


def _seconds(value: Any) -> tuple[float, ...]:
    first, last = _some(value, (2,))
    if not 0 <= first < last:
        raise ValueError("two numbers that rise, from 0")
    return first, last


def _vehicle(value: Any) -> tuple[float, ...]:
    ahead, beside = _some(value, (2,))
    if not (0 <= ahead <= 100 and 0 <= beside <= 100):
        raise ValueError("two lengths of 0 to 100 metres")
    return ahead, beside


def _distortion(value: Any) -> tuple[float, ...]:
    return _some(value, (0, 4, 5, 8, 12))


def _pose(value: Any) -> Tensor:  # [4, 4]
    rows = value if isinstance(value, list) and len(value) in (3, 4) else []
    if not all(isinstance(row, list) and len(row) == 4 for row in rows) or not rows:
        raise ValueError("3 or 4 rows of 4 numbers: the matrix that takes points of the sensor to the rig")
    matrix = torch.eye(4, dtype=torch.float64)
    matrix[: len(rows)] = torch.tensor([[_number(v) for v in row] for row in rows], dtype=torch.float64)
    R = matrix[:3, :3]
    if float((R @ R.T - torch.eye(3)).abs().max()) > _RIGID or float(torch.linalg.det(R)) < 0:
        raise ValueError("a rotation and a translation")
    if matrix[3].tolist() != [0, 0, 0, 1]:
        raise ValueError("a matrix with the last row 0 0 0 1")
    return matrix


def _one_of(choices: tuple[str, ...]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return str(value)

    return check


_INTRINSICS = dict.fromkeys(("width", "height"), _size) | dict.fromkeys(("fx", "fy", "cx", "cy"), _number)
_CAMERA: dict[str, Callable[[Any], Any]] = {
    "images": _text, "info": _text, "frame": _text, "rectified": _flag, "optical": _flag, "delay": _number,
    "readout": _number, "shutter": _one_of(SHUTTERS), "T_rig_sensor": _pose,
}  # fmt: skip
_LIDAR: dict[str, Callable[[Any], Any]] = {
    "points": _text, "frame": _text, "ring": _text, "time": _text, "unit": _one_of(tuple(UNITS)), "intensity": _text,
    "stamp": _one_of(STAMPS), "spins": _flag, "rays": _text, "compensated": _flag,
    "vehicle": _vehicle, "delay": _number, "T_rig_sensor": _pose,
}  # fmt: skip


@dataclass(frozen=True)
class Reader:
    """Turns the plain values of a YAML into a Mapping; CaptureError names the key."""

    source: str

    def mapping(self, value: Any) -> Mapping:
        poses: dict[str, Callable[[Any], Any]] = dict.fromkeys((f.name for f in fields(PosesEntry)), _text)
        checks: dict[str, Callable[[Any], Any]] = {
            "rig": _text, "seconds": _seconds, "cameras": self._several("cameras", self._camera),
            "lidars": self._several("lidars", self._lidar), "poses": lambda v: self._record("poses", v, poses),
        }  # fmt: skip
        found = self._record("", value, checks)
        if not found.get("cameras"):
            raise CaptureError(f"{self.source} names no camera; give cameras: NAME: images: TOPIC, or {REMEDY}")
        return Mapping(source=self.source, **found | {"poses": PosesEntry(**found.get("poses", {}))})

    def _several(self, key: str, read: Callable[[str, Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
        def check(value: Any) -> tuple[Any, ...]:
            if not isinstance(value, dict) or len(value) > 100:
                raise ValueError("a name and its keys for each sensor")
            return tuple(read(f"{key}.{short(name)}", (str(name), entry)) for name, entry in value.items())

        return check

    def _camera(self, where: str, value: Any) -> CameraEntry:
        name, entry = value
        found = self._record(where, entry, _CAMERA | {"intrinsics": lambda v: self._intrinsics(where, v)})
        self._needed(where, found, "images")
        if found.get("readout", 0.0) < 0:
            raise CaptureError(
                f"{self.source}: {where}.readout is negative; give the seconds from the first row to the last"
            )
        if (found.get("readout", 0.0) > 0) != (found.get("shutter", "global") != "global"):
            raise CaptureError(f"{self.source}: {where} needs both shutter and readout, or neither; complete it")
        return CameraEntry(name, **found)

    def _intrinsics(self, where: str, value: Any) -> Intrinsics:
        checks = _INTRINSICS | {"model": _one_of(MODELS), "distortion": _distortion}
        found = self._record(f"{where}.intrinsics", value, checks)
        for key in _INTRINSICS:
            self._needed(f"{where}.intrinsics", found, key)
        return Intrinsics(**found)

    def _lidar(self, where: str, value: Any) -> LidarEntry:
        name, entry = value
        found = self._record(where, entry, _LIDAR)
        self._needed(where, found, "points")
        if "rays" in found:
            if found.setdefault("spins", False):
                raise CaptureError(f"{self.source}: {where} spins, but gives rays; leave one of them out")
            found["rays"] = Path(self.source).parent / Path(found["rays"]).expanduser()
        return LidarEntry(name, **found)

    def _needed(self, where: str, found: dict[str, Any], key: str) -> None:
        if key not in found:
            raise CaptureError(f"{self.source}: {where} lacks the key {key}; give it, or {REMEDY}")

    def _record(self, where: str, value: Any, checks: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise CaptureError(f"{self.source}: {where or 'the file'} holds no keys, as in cameras: ...; {REMEDY}")
        found = {}
        for key, one in value.items():
            name = f"{where}.{short(key)}".lstrip(".")
            if key not in checks:
                near = difflib.get_close_matches(str(key), checks, 1)
                remedy = f"did you mean {near[0]}?" if near else f"choose of {', '.join(checks)}"
                raise CaptureError(f"{self.source}: key {name} is unknown; {remedy}")
            if one is None:
                continue
            try:
                found[key] = checks[key](one)
            except CaptureError:
                raise
            except ValueError as error:
                raise CaptureError(
                    f"{self.source}: {name} is '{short(one)}', but must be {error}; correct it"
                ) from error
        return found


def seconds_window(mapping: Mapping, start: int) -> tuple[int, int]:  # nanoseconds
    if mapping.seconds is None:
        return ALWAYS
    first, last = mapping.seconds
    return start + math.floor(first * 1e9), start + math.ceil(last * 1e9)
