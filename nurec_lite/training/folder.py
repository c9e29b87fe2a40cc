# SPDX-License-Identifier: Apache-2.0
"""The folder of a run: what lies there, and what of it tells of which checkpoint."""

from pathlib import Path

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.files import remove
from nurec_lite.base.lock import FolderError
from nurec_lite.config import Config

AUTO = "auto"  # of train.resume
CHECKPOINT, HISTORY, CONFIG = "checkpoint.pt", "history.csv", "config.yaml"
DOUBTS = "doubts.json"  # what its sensors say against the capture; only where there is something
METRICS = "metrics.json"  # the last file that a run writes
MEASURED = (
    METRICS,
    "report.html",
    "frames.csv",
    "timing.csv",
    "broken.json",
    "pictures",
)  # they tell of the checkpoint
_A_RUN = (CHECKPOINT, METRICS, HISTORY)  # one of these, and the folder holds a run


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
            f"{out} holds a run; go on with it by train.resume=auto, replace it by train.overwrite=true, or give another folder by "
            "out=FOLDER"
        )
    return found


def clear(out: Path) -> None:
    """Takes a run away; whatever is left if this is interrupted belongs together."""
    remove([out / name for name in (*MEASURED, HISTORY, CHECKPOINT, CONFIG, DOUBTS, "tensorboard")])


def refuse_run(out: Path) -> None:
    """FolderError where the results of another verb would replace those of a run."""
    if (out / CHECKPOINT).exists():
        raise FolderError(f"{out} holds a run, whose files would be replaced; give another folder by out=FOLDER")


def _same(a: Path, b: Path) -> bool:
    return a.exists() and b.exists() and a.samefile(b)
