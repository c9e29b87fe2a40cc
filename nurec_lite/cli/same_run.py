# SPDX-License-Identifier: Apache-2.0
"""The run in a folder, compared with the one that a command asks for there: the figures of other settings, or of another capture under the
same name, are of another run."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from nurec_lite.base.errors import ConfigError, UserError
from nurec_lite.base.folders import MARKER
from nurec_lite.base.key_values import assigned, flat
from nurec_lite.capture.yaml_files import YamlLoader, read_yaml
from nurec_lite.config import PATHS, Config, DataConfig, to_yaml
from nurec_lite.readers import open_capture
from nurec_lite.training.checkpoint import CheckpointError, load_checkpoint
from nurec_lite.training.folder import CHECKPOINT, CONFIG, METRICS
from nurec_lite.training.known_capture import check_known_capture, known_of

REMEDY = "give another out=FOLDER, or train all drives anew by train.overwrite=true"
log = logging.getLogger("nurec_lite")
_FREE = {  # keys that change no figure of a run
    "out", "device", "data.trust", "train.resume", "train.overwrite", "train.checkpoint_seconds", "train.tensorboard", "train.timing",
    "measure.seconds",
}  # fmt: skip
_LOWERED = {"train.lidar_rays", "density.cap", "model.points", "model.raised_points", "model.far_points"}


def last_change(path: str) -> int:
    """Nanoseconds of the last change of a file, or of all in a folder but runs; 0 without either. A file that keeps its time while it is
    moved or copied has changed, too."""
    found = [path]
    for folder, folders, files in os.walk(path):
        folders[:] = [name for name in folders if not os.path.lexists(os.path.join(folder, name, MARKER))]
        found += (os.path.join(folder, name) for name in (*folders, *files))
    return max(map(_changed, found))


def _changed(path: str) -> int:
    try:
        at = os.stat(path)
    except OSError:
        return 0
    return max(at.st_mtime_ns, at.st_ctime_ns)


def check_same(
    folder: Path,  # of a run
    asked: Config,
    known: bool,  # whether its command was the same: a run lowers some values by itself where memory is short
    changes: Callable[[str], int] = last_change,
) -> None:
    """Raises ConfigError where the run was made with other settings, or ended before its capture was replaced by another one."""
    stored = read_yaml(folder / CONFIG, REMEDY)
    found = flat(stored) if isinstance(stored, dict) else {}
    wanted = flat(yaml.load(to_yaml(asked), YamlLoader))  # a SafeLoader
    if not wanted.keys() & found.keys():
        raise ConfigError(f"{folder / CONFIG} holds no settings of a run; {REMEDY}")
    for key in {**wanted, **found}:
        if _differ(key, found, wanted) and not (known and _lowered(key, found, wanted)):
            raise ConfigError(
                f"{folder} holds a run with {_text(key, found)}, but {_text(key, wanted)} is asked for; {REMEDY}"
            )
    _check_same_capture(folder, asked.data, changes)


def _check_same_capture(folder: Path, data: DataConfig, changes: Callable[[str], int]) -> None:
    """Reads the capture if its files have changed since the run ended. A run that continues looks by itself."""
    checkpoint, metrics = folder / CHECKPOINT, folder / METRICS
    if not (checkpoint.exists() and metrics.exists()):
        return
    ended, named = metrics.stat().st_mtime_ns, (data.root, data.poses.file, data.tracks.file, data.mapping)
    newer = [name for name in named if name and changes(os.path.abspath(name)) > ended]
    if not newer:
        return
    content = load_checkpoint(checkpoint, "cpu")
    try:
        check_known_capture(checkpoint, content, open_capture(data, known=known_of(content)), data, exact=True)
    except CheckpointError as error:
        raise ConfigError(f"{newer[0]} has changed since its run: {error}; {REMEDY}") from error
    except UserError as error:  # its files are gone, say
        log.warning("%s holds the figures of its run, and cannot be compared with %s: %s", folder, newer[0], error)


def _differ(key: str, found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether a key has two values. A key that only one of two versions has is no difference, but an option is."""
    if key in _FREE or not (key.startswith("opt.") or (key in found and key in wanted)):
        return False
    a, b = found.get(key), wanted.get(key)
    if key in PATHS and isinstance(a, str) and isinstance(b, str):
        return os.path.realpath(a) != os.path.realpath(b)
    return a != b


def _lowered(key: str, found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    a, b = found.get(key), wanted.get(key)
    return key in _LOWERED and isinstance(a, int) and (isinstance(b, str) or (isinstance(b, int) and a < b))


def _text(key: str, values: dict[str, Any]) -> str:
    return assigned(key, values[key]) if key in values else f"no {key}"
