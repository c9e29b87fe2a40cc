# SPDX-License-Identifier: Apache-2.0
"""A camera or lidar from a YAML file, mounted on the vehicle or relative to a sensor of the capture (docs/sensors.md)."""

import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.names import name_flaw
from nurec_lite.bounds import Between, Bound, Flag, OneOf, Text, in_words
from nurec_lite.capture.check import MAX_SIDE
from nurec_lite.capture.files import short
from nurec_lite.capture.ray_files import read_rays
from nurec_lite.capture.types import Capture
from nurec_lite.capture.yaml_files import NamesLoader, read_yaml
from nurec_lite.geometry.camera import SHUTTERS, Camera, lens_flaw
from nurec_lite.geometry.free_lidar import free_lidar
from nurec_lite.geometry.lens import COEFFICIENTS, LENSES
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.output.mounting import RIG, mounting
from nurec_lite.output.sensors import REVOLUTION_S, WHOLE, NovelSensor, sensors_of

REMEDY = "docs/sensors.md has examples"
MODELS = LENSES
MOST_PIXELS, _MOST_RAYS = 100_000_000, 20_000_000
_ANGLE, _NAMED = Between(-360, 360), Text()
_CAMERA: dict[str, Bound] = {
    "model": OneOf(MODELS), "width": Between(1, MAX_SIDE), "height": Between(1, MAX_SIDE),
    "fx": Between(1e-3, 1e6), "fy": Between(1e-3, 1e6), "cx": Between(-1e6, 1e6), "cy": Between(-1e6, 1e6),
    "horizontal_fov_deg": Between(0, 360, above=True, below=True), "distortion": Between(-1000, 1000),
    "angle_to_pixels": Between(-1e6, 1e6), "linear_cde": Between(-1000, 1000),
    "shutter": OneOf(SHUTTERS), "readout_s": Between(0, 10),
}  # fmt: skip
_LIDAR: dict[str, Bound] = {
    "beams": Between(1, 4096), "elevation_deg": Between(-90, 90, above=True, below=True),
    "elevations_deg": Between(-90, 90, above=True, below=True), "azimuth_steps": Between(1, 1_000_000), "azimuth_deg": _ANGLE,
    "first_azimuth_deg": _ANGLE, "clockwise": Flag(), "rate_hz": Between(0.01, 1000), "max_range_m": Between(0, 1e5, above=True),
    "rays": _NAMED,
}  # fmt: skip
_MOUNTING: dict[str, Bound] = {
    "relative_to": _NAMED, "forward_m": Between(-1000, 1000), "left_m": Between(-1000, 1000), "up_m": Between(-1000, 1000),
    "yaw_deg": _ANGLE, "pitch_deg": _ANGLE, "roll_deg": _ANGLE,
}  # fmt: skip
_WHOLE = ("width", "height", "beams", "azimuth_steps")  # keys of whole numbers
_LISTS = {
    "distortion": (4, 5, 8, 12), "angle_to_pixels": range(2, 7), "linear_cde": (3,),
    "elevation_deg": (2,), "elevations_deg": range(1, 4097), "azimuth_deg": (2,),
}  # fmt: skip
KINDS: dict[str, dict[str, Bound]] = {"camera": _CAMERA, "lidar": _LIDAR}


class _Loader(NamesLoader):
    names = ("name", "relative_to", "rays")


def read_sensor(path: Path, capture: Capture) -> NovelSensor:
    """The sensor of a file; a flaw raises ConfigError with one sentence."""
    value = read_yaml(path, REMEDY, _Loader)
    if not isinstance(value, dict):
        raise ConfigError(f"{path} must hold keys and values; {REMEDY}")
    kind = _checked(path, "", {"kind": value.get("kind")}, {"kind": OneOf(tuple(KINDS))})["kind"]
    known = {"kind": OneOf(tuple(KINDS)), "name": _NAMED, **KINDS[kind]}
    given = _checked(path, "", {key: one for key, one in value.items() if key != "mounting"}, known, ("mounting",))
    name = _name(path, given, capture)
    mount = _mount(path, value.get("mounting"), capture, camera=kind == "camera")
    return (_camera if kind == "camera" else _lidar)(path, name, given, mount)


# ---- checks


def _checked(
    path: Path,
    prefix: str,
    given: Mapping[Any, Any],
    known: Mapping[str, Bound],
    others: tuple[str, ...] = (),  # keys that are known, too
) -> dict[str, Any]:
    """The values, each of its kind and within its range."""
    for key, value in given.items():
        if key not in known:
            near = difflib.get_close_matches(short(key), [*known, *others], 1)
            asked = f"did you mean {prefix}{near[0]}?" if near else f"the keys are {', '.join([*known, *others])}"
            raise ConfigError(f"{path}: key {prefix}{short(key)} is unknown; {asked}")
        _check(path, f"{prefix}{key}", key, value, known[key])
    return dict(given)


