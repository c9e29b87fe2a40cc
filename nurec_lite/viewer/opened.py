# SPDX-License-Identifier: Apache-2.0
"""The run that is shown: its scene, which is loaded again as training writes it, and its capture as far as the drive's files are there."""

import logging
import os
import re
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.environment import choose_device
from nurec_lite.base.errors import ConfigError, UserError
from nurec_lite.base.folders import LOCK
from nurec_lite.base.key_values import quoted
from nurec_lite.base.texts import read_bounded
from nurec_lite.bounds import leaves
from nurec_lite.cli.arguments import check_files, is_path, key_of, value_of
from nurec_lite.cli.command import load_run, named_checkpoint
from nurec_lite.cli.reconstruction import Reconstruction, opened
from nurec_lite.cli.words import unquoted
from nurec_lite.config import ViewConfig
from nurec_lite.scene.scene import Scene
from nurec_lite.training.checkpoint import CheckpointError, load_checkpoint, scene_from_dict, scene_to
from nurec_lite.training.folder import CHECKPOINT
from nurec_lite.training.known_capture import check_known_capture, known_of
from nurec_lite.viewer.recorded import recorded_capture

WAIT_S = 1.0  # seconds between two looks for the first checkpoint of a run
LARGEST_LOCK = 1 << 12  # bytes
_HOLDER = re.compile(r"process ([0-9]{1,10}) on ([^\n]*)")
Mark = tuple[int, int, int]  # time, number and size of a file: another checkpoint has others
log = logging.getLogger("nurec_lite")


def with_run(arguments: Sequence[str]) -> list[str]:  # KEY=VALUE each
    """Returns the arguments; one may be the run's folder or a checkpoint without a key. ConfigError if there are several."""
    keys = {key.split(".")[0] for key, _ in leaves(ViewConfig)} | {"opt"}
    given = [f"checkpoint={quoted(a)}" if is_path(a, keys) else a for a in arguments]
    runs = [unquoted(value_of(a)) for a in given if key_of(a) == "checkpoint"]
    if len(runs) > 1:
        raise ConfigError(f"{' and '.join(runs)} are {len(runs)} runs, but the viewer shows one; start one viewer each")
    return given


class Run:
    """The newest checkpoint of a run."""

    def __init__(self, arguments: Sequence[str], wait: Callable[[float], None] = time.sleep) -> None:
        """Waits for the first checkpoint while a training runs in the folder. UserError if none will come."""
        self._arguments = with_run(arguments)
        self.file = _checkpoint(named_checkpoint(self._arguments), wait)
        self._mark = _mark(self.file)
        self.shown, self.missing = _opened([a for a in self._arguments if key_of(a) != "checkpoint"], self.file)

    @property
    def folder(self) -> Path:
        return self.file.parent

    def newer(self) -> bool:
        """Loads the checkpoint if it is another file than the one that is shown; returns whether the scene has changed. CheckpointError
        once if the new one is of another drive."""
        mark = _mark(self.file)
        if mark is None or mark == self._mark:
            return False
        self._mark = mark
        content = load_checkpoint(self.file, "cpu")
        scene, shown = scene_from_dict(content["scene"]), self.shown
        if self._is_other(scene, content):
            raise CheckpointError(f"{self.file} is now of another drive; start the viewer again to see it")
        self.shown = replace(
            shown, scene=scene_to(scene, shown.device), counters=content["counters"], history=content["history"],
            trained=content["config"],
        )  # fmt: skip
        return True

    def _is_other(self, scene: Scene, content: dict[str, Any]) -> bool:
        """Whether a checkpoint is of another drive. One that was trained on the same data is not, which takes no look at the capture."""
        shown = self.shown
        if (scene.origin, scene.tracks.ids) != (shown.scene.origin, shown.scene.tracks.ids):
            return True
        if self.missing is not None or content["config"].get("data") == shown.trained.get("data"):
            return False
        try:
            check_known_capture(self.file, content, shown.capture, shown.config.data)
        except CheckpointError:
            return True
        return False


def _mark(file: Path) -> Mark | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _checkpoint(named: Path, wait: Callable[[float], None]) -> Path:
    """The checkpoint that a folder holds or will hold soon."""
    if not named.is_dir():
        return named
    file, said = named / CHECKPOINT, False
    while not file.exists():
        if not _trains(named):
            raise CheckpointError(f"{named} holds no {CHECKPOINT}; name the folder of a run, as in runs/mine")
        if not said:
            log.info("waits for the first checkpoint of %s", named)
        said = True
        wait(WAIT_S)
    return file


def _trains(folder: Path) -> bool:
    """Whether the lock in a folder is that of a process that lives, as far as one can know: it may run on another machine."""
    try:
        found = _HOLDER.match(read_bounded(folder / LOCK, LARGEST_LOCK).decode())
    except (OSError, ValueError):  # there is none, or it is no text
        return False
    if found is None or found[2] != socket.gethostname():
        return found is not None
    return Path(f"/proc/{found[1]}").exists()


def _opened(arguments: list[str], file: Path) -> tuple[Reconstruction, str | None]:
    """The run, and why photos and sweeps are left out; None: they are there."""
    arguments = [*arguments, f"checkpoint={quoted(str(file))}"]
    config, content = load_run("view", arguments)
    try:
        check_files(file, config.data, arguments)
        return opened(config, content, arguments), None
    except CheckpointError:
        raise
    except UserError as error:
        run = _without_files(config, content, arguments)
        if run is None:
            raise
        return run, f"Photos and measured sweeps are left out: {error}"


def _without_files(config: Any, content: dict[str, Any], arguments: list[str]) -> Reconstruction | None:
    """The scene with its checkpoint's data of the drive; None if an older version wrote it, which knew too little."""
    capture = recorded_capture(content)
    if capture is None:
        return None
    device = choose_device(config.device)
    scene = scene_to(scene_from_dict(content["scene"]), device)
    stages = build_stages(config.opt, base_stages(config.ops, device, config.render))
    return Reconstruction(
        config, stages, scene, capture, device, content["counters"], content["history"], tuple(arguments),
        content["config"], known_of(content),
    )  # fmt: skip
