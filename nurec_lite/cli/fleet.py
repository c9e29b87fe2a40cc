# SPDX-License-Identifier: Apache-2.0
"""A fleet: many drives by one command (`-m +sweep=fleet`), each a run of its own. Drives that ended are skipped, a drive that fails is
tried once more, and a record of each lies in the folder `fleet` among the runs (nurec_lite/report/fleet.py makes the tables)."""

import json
import logging
import os
import queue
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus, configure_log
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from nurec_lite.base.errors import ConfigError, StoppedError
from nurec_lite.base.files import write_text
from nurec_lite.base.texts import read_json
from nurec_lite.base.threads import share
from nurec_lite.cli.multirun import folders
from nurec_lite.config import Config
from nurec_lite.training.folder import AUTO, METRICS

FLEET = "fleet"  # folder of the records, and name of the callback
TRIES = 2
MOST_AT_ONCE = 1024  # runs at the same time
DONE, SKIPPED, FAILED = "done", "ended before", "failed"  # states of a drive
log = logging.getLogger("nurec_lite")
places: list[Path] = []  # of the fleets that this process has begun


@dataclass(frozen=True)
class Drive:
    """The record of a drive."""

    job: int
    arguments: list[str]
    folder: str
    state: str
    said: str = ""  # the sentence of a failure

    def write(self, place: Path) -> None:
        write_text(place / FLEET / f"{self.job}.json", json.dumps(asdict(self), indent=1) + "\n")


def drives(place: Path) -> list[Drive]:
    """The records in a folder, in the order of their numbers. One that cannot be read is a drive that is still to do."""
    found = (_record(path) for path in (place / FLEET).glob("*.json"))
    return sorted((drive for drive in found if drive is not None), key=lambda drive: drive.job)


def _record(path: Path) -> Drive | None:
    try:
        found = Drive(**read_json(path))
    except (OSError, ValueError, TypeError):  # of another version, or cut short
        return None
    return found if type(found.job) is int else None