def _check(path: Path, name: str, key: str, value: Any, bound: Bound) -> None:
    if value is None:
        raise ConfigError(f"{path}: {name} is missing; it must {bound}")
    if (key in _LISTS) != isinstance(value, list) or (key in _LISTS and len(value) not in _LISTS[key]):
        counts = _LISTS.get(key)
        what = "one value" if counts is None else f"a list of {_counted(counts)} numbers"
        raise ConfigError(f"{path}: {name} must be {what}; {REMEDY}")
    for one in value if isinstance(value, list) else [value]:
        if not bound.holds(one) or (key in _WHOLE and not isinstance(one, int)):
            whole = "be a whole number and " if key in _WHOLE else ""
            raise ConfigError(f"{path}: {name} is {in_words(one)}, but must {whole}{bound}")


def _counted(counts: Any) -> str:
    return f"{counts[0]} to {counts[-1]}" if isinstance(counts, range) else " or ".join(map(str, counts))


def _needed(path: Path, given: Mapping[str, Any], *keys: str) -> list[Any]:
    missing = [key for key in keys if key not in given]
    if missing:
        raise ConfigError(f"{path}: {missing[0]} is missing; {REMEDY}")
    return [given[key] for key in keys]


def _either(path: Path, given: Mapping[str, Any], one: str, others: tuple[str, ...]) -> bool:
    """Whether the first key is given; ConfigError if one of the others is, too."""
    both = [key for key in others if key in given] if one in given else []
    if both:
        raise ConfigError(f"{path} gives both {one} and {both[0]}; leave one of them out")
    return one in given


def _name(path: Path, given: Mapping[str, Any], capture: Capture) -> str:
    (name,) = _needed(path, given, "name")
    flaw = name_flaw(name)
    if flaw:
        raise ConfigError(f"{path}: name '{short(name)}' {flaw}; choose another")
    if name.casefold() in [one.name.casefold() for one in sensors_of(capture)]:
        raise ConfigError(f"{path}: name is '{name}', which is a sensor of {capture.name}; choose another")
    return str(name)


def _mount(path: Path, value: Any, capture: Capture, camera: bool) -> Tensor:  # [4, 4] T_rig_sensor
    if value is None:
        raise ConfigError(
            f"{path}: mounting is missing; for the vehicle's own axes write mounting: {{relative_to: {RIG}}}"
        )
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: mounting must hold keys such as forward_m and yaw_deg; {REMEDY}")
    given = _checked(path, "mounting.", value, _MOUNTING)
    return mounting(path, given, capture, camera)


# ---- sensors


def _camera(path: Path, name: str, given: Mapping[str, Any], mount: Tensor) -> NovelSensor:
    width, height = _needed(path, given, "width", "height")
    if width * height > MOST_PIXELS:
        raise ConfigError(f"{path}: {width} x {height} pixels are more than {MOST_PIXELS}; make the image smaller")
    model = given.get("model", "pinhole")
    cx, cy = given.get("cx", 0.5 * width), given.get("cy", 0.5 * height)
    fx, fy, distortion = _ftheta(path, given) if model == "ftheta" else _lens(path, given, model, width)
    shutter, readout = given.get("shutter", "global"), float(given.get("readout_s", 0.0))
    if (shutter == "global") != (readout == 0):
        raise ConfigError(
            f"{path}: shutter is {shutter} and readout_s is {readout:g}; give a global shutter no time, and another one more than 0"
        )
    camera = Camera(name, width, height, float(fx), float(fy), float(cx), float(cy), mount, distortion, shutter, model)
    if flaw := lens_flaw(camera):
        raise ConfigError(f"{path} describes {flaw}; correct it")
    return NovelSensor(camera, readout)


Optics = tuple[float, float, tuple[float, ...]]  # fx, fy, distortion


