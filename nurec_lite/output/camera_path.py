# SPDX-License-Identifier: Apache-2.0
"""Camera paths: a lens, and poses over the time of a film, as a YAML file holds them (docs/viewer.md).

A film has its own clock: `film_s` is the second of the film, and `time_s` the second of the drive that it shows there. So a camera can move
through a moment that stands still, or stand still while the drive goes on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from scipy.interpolate import PchipInterpolator
from torch import Tensor

from nurec_lite.base.errors import ConfigError
from nurec_lite.bounds import Between, Bound, Text
from nurec_lite.capture.yaml_files import NamesLoader, read_yaml
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.se3 import matrix_to_quat, pose_matrix
from nurec_lite.output.mounting import FORWARD_FROM_OPTICAL, angles, turned
from nurec_lite.output.sensor_file import MOST_PIXELS
from nurec_lite.output.yaml_checks import YamlFile

REMEDY = "docs/viewer.md has an example"
MOST_POSES, LONGEST_S = 10_000, 3600.0  # seconds of film
_SIDE = Between(1, 1 << 14)  # pixels
_LENS: dict[str, Bound] = {
    "camera": Text(), "width": _SIDE, "height": _SIDE, "vertical_fov_deg": Between(1, 179),
}  # fmt: skip
_PINHOLE = ("width", "height", "vertical_fov_deg")
_WORLD, _ANGLE = Between(-1e8, 1e8), Between(-1e6, 1e6)
_POSE: dict[str, Bound] = {
    "film_s": Between(0, LONGEST_S), "time_s": Between(-1e10, 1e10), "x_m": _WORLD, "y_m": _WORLD, "z_m": _WORLD,
    "yaw_deg": _ANGLE, "pitch_deg": _ANGLE, "roll_deg": _ANGLE,
}  # fmt: skip
_NEEDED = ("film_s", "time_s", "x_m", "y_m", "z_m")


@dataclass(frozen=True)
class Pinhole:
    """The lens of a camera that the drive did not have."""

    width: int  # pixels
    height: int
    vertical_fov: float  # radians

    def camera(self, name: str) -> Camera:
        f = 0.5 * self.height / math.tan(0.5 * self.vertical_fov)
        T = torch.eye(4, dtype=torch.float64)
        return Camera(name, self.width, self.height, f, f, 0.5 * self.width, 0.5 * self.height, T)


@dataclass(frozen=True)
class Key:
    """The camera at one second of the film."""

    film: float  # seconds
    time: float  # seconds of the drive
    T_world_cam: Tensor  # [4, 4] float64, in the world of the capture's files; in the viewer about the capture's origin


@dataclass(frozen=True)
class CameraPath:
    lens: Pinhole | str  # or the name of a camera
    keys: tuple[Key, ...]  # at least two, in order of the film

    def sampled(self, fps: float) -> list[Key]:
        """The camera at every picture of the film. Places and times run smoothly through the keys, without overshooting between them."""
        start, end = self.keys[0].film, self.keys[-1].film
        film = start + np.arange(math.floor((end - start) * fps + 1e-6) + 1) / fps
        places = np.stack([key.T_world_cam[:3, 3].numpy() for key in self.keys])
        turns = _aligned(matrix_to_quat(torch.stack([key.T_world_cam[:3, :3] for key in self.keys])).numpy())
        rows = np.column_stack([[key.time for key in self.keys], places, turns])
        found = PchipInterpolator([key.film for key in self.keys], rows)(film.clip(start, end))
        q, t = torch.from_numpy(found[:, 4:]), torch.from_numpy(found[:, 1:4])
        poses = pose_matrix(q / q.norm(dim=1, keepdim=True), t)
        return [Key(*row) for row in zip(film.tolist(), found[:, 0].tolist(), poses, strict=True)]


def _aligned(quaternions: np.ndarray) -> np.ndarray:  # [n, 4]
    """The same rotations with signs such that neighbours differ by at most half a turn."""
    signs = np.sign((quaternions[1:] * quaternions[:-1]).sum(1))
    return quaternions * np.cumprod(np.append(1.0, np.where(signs == 0, 1, signs)))[:, None]


# ---- files


class _Loader(NamesLoader):
    names = ("camera",)


def read_camera_path(path: Path) -> CameraPath:
    """The path of a file; ConfigError with one sentence for the first mistake."""
    value, file = read_yaml(path, REMEDY, _Loader), YamlFile(path, REMEDY)
    if not isinstance(value, dict) or not value:
        raise ConfigError(f"{path} must hold a lens and poses; {REMEDY}")
    lens = _lens(file, value)
    poses = file.list_of("poses", value)
    if not 2 <= len(poses) <= MOST_POSES:
        raise ConfigError(f"{path}: poses has {len(poses)} entries, but takes 2 to {MOST_POSES}")
    keys = tuple(_key(file, f"poses[{i}]", pose) for i, pose in enumerate(poses))
    for i, (before, after) in enumerate(pairwise(keys)):
        if not after.film > before.film:
            raise ConfigError(
                f"{path}: poses[{i + 1}].film_s is {after.film:g}, but must be after {before.film:g}, the second before it"
            )
    return CameraPath(lens, keys)


def _lens(file: YamlFile, value: Mapping[Any, Any]) -> Pinhole | str:
    named = "camera" in value
    file.check("", value, _LENS, ("camera",) if named else _PINHOLE, "poses")
    both = [key for key in _PINHOLE if key in value] if named else []
    if both:
        raise ConfigError(f"{file} gives both camera and {both[0]}; leave one of them out")
    if named:
        return str(value["camera"])
    for key in ("width", "height"):
        if not isinstance(value[key], int):
            raise ConfigError(f"{file}: {key} is {value[key]:g}, but must be a whole number")
    if value["width"] * value["height"] > MOST_PIXELS:
        raise ConfigError(
            f"{file}: {value['width']} x {value['height']} pixels are more than {MOST_PIXELS}; make the picture smaller"
        )
    return Pinhole(value["width"], value["height"], math.radians(value["vertical_fov_deg"]))


def _key(file: YamlFile, at: str, pose: Any) -> Key:
    file.check(at, file.mapping(at, pose), _POSE, _NEEDED)
    film, time, *place = (float(pose[name]) for name in _NEEDED)
    T = turned(*(math.radians(pose.get(f"{angle}_deg", 0.0)) for angle in ("yaw", "pitch", "roll")))
    T = T @ FORWARD_FROM_OPTICAL
    T[:3, 3] = torch.tensor(place, dtype=torch.float64)
    return Key(film, time, T)


def path_text(path: CameraPath) -> str:
    """The YAML that `read_camera_path` reads back: places to a micrometre, angles to a millionth of a degree."""
    lens: dict[str, Any] = {"camera": path.lens} if isinstance(path.lens, str) else {
        "width": path.lens.width, "height": path.lens.height,
        "vertical_fov_deg": round(math.degrees(path.lens.vertical_fov), 4),
    }  # fmt: skip
    lines = [yaml.safe_dump(lens, sort_keys=False).rstrip(), "poses:"]
    for key in path.keys:
        row = yaml.safe_dump(_row(key), sort_keys=False, default_flow_style=True, width=math.inf)
        lines.append(f"  - {row.rstrip()}")
    return "\n".join([*lines, ""])


def _row(key: Key) -> dict[str, float]:
    places = [round(metres, 6) for metres in key.T_world_cam[:3, 3].tolist()]
    turn = angles(key.T_world_cam @ FORWARD_FROM_OPTICAL.T)
    numbers = [round(key.film, 4), round(key.time, 6), *places, *(round(math.degrees(angle), 6) for angle in turn)]
    return dict(zip(_POSE, numbers, strict=True))


def with_even_seconds(keys: Sequence[Key], seconds: float) -> tuple[Key, ...]:
    """The keys with the same time of film between any two."""
    return tuple(replace(key, film=i * seconds) for i, key in enumerate(keys))
