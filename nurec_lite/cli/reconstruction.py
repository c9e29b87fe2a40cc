# SPDX-License-Identifier: Apache-2.0
"""A trained scene with the capture that it was made from, as the commands that come after training take it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from nurec_lite.backends import base_stages, build_stages, check_stages
from nurec_lite.base.environment import choose_device
from nurec_lite.capture.types import Capture
from nurec_lite.cli.arguments import check_files, key_of
from nurec_lite.cli.command import load_run
from nurec_lite.config import DataConfig
from nurec_lite.readers import NOTHING_KNOWN, Known, open_capture
from nurec_lite.scene.scene import Scene
from nurec_lite.training.checkpoint import scene_from_dict, scene_to
from nurec_lite.training.history import Row
from nurec_lite.training.known_capture import check_known_capture, known_of
from nurec_lite.training.stages import Stages


@dataclass(frozen=True)
class Reconstruction:
    config: Any  # of the command: EvaluateConfig or RenderConfig
    stages: Stages
    scene: Scene
    capture: Capture
    device: torch.device
    counters: dict[str, float]  # step, seconds
    history: list[Row]
    arguments: tuple[str, ...] = ()  # of the command line
    trained: Mapping[str, Any] = field(default_factory=dict)  # configuration of the run that it was made by
    known: Known = NOTHING_KNOWN  # poses and tracks of that run


def open_reconstruction(verb: str, arguments: list[str]) -> Reconstruction:
    """Loads the scene that `checkpoint=FILE` and the other arguments of a command name, on the device."""
    config, content = load_run(verb, arguments)
    check_files(Path(config.checkpoint), config.data, arguments)
    return opened(config, content, arguments)


def opened(
    config: Any,  # of the command
    content: dict[str, Any],  # of the checkpoint
    arguments: Sequence[str],  # that the configuration was composed from
    source: Capture | None = None,  # a capture in memory, instead of the one that the configuration names
    busy: AbstractContextManager[object] | None = None,  # around work on the device, where others use it, too
) -> Reconstruction:
    """The scene of a checkpoint on the device, with its capture and stages."""
    device = choose_device(config.device)
    check_stages(config.ops, device, config.render, config.opt)
    scene, known = scene_from_dict(content["scene"]), known_of(content)
    origin = scene.origin
    if source is None:
        capture = open_capture(config.data, origin, known)
    else:
        capture = open_capture(_in_memory(config.data, arguments), origin, known, source=source)
    check_known_capture(Path(config.checkpoint), content, capture, config.data, memory=source is not None)
    with busy or nullcontext():
        scene = scene_to(scene, device)
        stages = build_stages(config.opt, base_stages(config.ops, device, config.render))
    return Reconstruction(
        config, stages, scene, capture, device, content["counters"], content["history"], tuple(arguments),
        content["config"], known,
    )  # fmt: skip


def _in_memory(data: DataConfig, arguments: Sequence[str]) -> DataConfig:
    """The keys for a capture whose images were reduced when it was read, unless the user reduces them anew."""
    asked = any(key_of(argument) == "data.downscale" for argument in arguments)
    return data if asked else replace(data, downscale=1)
