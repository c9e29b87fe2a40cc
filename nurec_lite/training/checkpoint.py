# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: everything that a run needs to go on, in one file that is written whole or not at all."""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.errors import UserError
from nurec_lite.base.files import flushed_meanwhile, written
from nurec_lite.base.memory import MemoryShortError, is_out_of_memory
from nurec_lite.base.names import of_older_file
from nurec_lite.capture.digest import Digest
from nurec_lite.config import Config, ModelConfig, to_dict
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.scene.calibration import OFFSETS, TRAINED, Calibration
from nurec_lite.scene.gaussians import LIDAR_VALUES, Gaussians
from nurec_lite.scene.scene import Scene
from nurec_lite.training.capture_record import record_of
from nurec_lite.training.schema import check_content
from nurec_lite.training.schema_values import SchemaError
from nurec_lite.training.torch_file import TorchFileError, read_torch_file
from nurec_lite.training.torch_file_write import write_torch_file

FORMAT = 2
_PARTS = {"scene", "optimizer", "generator", "config", "counters", "history"}


class CheckpointError(UserError):
    """The checkpoint cannot be used; the message names the file and the remedy."""


class LargeCheckpointError(CheckpointError, MemoryShortError):
    """Memory ran out while it was read."""


def save_checkpoint(
    path: Path,
    scene: Scene,
    optimizer: torch.optim.Adam,
    generator: torch.Generator,
    config: Config,
    counters: dict[str, float],  # step, seconds
    history: list[dict[str, float]],  # rows of `history.History`
    texts: Mapping[Path, str] = MappingProxyType({}),  # texts about this checkpoint
    stale: Sequence[Path] = (),  # files of another run
    digest: Digest | None = None,  # of the capture
) -> None:
    """Saves a checkpoint with its texts; a crash or a full disk leaves the previous one. A folder never holds a checkpoint with texts of
    another one: new texts are on the disk before it is replaced, and get their names after it; old texts are removed before."""
    content = {
        "format": FORMAT,
        "scene": scene_to_dict(scene),
        "optimizer": optimizer.state_dict(),
        "generator": generator.get_state(),
        "config": to_dict(config),
        "counters": dict(counters),
        "history": history,
    }
    if digest is not None:
        content["capture"] = record_of(digest)
    with ExitStack() as stack:
        for place, text in texts.items():
            file = stack.enter_context(written(place))
            file.write(text.encode())
            file.flush()
        file = stack.enter_context(written(path, [*stale, *texts]))
        stack.enter_context(flushed_meanwhile(file))
        write_torch_file(content, file)


def load_checkpoint(path: Path, device: torch.device | str) -> dict[str, Any]:
    """The content as `save_checkpoint` wrote it, scene and moments on the device. Nothing in the file is executed, and content that does
    not fit the schema ends in CheckpointError."""
    if not os.path.isfile(path):
        problem = "is no file" if os.path.exists(path) else "does not exist"
        raise CheckpointError(f"{path} {problem}; give the path of a checkpoint, such as OUT/checkpoint.pt")
    try:
        content = read_torch_file(path)
    except PermissionError as error:
        raise CheckpointError(
            f"{path} cannot be read ({error.strerror}); change its rights, or use another one"
        ) from error
    except Exception as error:  # many classes for a file that is cut short or something else
        if is_out_of_memory(error):
            raise LargeCheckpointError(
                f"there is not enough memory to read {path}; end other programs, or use another checkpoint"
            ) from error
        why = str(error) if isinstance(error, TorchFileError) else type(error).__name__
        raise CheckpointError(f"{path} is not a whole checkpoint ({why}); use another one") from error
    of_this = isinstance(content, dict) and type(content.get("format")) is int and content["format"] == FORMAT
    if isinstance(content, dict) and "splats" in content:
        raise CheckpointError(f"{path} is a checkpoint of gsplat; give one of train, such as OUT/checkpoint.pt")
    if not of_this or not content.keys() >= _PARTS:
        raise CheckpointError(
            f"{path} is not a checkpoint of this version; train again, or use the version that wrote it"
        )
    _rename(content["scene"])
    try:
        check_content(content)
    except SchemaError as error:
        raise CheckpointError(f"{path} does not come from a training: {error}; use another checkpoint") from error
    older = {
        "lidar_opacity": False,
        "calibrate": False,
        "knot_seconds": ModelConfig.knot_seconds,
        "mirror_actors": False,
    }
    content["config"]["model"] = older | content["config"].get("model", {})
    return content | {part: _moved(content[part], device) for part in ("scene", "optimizer")}


