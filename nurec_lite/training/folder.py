# SPDX-License-Identifier: Apache-2.0
"""The folder of a run: its files, and the checkpoint that each belongs to."""

import csv
import os
from collections.abc import Iterator
from pathlib import Path

from omegaconf import OmegaConf

from nurec_lite.base.errors import ConfigError, FolderError
from nurec_lite.base.folders import ANOTHER, MARKER, PICTURES, RUN, Results, discard, owner_of, take
from nurec_lite.config import Config
from nurec_lite.training.checkpoint import CheckpointError, load_checkpoint
from nurec_lite.training.torch_file import read_torch_file

AUTO = "auto"  # of train.resume
CHECKPOINT, HISTORY, CONFIG = "checkpoint.pt", "history.csv", "config.yaml"
DOUBTS = "doubts.json"  # verdicts of the checks against the capture, if there are any
METRICS, FRAMES = "metrics.json", "frames.csv"  # metrics are the last file that a run writes
MEASURED = (METRICS, "report.html", FRAMES, "timing.csv", "broken.json")  # with pictures, they tell of the checkpoint
SCALARS = "tensorboard"
_FILES = (*MEASURED, HISTORY, CHECKPOINT, CONFIG, DOUBTS)
_A_RUN = (CHECKPOINT, METRICS, HISTORY)  # one of these, and the folder holds a run
_LARGEST = 1 << 20  # bytes of a configuration or a table that is looked at


def take_run(out: str) -> Results:
    """Returns the folder of a run that begins or goes on; FolderError if it holds files that no run wrote."""
    return take(out, RUN, (*_FILES, f"{PICTURES}/", f"{SCALARS}/"), _of_an_older_version(Path(out)))


def _of_an_older_version(out: Path) -> set[str] | None:
    """Returns the names of files of a run from before the marker; None if no such run was here. Its checkpoint and its configuration
    agree."""
    if os.path.lexists(out / MARKER) or not all(_is_plain(out / name) for name in (CHECKPOINT, CONFIG)):
        return None
    try:
        load_checkpoint(out / CHECKPOINT, "cpu")
        stored = OmegaConf.to_yaml(OmegaConf.create(read_torch_file(out / CHECKPOINT)["config"]))
    except CheckpointError:
        return None
    if _start_of(out / CONFIG) != stored:
        return None
    events = (out / SCALARS).glob("events.out.tfevents.*")
    return {*_FILES, *_pictures(out), *(f"{SCALARS}/{path.name}" for path in events)}


def _pictures(out: Path) -> Iterator[str]:
    """Pictures of the frames that the run has measured."""
    rows = csv.DictReader(_start_of(out / FRAMES).splitlines()) if _is_plain(out / FRAMES) else ()
    for row in rows:
        sensor, index = str(row.get("sensor")), str(row.get("index"))
        if index.isdecimal() and "/" not in sensor:
            yield f"{PICTURES}/{sensor}_{int(index):04d}.png"


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _start_of(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_LARGEST).decode(errors="replace")


def holds_run(out: Path) -> bool:
    return any((out / name).exists() for name in _A_RUN)


def found_checkpoint(config: Config) -> Path | None:
    """The checkpoint that a run goes on from, None if it begins; FolderError if another run would be lost."""
    out, resume = Path(config.out), config.train.resume
    own = out / CHECKPOINT
    if resume is not None and config.train.overwrite:
        raise ConfigError("train.resume goes on with a run, train.overwrite=true replaces one; give one of them")
    if resume == AUTO:
        return own if own.exists() else None
    found = None if resume is None else Path(resume)
    if holds_run(out) and not config.train.overwrite and (found is None or not _same(found, own)):
        raise FolderError(
            f"{out} holds a run; go on with it by train.resume=auto, replace it by train.overwrite=true, or {ANOTHER}"
        )
    return found


def measured(out: Path) -> list[Path]:
    """Results in the folder that describe its checkpoint."""
    return _paths(out, *MEASURED, PICTURES)


def clear(out: Path) -> None:
    """Takes a run away; the files that an interruption leaves belong together."""
    discard([*measured(out), *_paths(out, HISTORY), *_paths(out, CHECKPOINT), *_paths(out, CONFIG, DOUBTS, SCALARS)])


def _paths(out: Path, *names: str) -> list[Path]:
    owner = owner_of(out / CHECKPOINT)
    return [] if owner is None else owner.paths(*names)


def refuse_run(out: str) -> None:
    """Raises FolderError where the results of another command would lie among those of a run of any version."""
    if out and (Path(out) / CHECKPOINT).exists():
        raise FolderError(f"{out} holds a run, and would lose its files; {ANOTHER}")


def _same(a: Path, b: Path) -> bool:
    return a.exists() and b.exists() and a.samefile(b)