class Fleet(Callback):
    """Notes where a fleet lies, and how each of its drives ended, where a launcher runs them in its own way."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        places.append(place_of(config))

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        if config.hydra.mode is None or config.hydra.mode.name != "MULTIRUN" or not folders:
            return
        error = None if job_return.status is JobStatus.COMPLETED else job_return._return_value
        state = FAILED if error is not None else job_return.return_value or DONE
        arguments = list(config.hydra.overrides.task)
        Drive(config.hydra.job.num, arguments, folders[-1], state, str(error or "")).write(place_of(config))


def place_of(config: DictConfig) -> Path:
    """The folder of all runs."""
    given = [word for word in config.hydra.overrides.task if word.startswith("out=")]
    return Path(_unquoted(given[-1]) if given else config.hydra.sweep.dir)


def _unquoted(argument: str) -> str:
    return argument.partition("=")[2].strip("'\"")


def attempted(config: Config, run: Callable[[Config], dict[str, object]]) -> dict[str, object] | None:
    """Runs a drive. One of a fleet is tried once more if it fails, and skipped if it ended before: then the result is None."""
    if FLEET not in HydraConfig.get().callbacks:
        return run(config)
    if ended(Path(config.out), config.train.overwrite):
        log.info("%s holds a run that ended; it is skipped", config.out)
        return None
    try:
        return run(config)
    except (StoppedError, ConfigError):
        raise
    except Exception as error:
        log.warning("%s failed: %s; it is tried once more", config.out, error)
    return run(replace(config, train=replace(config.train, resume=AUTO, overwrite=False)))


def ended(folder: Path, overwrite: bool = False) -> bool:
    """Whether a run ended: metrics are its last file, and are removed when it continues."""
    return not overwrite and (folder / METRICS).is_file()


# ---- processes of this machine


class Seats:
    """Room for runs at the same time, each with a GPU if there are some, and the processes that are under way."""

    def __init__(self, at_once: int | None, gpus: int) -> None:
        self.count = at_once or gpus or 1
        self.stopped = False
        self._free: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._running: set[subprocess.Popen[bytes]] = set()
        for k in range(self.count):
            self._free.put(k % gpus if gpus else None)

    @contextmanager
    def taken(self) -> Iterator[int | None]:
        """Waits for a free GPU, and yields its number."""
        gpu = self._free.get()
        try:
            yield gpu
        finally:
            self._free.put(gpu)

    def run(self, command: Sequence[str], environment: dict[str, str], output: Path) -> int:
        """Returns the status of a process that appends its output to a file."""
        with output.open("ab") as file:
            process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
        self._running.add(process)
        try:
            return process.wait()
        finally:
            self._running.discard(process)

    def stop(self) -> None:
        """Starts nothing more, and asks all runs to end with a checkpoint."""
        self.stopped = True
        for process in tuple(self._running):
            process.terminate()


def launched(config: Any, jobs: Sequence[Sequence[str]], first: int, at_once: int | None) -> list[JobReturn]:
    """Runs all jobs, as many at the same time as there are GPUs. Results are in the order of the jobs."""
    if at_once is not None and not (type(at_once) is int and 1 <= at_once <= MOST_AT_ONCE):
        raise ConfigError(f"hydra.launcher.at_once is {at_once!r}, but must be a whole number from 1 to {MOST_AT_ONCE}")
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    seats = Seats(at_once, torch.cuda.device_count() if torch.cuda.is_available() else 0)
    log.info("%d runs, %d at the same time", len(jobs), seats.count)
    place = place_of(config)
    with ThreadPoolExecutor(seats.count) as pool:
        found = [pool.submit(_job, place, first + k, list(words), seats) for k, words in enumerate(jobs)]
        try:
            return [job.result() for job in found]
        except BaseException:
            seats.stop()
            raise


def _job(place: Path, number: int, words: list[str], seats: Seats) -> JobReturn:
    folder = folder_of(place, number)
    drive = Drive(number, words, str(folder), SKIPPED)
    if not ended(folder, "train.overwrite=true" in words):
        with seats.taken() as gpu:
            drive = _tried(drive, place, gpu, seats)
    drive.write(place)
    log.info("%s: %s", folder, ", ".join(filter(None, (drive.state, drive.said))))
    result = JobReturn(overrides=words, status=JobStatus.COMPLETED)  # the tables tell of failures
    result.return_value = drive.state
    return result


def folder_of(place: Path, number: int) -> Path:
    """The folder of a drive."""
    text = str(place)
    return Path(text.replace("${hydra:job.num}", str(number))) if "${" in text else place / str(number)


def _tried(drive: Drive, place: Path, gpu: int | None, seats: Seats) -> Drive:
    """The drive after one or two tries."""
    said = "stopped before it began"
    for attempt in range(TRIES):
        if seats.stopped:
            break
        code, said = _started(drive, place, gpu, seats, again=attempt > 0)
        if code == 0:
            return replace(drive, state=DONE)
        if attempt + 1 < TRIES:
            log.warning("%s failed: %s; it is tried once more", drive.folder, said)
    return replace(drive, state=FAILED, said=said)


def _started(drive: Drive, place: Path, gpu: int | None, seats: Seats, again: bool) -> tuple[int, str]:
    """Returns the status of a run and its last sentence. Its output lies next to the record."""
    words = [word for word in _alone(drive.arguments) if not (again and word.startswith("train.overwrite="))]
    goes_on = (
        [] if any(word.startswith(("train.resume=", "train.overwrite=")) for word in words) else ["train.resume=auto"]
    )
    command = [sys.executable, "-m", "nurec_lite.train", *words, *goes_on, f"out={drive.folder}"]
    own = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": _visible(gpu)}
    output = place / FLEET / f"{drive.job}.log"
    output.parent.mkdir(parents=True, exist_ok=True)
    code = seats.run(command, {**os.environ, **share(seats.count), **own}, output)
    return code, _last_words(output, code)


def _alone(words: Sequence[str]) -> list[str]:
    """Arguments of a run by itself."""
    return [word for word in words if not word.startswith(("+sweep=", "out=", "hydra."))]


def _visible(gpu: int) -> str:
    """A GPU by its number among those that this process may use."""
    known = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return known[gpu] if known else str(gpu)


def _last_words(file: Path, code: int) -> str:
    lines = [line for line in file.read_text(errors="replace").splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if line.startswith("error: ")), lines[-1] if lines else "")
    return last.removeprefix("error: ") if code > 0 else f"ended by signal {-code}; {file} has its output"
