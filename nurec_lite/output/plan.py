# SPDX-License-Identifier: Apache-2.0
"""The plan of a render: sensors, times and places that a configuration asks for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic

from nurec_lite.base.errors import ConfigError
from nurec_lite.capture.trajectory import AnyFrame, Trajectory, frame_at, nearest, shifted, trajectory_of
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.config import RenderConfig
from nurec_lite.evaluation.measure import frames_of
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.output.films import KINDS, check_video
from nurec_lite.output.map_files import exr
from nurec_lite.output.maps import OUTPUTS
from nurec_lite.output.sensors import NovelSensor

PICTURES = ("png", *KINDS)
POINTS = ("npz", "ply")
EXR = "exr"
MOST_MOMENTS = 200_000  # of a film: almost two hours with 30 a second
EDGE_S = 1e-3  # seconds that a time may lie outside the drive: errors print its span to the millisecond


@dataclass(frozen=True)
class Shot(Generic[AnyFrame]):
    """One frame to render."""

    frame: AnyFrame  # with the poses and times that are wanted
    captured: AnyFrame  # the very frame before the shift, or the nearest in time; of another sensor if this one captured nothing
    own: bool  # the times are those of the captured frame
    label: str  # of its files


@dataclass(frozen=True)
class Plan:
    """Shots by the name of the sensor, in time order."""

    images: dict[str, list[Shot[ImageFrame]]]
    sweeps: dict[str, list[Shot[SweepFrame]]]

    def __len__(self) -> int:
        return sum(map(len, self.images.values())) + sum(map(len, self.sweeps.values()))


def make_plan(config: RenderConfig, capture: Capture, own: Sequence[NovelSensor] = ()) -> Plan:
    """Returns the plan of all renders; ConfigError for a request that the capture cannot meet."""
    check_numbers(config)
    names = [] if own and config.sensors is None else _sensors(config, capture)
    cameras = [camera.name for camera in capture.cameras if camera.name in names]
    lidars = [lidar.name for lidar in capture.lidars if lidar.name in names]
    eyes, scanners = ([one for one in own if isinstance(one.sensor, kind)] for kind in (Camera, Lidar))
    check_formats(config, [*cameras, *map(_name, eyes)], [*lidars, *map(_name, scanners)], bool(own))
    _check_idle(config, cameras, [*cameras, *map(_name, eyes)])
    path = trajectory_of(capture)
    times, chosen = _moments(config, path), frames_of(capture, config.subset)
    pictures = bool(set(config.formats) & _of_cameras(config))
    images, sweeps = [capture.images[i] for i in chosen.images], [capture.sweeps[i] for i in chosen.sweeps]
    plan = Plan(
        {
            name: _shots(config, _of(capture.images, name), _of(images, name), path, times)
            for name in cameras
            if pictures
        },
        {name: _shots(config, _of(capture.sweeps, name), _of(sweeps, name), path, times) for name in lidars},
    )
    for one in eyes if pictures else []:
        plan.images[_name(one)] = _own_shots(config, one, capture.images, images, path, times)
    for one in scanners:
        plan.sweeps[_name(one)] = _own_shots(config, one, capture.sweeps, sweeps, path, times)
    return _without_empty(config, capture, plan)


def _name(own: NovelSensor) -> str:
    return own.sensor.name


def check_numbers(config: RenderConfig) -> None:
    if not 0 < config.fps <= 1000:
        raise ConfigError(f"fps is {config.fps:g}, but must be above 0 and at most 1000")
    if len(config.shift) != 3 or not all(map(math.isfinite, config.shift)):
        raise ConfigError(f"shift is {config.shift}, but takes metres forward, left and up, as in shift=0,1,0")


def _sensors(config: RenderConfig, capture: Capture) -> list[str]:
    known = [camera.name for camera in capture.cameras] + [lidar.name for lidar in capture.lidars]
    names = known if config.sensors is None else config.sensors
    unknown = [name for name in names if name not in known]
    if unknown:
        file = f"; give a file by sensor={unknown[0]}" if unknown[0].endswith((".yaml", ".yml")) else ""
        raise ConfigError(
            f"sensors names '{unknown[0]}', but the sensors of {capture.name} are {', '.join(known)}{file}"
        )
    if not names:
        raise ConfigError(f"sensors is empty; name some of {', '.join(known)}, or leave sensors out for all of them")
    return list(names)


def _of_cameras(config: RenderConfig) -> set[str]:
    """Formats of written cameras: NPZ only where outputs are named, since other renders want it of lidars alone."""
    return {*PICTURES, EXR} if config.outputs is None else {*PICTURES, EXR, "npz"}


def _check_outputs(config: RenderConfig, cameras: list[str]) -> None:
    unknown = [name for name in config.outputs or () if name not in OUTPUTS]
    if unknown or config.outputs == []:
        what = f"holds '{unknown[0]}'" if unknown else "is empty"
        raise ConfigError(f"outputs {what}, but takes some of {', '.join(OUTPUTS)}")
    films = set(config.formats) & set(KINDS)
    if cameras and films == set(config.formats) and config.outputs is not None and "colour" not in config.outputs:
        raise ConfigError(
            f"formats asks for {min(films)} alone, which shows the colour that outputs leaves out; add colour to outputs, or png or npz "
            "to formats"
        )


def check_formats(config: RenderConfig, cameras: list[str], lidars: list[str], own: bool) -> None:
    unknown = [name for name in config.formats if name not in (*PICTURES, *POINTS, EXR)]
    if unknown or not config.formats:
        what = f"holds '{unknown[0]}'" if unknown else "is empty"
        raise ConfigError(
            f"formats {what}, but takes some of {', '.join(PICTURES)}; of cameras also {EXR}, of lidars {', '.join(POINTS)}"
        )
    _check_outputs(config, cameras)
    points = [name for name in config.formats if name not in _of_cameras(config) or (not cameras and name in POINTS)]
    if points and not lidars:
        raise ConfigError(f"formats asks for {points[0]}, which holds points of a lidar, but none is among the sensors")
    named = own or config.sensors is not None or config.outputs is not None  # cameras are asked for
    if points == config.formats and cameras and named:
        raise ConfigError(
            f"'{cameras[0]}' is a camera, but formats asks for points of lidars alone; add png to formats"
        )
    if config.formats == [EXR] and not cameras:
        raise ConfigError(f"formats asks for {EXR}, which holds images of a camera, but none is among the sensors")
    if "mp4" in config.formats:
        check_video()
    if EXR in config.formats:
        exr()


def _moments(config: RenderConfig, path: Trajectory) -> list[float] | None:  # seconds; None: the frames' own
    if config.times is None:
        return None
    span = f"the drive spans {path.span[0]:z.3f} to {path.span[1]:z.3f} s"
    if len(config.times) not in (1, 2) or config.times != sorted(config.times):
        raise ConfigError(f"times is {config.times}, but takes one moment or the first and the last one; {span}")
    for time in config.times:
        if not path.span[0] - EDGE_S <= time <= path.span[1] + EDGE_S:
            raise ConfigError(f"times asks for {time:g} s, but {span}; choose times within it")
    first, last = config.times[0], config.times[-1]
    return [first + n / config.fps for n in range(moments_of(f"times={config.times}", last - first, config.fps))]


def moments_of(
    what: str,  # holds the span, for the message
    seconds: float,
    fps: float,
) -> int:
    """Number of moments of a span, both ends included; ConfigError for more than a film may have."""
    count = math.floor(seconds * fps + 1e-6) + 1
    if count > MOST_MOMENTS:
        raise ConfigError(
            f"{what} at fps={fps:g} has {count} moments, but may have {MOST_MOMENTS}; lower fps, or take a shorter span"
        )
    return count


def _check_idle(
    config: RenderConfig,
    captured: list[str],  # cameras of the capture
    cameras: list[str],  # and those of one's own
) -> None:
    """Raises ConfigError for a key that nothing rendered here depends on."""
    default = RenderConfig()
    span = config.times is not None and len(config.times) > 1
    if config.fps != default.fps and not span and not set(config.formats) & set(KINDS):
        raise ConfigError(
            f"fps={config.fps:g} is for films and for times=FIRST,LAST; leave it out, or add mp4 to formats"
        )
    if config.outputs is not None and not cameras:
        raise ConfigError("outputs chooses images of cameras, but none is among the sensors; leave it out")
    shown = "colour" in (config.outputs or ["colour"]) and bool(set(config.formats) & set(PICTURES))
    if config.compare and not (captured and shown):
        raise ConfigError(
            "compare=true needs pictures of a camera of the drive; leave it out, or add such a camera to sensors, colour to outputs "
            "and png to formats"
        )


def _of(frames: Sequence[AnyFrame], name: str) -> list[AnyFrame]:
    return [frame for frame in frames if frame.sensor == name]


def _shots(
    config: RenderConfig,
    frames: list[AnyFrame],  # of one sensor
    chosen: list[AnyFrame],  # those that are rendered if there are no times
    path: Trajectory,
    times: list[float] | None,
) -> list[Shot[AnyFrame]]:
    if times is None:
        return [Shot(shifted(f, config.shift), f, True, f"{f.index:04d}") for f in chosen]
    if not frames:
        return []
    return [
        Shot(shifted(frame_at(frames, path, t), config.shift), nearest(frames, t), False, f"t{t:08.3f}") for t in times
    ]


def _own_shots(
    config: RenderConfig,
    own: NovelSensor,
    frames: Sequence[AnyFrame],  # of all sensors of its kind
    chosen: Sequence[AnyFrame],
    path: Trajectory,
    times: list[float] | None,
) -> list[Shot[AnyFrame]]:
    """Shots at the moments of a captured sensor of the same kind."""
    if not frames:
        raise ConfigError(
            f"sensor {_name(own)} is a lidar, but the capture has no sweep to learn its returns from; leave it out"
        )
    like = _of(frames, (chosen or frames)[0].sensor)
    own_times = [(f.time_mid, f"{f.index:04d}") for f in _of(chosen, like[0].sensor)]
    shots = []
    for time, label in own_times if times is None else [(t, f"t{t:08.3f}") for t in times]:
        half = 0.5 * own.seconds
        frame: Any = own.frame(time, path.at(time - half), path.at(time + half))
        shots.append(Shot(shifted(frame, config.shift), nearest(like, time), False, label))
    return shots


def _without_empty(config: RenderConfig, capture: Capture, plan: Plan) -> Plan:
    """Plan without sensors that have no frame; ConfigError if one of them was named, or no sensor is left."""
    for name, shots in (*plan.images.items(), *plan.sweeps.items()):
        if not shots and config.sensors is not None:
            raise ConfigError(
                f"sensors names '{name}', which has no frame here (subset={config.subset}, split "
                f"{config.data.split}, {capture.name}); leave it out, or choose subset=all"
            )
    plan = Plan({k: v for k, v in plan.images.items() if v}, {k: v for k, v in plan.sweeps.items() if v})
    if not len(plan):
        raise ConfigError(f"subset={config.subset} holds no frame of these sensors; choose subset=all")
    return plan
