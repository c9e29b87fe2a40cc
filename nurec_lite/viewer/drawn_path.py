# SPDX-License-Identifier: Apache-2.0
"""A camera path that a user draws pose by pose, and its file in the folder of the run."""

import os
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.files import write_text
from nurec_lite.base.names import name_flaw
from nurec_lite.base.texts import read_bounded
from nurec_lite.capture.origin import to_users_world
from nurec_lite.capture.types import Origin
from nurec_lite.output.camera_path import CameraPath, Key, Pinhole, path_text, with_even_seconds
from nurec_lite.viewer.session import PICTURES_S

FOLDER = "paths"  # in the run's folder


class DrawnPath:
    """Poses about the capture's origin, in the order of the film."""

    def __init__(self) -> None:
        self.keys: list[Key] = []

    def add(self, T_world_cam: Tensor, time: float) -> None:  # [4, 4], seconds
        self.keys.append(Key(0.0, time, T_world_cam.clone()))

    def remove_last(self) -> None:
        del self.keys[-1:]

    def film(
        self,
        lens: Pinhole | str,
        seconds: float,  # between two poses
    ) -> CameraPath:
        """Returns the path of a film; ConfigError with fewer than two poses."""
        if len(self.keys) < 2:
            raise ConfigError("a path takes at least two poses; add one where it begins and one where it ends")
        return CameraPath(lens, with_even_seconds(self.keys, seconds))

    def line(self) -> Tensor:  # [n, 3] metres, points of the camera's flight
        if len(self.keys) < 2:
            return torch.zeros(0, 3, dtype=torch.float64)
        film = CameraPath("", with_even_seconds(self.keys, 1.0))
        return torch.stack([key.T_world_cam[:3, 3] for key in film.sampled(20)])


def flown(path: CameraPath) -> tuple[Key, ...]:
    """The poses of a preview."""
    return tuple(path.sampled(1 / PICTURES_S))


def path_file(
    run: Path,  # folder
    name: str,
) -> Path:
    """The file of a path; ConfigError for a name that is no plain part of a path."""
    flaw = name_flaw(name)
    if flaw is not None:
        raise ConfigError(f"the name of a path '{name:.80}' {flaw}; choose another")
    return run / FOLDER / f"{name}.yaml"


def text_of(path: CameraPath, origin: Origin) -> str:
    """The YAML of a path, in the world of the capture's files."""
    return path_text(replace(path, keys=tuple(in_files_world(key, origin) for key in path.keys)))


def save_path(file: Path, text: str) -> None:
    """Saves a path; ConfigError if the file holds another one, or the run was deleted."""
    if not file.parent.parent.is_dir():
        raise ConfigError(f"{file.parent.parent} was deleted or renamed; press Download to keep the path")
    if os.path.lexists(file) and not _holds(file, text.encode()):
        raise ConfigError(f"{file} holds another path; choose another name")
    write_text(file, text)


def _holds(file: Path, data: bytes) -> bool:
    try:
        return read_bounded(file, len(data)) == data
    except (OSError, ValueError):  # no file, or one that is longer
        return False


def in_files_world(key: Key, origin: Origin) -> Key:
    T = key.T_world_cam.clone()
    T[:3, 3] = to_users_world(T[:3, 3], origin)
    return replace(key, T_world_cam=T)
