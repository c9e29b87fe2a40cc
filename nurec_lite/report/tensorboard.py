# SPDX-License-Identifier: Apache-2.0
"""Scalars of a run for TensorBoard: `train.tensorboard=true`, then `tensorboard --logdir runs`.

The package is an extra; whether it is there is asked before anything is read, so that a run does not fail after its work.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.folders import owner_of
from nurec_lite.base.place import prints
from nurec_lite.config import Config
from nurec_lite.training.history import History, Row

_MODULE = "torch.utils.tensorboard"
EVENTS = "events.out.tfevents.*"  # files of its writer
log = logging.getLogger("nurec_lite")
_COUNTERS = {"step", "seconds"}  # the axes of all curves, no curves themselves


def check_tensorboard(config: Config) -> None:
    """Raises ConfigError if scalars are asked for and cannot be written."""
    if not config.train.tensorboard:
        return
    try:
        import_module(_MODULE)
    except ImportError as error:
        raise ConfigError("train.tensorboard=true needs the package tensorboard; pip install tensorboard") from error


@contextmanager
def tensorboard(
    config: Config,
    history: History,  # of a run that begins or goes on
) -> Iterator[Callable[[int, dict[str, Any]], None]]:
    """Turns every new row of the history into scalars in OUT/tensorboard, within the block; it yields a function of the
    step and the held-out metrics. Does nothing unless `train.tensorboard`, and on one rank alone."""
    if not config.train.tensorboard or not prints():
        yield lambda step, metrics: None
        return
    try:
        scalars = Scalars(Path(config.out) / "tensorboard", history.rows)
    except Exception as error:  # no fault of another package costs the run
        log.warning("no scalars for TensorBoard: %s", error)
        yield lambda step, metrics: None
        return
    history.listeners += (scalars.row,)
    try:
        yield scalars.metrics
    finally:
        scalars.close()


def _numbers(tag: str, value: Any) -> Iterator[tuple[str, float]]:
    """All within mappings of mappings, each with its path."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _numbers(f"{tag}/{name}", one)
    elif isinstance(value, int | float):
        yield tag, value


class Scalars:
    """An event file. TensorBoard's relative time is that of training, also where a run was interrupted."""

    def __init__(
        self,
        folder: Path,
        rows: list[Row],  # of the run that this one goes on from
    ) -> None:
        self._lost = False
        step, self._seconds = (int(rows[-1]["step"]), rows[-1]["seconds"]) if rows else (-1, 0.0)
        self._begin = time.time() - self._seconds
        known, before = folder.exists(), set(folder.glob(EVENTS))
        # hides entries of other runs for the steps to come, such as of one that was interrupted after its last checkpoint
        self._writer = import_module(_MODULE).SummaryWriter(str(folder), purge_step=step + 1 if known else None)
        if owner := owner_of(folder / "events"):
            owner.add(f"{folder.name}/{path.name}" for path in {*folder.glob(EVENTS)} - before)
        for row in () if known else rows:
            self.row(row)

    def row(self, row: Row) -> None:
        """PSNR and number of Gaussians under `train`, loss terms under `loss`."""
        self._seconds = row["seconds"]
        for name in (name for name in row if name not in _COUNTERS):
            self._add(f"{'train' if name in ('psnr', 'gaussians') else 'loss'}/{name}", row[name], int(row["step"]))

    def metrics(self, step: int, metrics: dict[str, Any]) -> None:
        """Numbers of the held-out frames under `held_out`; those of actors one level deeper."""
        for tag, number in _numbers("held_out", metrics):
            self._add(tag, number, step)

    def _add(self, tag: str, value: float, step: int) -> None:
        if math.isfinite(value):
            self._tried(partial(self._writer.add_scalar, tag, value, step, walltime=self._begin + self._seconds))

    def _tried(self, write: Callable[[], object]) -> None:
        """Writes scalars; a full disk ends the curves alone, not the run."""
        if self._lost:
            return
        try:
            write()
        except Exception as error:  # any error of its own thread
            self._lost = True
            log.warning("no more scalars for TensorBoard: %s", error)

    def close(self) -> None:
        self._tried(self._writer.close)