def _rename(scene: Any) -> None:
    """Gives tracks of an older checkpoint names that are no words for several tracks."""
    tracks = scene.get("tracks") if isinstance(scene, dict) else None
    if not isinstance(tracks, dict):
        return
    ids = tracks.get("ids")
    if type(ids) is tuple and all(type(name) is str for name in ids):
        tracks["ids"] = of_older_file(ids)


def _moved(value: Any, device: torch.device | str) -> Any:
    if isinstance(value, dict):
        return {key: _moved(one, device) for key, one in value.items()}
    return value.to(device) if isinstance(value, Tensor) else value


def scene_to_dict(scene: Scene) -> dict[str, Any]:
    parameters = {name: value.detach() for name, value in scene.parameters().items()}
    tracks, origin = asdict(scene.tracks), list(scene.origin)
    content = {"parameters": parameters, "node": scene.gaussians.node, "tracks": tracks, "origin": origin}
    if (known := scene.calibration) is not None:
        content["calibration"] = {"knots": known.knots, "cameras": known.cameras}
    return content


def tracks_of(
    content: dict[str, Any],  # of a scene
) -> Tracks:
    """Tracks as in the capture."""
    return Tracks(**{f.name: content["tracks"][f.name] for f in fields(Tracks)})


def scene_from_dict(content: dict[str, Any]) -> Scene:
    """The scene on the device of the tensors (the tracks' times stay float64)."""
    values = content["parameters"]
    gaussians = Gaussians(**{name: values[name] for name in Gaussians.trained()}, node=content["node"])
    tracks = tracks_of(content)
    rest = {name: values[name] for name in ("sky", "track_translations", "track_quaternions", "exposure")}
    x, y, z = content.get("origin", (0.0, 0.0, 0.0))  # older files have none
    known = content.get("calibration")
    trained = {name: values[name] for name in (*TRAINED, "bilateral", OFFSETS) if name in values}
    if known is not None:  # before there were offsets, clocks were taken at their word
        trained = {OFFSETS: values["exposure"].new_zeros(len(known["cameras"]))} | trained
    learned = None if known is None else Calibration(**known, **trained)
    return Scene(gaussians=gaussians, tracks=tracks, origin=(x, y, z), calibration=learned, **rest)


def with_lidar_opacity(content: dict[str, Any]) -> dict[str, Any]:
    """Returns a checkpoint with an opacity of the lidar: if it has none, one that starts as the camera's. Adam's moments of it are the
    camera's, too: they tell how large its gradients are, while zeros would let the first updates be three times as long as any."""
    parameters, state = content["scene"]["parameters"], content["optimizer"]["state"]
    if parameters["lidar_logits"].shape[1] > LIDAR_VALUES:
        return content
    camera, lidar = (list(parameters).index(name) for name in ("opacity_logits", "lidar_logits"))
    joined = {"lidar_logits": _beside(parameters["lidar_logits"], parameters["opacity_logits"])}
    moments = dict(state.get(lidar, {}))
    for name in ("exp_avg", "exp_avg_sq") if moments else ():
        known = state[camera][name] if camera in state else torch.zeros_like(parameters["opacity_logits"])
        moments[name] = _beside(moments[name], known)
    return content | {
        "scene": content["scene"] | {"parameters": parameters | joined},
        "optimizer": content["optimizer"] | {"state": state | ({lidar: moments} if moments else {})},
    }


def _beside(
    values: Tensor,  # [N, 2]
    opacities: Tensor,  # [N]
) -> Tensor:  # [N, 3]
    return torch.cat([values, opacities[:, None]], dim=1)


def scene_to(scene: Scene, device: torch.device | str) -> Scene:
    """A copy on another device."""
    content = scene_to_dict(scene)
    parameters = {name: value.to(device) for name, value in content["parameters"].items()}
    tracks = asdict(scene.tracks.to(device, scene.track_translations.dtype))
    moved = {"parameters": parameters, "node": content["node"].to(device), "tracks": tracks}
    if (known := content.get("calibration")) is not None:
        moved["calibration"] = known | {"knots": known["knots"].to(device)}
    return scene_from_dict(content | moved)