def _lens(path: Path, given: Mapping[str, Any], model: str, width: int) -> Optics:
    _refuse(path, given, model, "angle_to_pixels", "linear_cde")
    if _either(path, given, "horizontal_fov_deg", ("fx", "fy")):
        half = 0.5 * math.radians(given["horizontal_fov_deg"])
        if model == "pinhole" and half >= 0.5 * math.pi:
            raise ConfigError(
                f"{path}: horizontal_fov_deg is {given['horizontal_fov_deg']:g}, but a pinhole sees less than 180 degrees; use model: "
                "fisheye"
            )
        fx = fy = 0.5 * width / (math.tan(half) if model == "pinhole" else half)
    else:
        (fx,) = _needed(path, given, "fx")
        fy = given.get("fy", fx)
    lens = tuple(float(k) for k in given.get("distortion", ()))
    lens += (0.0,) if model == "pinhole" and len(lens) == 4 else ()
    counts = COEFFICIENTS[model][1]
    if len(lens) not in counts:
        known = " or ".join(str(n) for n in counts if n)
        raise ConfigError(
            f"{path}: distortion has {len(lens)} numbers, but those of a {model} lens are {known}; {REMEDY}"
        )
    return fx, fy, lens


def _ftheta(path: Path, given: Mapping[str, Any]) -> Optics:
    """The polynomial in pixels, lowest power first, and the linear term [c d; e 1]."""
    _refuse(path, given, "ftheta", "fx", "fy", "horizontal_fov_deg", "distortion")
    (polynomial,) = _needed(path, given, "angle_to_pixels")
    constant, fy, *others = (float(k) for k in polynomial)
    if constant != 0 or not fy > 0:
        raise ConfigError(
            f"{path}: angle_to_pixels is {polynomial}, but must begin with 0 and a positive number; {REMEDY}"
        )
    c, d, e = (float(k) for k in given.get("linear_cde", (1, 0, 0)))
    if not c - d * e > 0:
        raise ConfigError(f"{path}: linear_cde is {[c, d, e]}, which mirrors the image; correct it")
    return c * fy, fy, (*(k / fy for k in others), *[0.0] * (4 - len(others)), d, e)


def _refuse(path: Path, given: Mapping[str, Any], model: str, *keys: str) -> None:
    """Raises ConfigError for a key of other lenses."""
    if wrong := [key for key in keys if key in given]:
        raise ConfigError(f"{path}: {wrong[0]} is given, which a {model} lens does not have; leave it out")


def _free(path: Path, name: str, given: Mapping[str, Any], mount: Tensor) -> NovelSensor:
    """A lidar that sends the rays of a file, which a relative path finds from the YAML file's folder."""
    spinning = [key for key in _LIDAR if key in given and key not in ("rays", "rate_hz", "max_range_m")]
    if spinning:
        raise ConfigError(f"{path} gives both rays and {spinning[0]}; leave one of them out")
    table = read_rays(path.parent / Path(given["rays"]).expanduser())
    lidar = free_lidar(name, mount, table.directions, float(given.get("max_range_m", 120.0)), table)
    return NovelSensor(lidar, 1 / given.get("rate_hz", 1 / REVOLUTION_S))


def _lidar(path: Path, name: str, given: Mapping[str, Any], mount: Tensor) -> NovelSensor:
    if "rays" in given:
        return _free(path, name, given, mount)
    if _either(path, given, "elevations_deg", ("elevation_deg", "beams")):
        elevations = torch.tensor(given["elevations_deg"], dtype=torch.float64)
    else:
        beams, (low, high) = _needed(path, given, "beams", "elevation_deg")
        if not low < high:
            raise ConfigError(f"{path}: elevation_deg is {[low, high]}, but the first must be the lower one")
        elevations = torch.linspace(low, high, beams, dtype=torch.float64)
    (steps,) = _needed(path, given, "azimuth_steps")
    if steps * len(elevations) > _MOST_RAYS:
        raise ConfigError(
            f"{path}: {len(elevations)} beams of {steps} steps are more than {_MOST_RAYS} rays; send fewer"
        )
    lidar = Lidar(
        name, mount, torch.deg2rad(elevations), float(given.get("max_range_m", 120.0)), steps,
        math.radians(given.get("first_azimuth_deg", 180.0)), given.get("clockwise", True),
    )  # fmt: skip
    sensor = NovelSensor(lidar, 1 / given.get("rate_hz", 1 / REVOLUTION_S), _azimuths(path, given))
    frame = sensor.frame(0.0, torch.eye(4), torch.eye(4))
    if len(frame.load()) == 0:
        raise ConfigError(
            f"{path}: azimuth_deg is {given['azimuth_deg']}, and no step falls between; widen it, or raise azimuth_steps"
        )
    return sensor


def _azimuths(path: Path, given: Mapping[str, Any]) -> tuple[float, float]:  # radians
    if "azimuth_deg" not in given:
        return WHOLE
    first, last = given["azimuth_deg"]
    if not 0 < last - first <= 360:
        raise ConfigError(
            f"{path}: azimuth_deg is {[first, last]}, but must name the right edge of the field and then the left one, up to 360 "
            "degrees further"
        )
    return math.radians(first), math.radians(last)
