# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: everything that a run needs to go on, in one file that is written whole or not at all."""

import io
import zipfile
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

from nurec_lite.base.errors import UserError
from nurec_lite.base.files import written
from nurec_lite.config import Config, to_dict
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.scene.scene import Scene

FORMAT = 2
_PARTS = {"scene", "optimizer", "generator", "config", "counters", "history"}


class CheckpointError(UserError):
    """The checkpoint cannot be used; the message names the file and the remedy."""


def save_checkpoint(
    path: Path,
    scene: Scene,
    optimizer: torch.optim.Adam,
    generator: torch.Generator,
    config: Config,
    counters: dict[str, float],  # step, seconds
    history: list[dict[str, float]],  # rows of `history.History`
) -> None:
    """A crash or a full disk leaves the previous checkpoint."""
    content = {
        "format": FORMAT,
        "scene": scene_to_dict(scene),
        "optimizer": optimizer.state_dict(),
        "generator": generator.get_state(),
        "config": to_dict(config),
        "counters": dict(counters),
        "history": history,
    }
    with written(path) as file:
        torch.save(content, file)


def load_checkpoint(path: Path, device: torch.device | str) -> dict[str, Any]:
    """The content as `save_checkpoint` wrote it, tensors on the device; nothing in the file is executed (`weights_only`)."""
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist; give the path of a checkpoint, such as OUT/checkpoint.pt")
    try:
        data = path.read_bytes()
        _check_sums(data)
        content = torch.load(io.BytesIO(data), map_location=device, weights_only=True)
    except Exception as error:  # torch and zipfile raise many classes for a file that is cut short or something else
        raise CheckpointError(f"{path} is not a whole checkpoint ({type(error).__name__}); use another one") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT or not content.keys() >= _PARTS:
        raise CheckpointError(
            f"{path} is not a checkpoint of this version; train again, or use the version that wrote it"
        )
    return content


def _check_sums(data: bytes) -> None:
    """torch.load does not look at them: altered bytes would become altered Gaussians."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise zipfile.BadZipFile(damaged)


def scene_to_dict(scene: Scene) -> dict[str, Any]:
    parameters = {name: value.detach() for name, value in scene.parameters().items()}
    return {"parameters": parameters, "node": scene.gaussians.node, "tracks": asdict(scene.tracks)}


def scene_from_dict(content: dict[str, Any]) -> Scene:
    """The scene on the device on which the tensors are (the tracks' times stay float64)."""
    values = content["parameters"]
    gaussians = Gaussians(**{name: values[name] for name in Gaussians.trained()}, node=content["node"])
    tracks = Tracks(**{f.name: content["tracks"][f.name] for f in fields(Tracks)})
    rest = {name: values[name] for name in ("sky", "track_translations", "track_quaternions", "exposure")}
    return Scene(gaussians=gaussians, tracks=tracks, **rest)


def scene_to(scene: Scene, device: torch.device | str) -> Scene:
    """A copy on another device."""
    content = scene_to_dict(scene)
    parameters = {name: value.to(device) for name, value in content["parameters"].items()}
    tracks = asdict(scene.tracks.to(device, scene.track_translations.dtype))
    return scene_from_dict({"parameters": parameters, "node": content["node"].to(device), "tracks": tracks})
