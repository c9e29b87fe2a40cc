# SPDX-License-Identifier: Apache-2.0
"""A trained scene with the capture that it was made from, as the verbs that come after training take it."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from nurec_lite.capture.open import open_capture
from nurec_lite.capture.types import Capture
from nurec_lite.checkpoint import CheckpointError, scene_from_dict, scene_to
from nurec_lite.command import load_run
from nurec_lite.config import Config
from nurec_lite.environment import choose_device
from nurec_lite.history import Row
from nurec_lite.opt import build_stages
from nurec_lite.scene.scene import Scene
from nurec_lite.stages import Stages


@dataclass(frozen=True)
class Reconstruction:
    config: Any  # of the verb: EvaluateConfig or RenderConfig
    stages: Stages
    scene: Scene
    capture: Capture
    device: torch.device
    counters: dict[str, float]  # step, seconds
    history: list[Row]


def open_reconstruction(verb: str, arguments: list[str]) -> Reconstruction:
    """What `checkpoint=FILE` and the other arguments of a verb name, on the device."""
    config, content = load_run(verb, arguments)
    device = choose_device(config.device)
    scene = scene_to(scene_from_dict(content["scene"]), device)
    capture = open_capture(config.data)
    check_same_capture(Path(config.checkpoint), scene, capture)
    stages = build_stages(config.opt, Stages.of(config.ops, device, config.render))
    return Reconstruction(config, stages, scene, capture, device, content["counters"], content["history"])


def check_same_configuration(path: Path, stored: dict[str, Any], config: Config) -> None:
    """What the data are and what the model is must stay as they were; where files lie, budgets, rates and options may change."""
    for part, moved in (("data", {"root", "name", "kind", "poses", "tracks"}), ("model", set())):
        was, now = stored.get(part, {}), asdict(getattr(config, part))
        other = next((key for key in now if key not in moved and was.get(key) != now[key]), None)
        if other is not None:
            raise CheckpointError(
                f"{path} was made with {part}.{other}={was.get(other)}, but this run has {now[other]}; "
                f"give {part}.{other}={was.get(other)} or begin anew without train.resume"
            )


def check_same_capture(path: Path, scene: Scene, capture: Capture) -> None:
    if scene.tracks.ids != capture.tracks.ids or len(scene.exposure) != len(capture.cameras):
        raise CheckpointError(
            f"{path} was made from a capture with {len(scene.exposure)} cameras and {len(scene.tracks)} tracks, but "
            f"{capture.name} has {len(capture.cameras)} and {len(capture.tracks)} others; give the data.* it was made with"
        )
