# SPDX-License-Identifier: Apache-2.0
"""A fleet: many drives by one command (`-m +sweep=fleet`), each a run of its own. Drives that ended with the same settings are skipped, a
drive that fails is tried once more unless its input is wrong, and a record of each lies in the folder `fleet` among the runs
(nurec_lite/report/fleet.py makes the tables)."""

import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus, configure_log
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from nurec_lite.base.errors import ConfigError, StoppedError, UserError
from nurec_lite.base.files import write_text
from nurec_lite.base.texts import read_json
from nurec_lite.base.threads import share
from nurec_lite.cli.composed import composed_config
from nurec_lite.cli.multirun import folders
from nurec_lite.cli.same_run import check_same, last_change
from nurec_lite.cli.words import unquoted
from nurec_lite.config import Config
from nurec_lite.training.folder import AUTO, CHECKPOINT, METRICS, holds_run

FLEET = "fleet"  # folder of the records, and name of the callback
TRIES = 2
MOST_AT_ONCE = 1024  # runs at the same time
DONE, SKIPPED, FAILED = "done", "ended before", "failed"  # states of a drive
STOPPED, NOT_BEGUN, FORMER = "stopped", "not started", "of an earlier command"
MISTAKE = 2  # status of a run with an error that its user must mend
MAY_PASS = ("not enough memory", "cannot be written", "saved after step", "training went wrong")  # in such an error
WAIT_S = 1.0  # a terminal stops the drives as early as this process
STOPS = ("stopped", "interrupted")  # first words of a run that was asked to end
log = logging.getLogger("nurec_lite")
places: list[Path] = []  # of the fleets that this process has begun
_former: dict[Path, list["Drive"]] = {}  # records of the command before, as it left them


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
    known = isinstance(found.arguments, list) and all(isinstance(word, str) for word in found.arguments)
    return found if type(found.job) is int and known else None


class Fleet(Callback):
    """Notes where a fleet lies, and how each of its drives ended, where a launcher runs them in its own way."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        place = place_of(config.hydra)
        places.append(place)
        _former[place] = drives(place)
        for drive in _former[place]:
            replace(drive, state=FORMER).write(place)

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        if config.hydra.mode is None or config.hydra.mode.name != "MULTIRUN" or not folders:
            return
        error = None if job_return.status is JobStatus.COMPLETED else job_return._return_value
        state = FAILED if error is not None else job_return.return_value or DONE
        arguments = list(config.hydra.overrides.task)
        Drive(config.hydra.job.num, arguments, folders[-1], state, str(error or "")).write(place_of(config.hydra))


def place_of(hydra: Any) -> Path:
    """The folder of all runs."""
    given = [word for word in hydra.overrides.task if word.startswith("out=")]
    return Path(unquoted(given[-1].removeprefix("out=")) if given else hydra.sweep.dir)


def attempted(config: Config, run: Callable[[Config], dict[str, object]]) -> dict[str, object] | None:
    """Runs a drive. One of a fleet is tried once more if it fails, and skipped if it ended before: then the result is None."""
    hydra = HydraConfig.get()
    if FLEET not in hydra.callbacks:
        return run(config)
    config, folder = _anew(config, hydra.overrides.task), Path(config.out)
    if not config.train.overwrite and holds_run(folder):
        record = _record(place_of(hydra) / FLEET / f"{hydra.job.num}.json")
        given = _settings(hydra.overrides.task)
        check_same(folder, config, known=record is not None and _settings(record.arguments) == given)
    if ended(folder, config.train.overwrite):
        log.info("%s holds a run that ended; it is skipped", config.out)
        return None
    return _twice(config, run)


def _twice(config: Config, run: Callable[[Config], dict[str, object]]) -> dict[str, object]:
    """The result of the first try, or of a second one from the first one's checkpoint."""
    before = _stamp(Path(config.out))
    try:
        return run(config)
    except StoppedError:
        raise
    except Exception as error:
        if isinstance(error, UserError) and not _may_pass(MISTAKE, str(error)):
            raise
        log.warning("%s failed: %s; it is tried once more", config.out, error)
    if config.train.overwrite and _stamp(Path(config.out)) == before:
        return run(config)
    return run(replace(config, train=replace(config.train, resume=AUTO, overwrite=False)))


def _anew(config: Config, words: Sequence[str]) -> Config:
    """The configuration of a drive. One that replaces a run goes on with none, as it would by default of a fleet."""
    if not config.train.overwrite or any(word.startswith("train.resume=") for word in words):
        return config
    return replace(config, train=replace(config.train, resume=None))


def _may_pass(code: int, said: str) -> bool:
    """Whether a second try may help: memory, devices and killed processes are worth one, a wrong input is not."""
    return code != MISTAKE or said.startswith(STOPS) or any(words in said for words in MAY_PASS)


def _stamp(folder: Path) -> int | None:
    """Time of the checkpoint: another one is of a run that has begun since."""
    try:
        return (folder / CHECKPOINT).stat().st_mtime_ns
    except OSError:
        return None


def ended(folder: Path, overwrite: bool = False) -> bool:
    """Whether a run ended: metrics are its last file, and are removed when it continues."""
    return not overwrite and (folder / METRICS).is_file()


# ---- processes of this machine


class Seats:
    """Room for runs at the same time, each with a GPU if there are some, and the processes that are under way."""

    def __init__(self, at_once: int | None, gpus: int) -> None:
        self.count = at_once or gpus or 1
        self.stopped = threading.Event()
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
        if self.stopped.is_set():
            process.terminate()
        try:
            return process.wait()
        finally:
            self._running.discard(process)

    def stop(self) -> None:
        """Starts nothing more, and asks all runs to end with a checkpoint."""
        self.stopped.set()
        for process in tuple(self._running):
            process.terminate()


def launched(config: Any, jobs: Sequence[Sequence[str]], first: int, at_once: int | None) -> list[JobReturn]:
    """Runs all jobs, as many at the same time as there are GPUs. Results are in the order of the jobs."""
    place = place_of(config.hydra)
    try:
        _check(place, jobs, first, at_once)
    except BaseException:
        places.clear()  # nothing began, and there is nothing to tabulate
        for drive in _former.get(place, []):
            drive.write(place)
        raise
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    seats = Seats(at_once, torch.cuda.device_count() if torch.cuda.is_available() else 0)
    log.info("%d %s, %d at the same time", len(jobs), "run" if len(jobs) == 1 else "runs", seats.count)
    return _all_ended(place, jobs, first, seats)


def _all_ended(place: Path, jobs: Sequence[Sequence[str]], first: int, seats: Seats) -> list[JobReturn]:
    """The results of all jobs. StoppedError after Ctrl-C, as soon as no process is left."""
    for number, words in enumerate(jobs, first):  # Ctrl-C may come before all have their places in the queue
        Drive(number, list(words), str(folder_of(place, number)), NOT_BEGUN).write(place)
    with ThreadPoolExecutor(seats.count) as pool:
        try:
            found = [pool.submit(_job, place, first + k, list(words), seats) for k, words in enumerate(jobs)]
            return [job.result() for job in found]
        except KeyboardInterrupt as error:
            seats.stop()
            raise StoppedError("the fleet is stopped; the same command goes on") from error
        except BaseException:
            seats.stop()
            raise


def _check(place: Path, jobs: Sequence[Sequence[str]], first: int, at_once: int | None) -> None:
    """Raises ConfigError before anything begins, also where a folder holds the run of another drive."""
    if at_once is not None and not (type(at_once) is int and 1 <= at_once <= MOST_AT_ONCE):
        raise ConfigError(f"hydra.launcher.at_once is {at_once!r}, but must be a whole number from 1 to {MOST_AT_ONCE}")
    known = {drive.job: _settings(drive.arguments) for drive in drives(place)}
    changes = lru_cache(last_change)  # drives of a data set share its folder
    for number, words in enumerate(jobs, first):
        folder = folder_of(place, number)
        if holds_run(folder) and not _replaces(words):
            check_same(folder, _asked(words), known.get(number) == _settings(words), changes)


def _asked(words: Sequence[str]) -> Config:
    """The configuration that a job composes."""
    return composed_config("train", _alone(words))


def _settings(words: Sequence[str]) -> list[str]:
    """Arguments that decide on the result of a run."""
    return sorted(word for word in _alone(words) if not word.startswith(("train.resume=", "train.overwrite=")))


def _replaces(words: Sequence[str]) -> bool:
    return any(word.lower() == "train.overwrite=true" for word in words)


def _job(place: Path, number: int, words: list[str], seats: Seats) -> JobReturn:
    folder = folder_of(place, number)
    drive = Drive(number, words, str(folder), SKIPPED)
    if not ended(folder, _replaces(words)):
        with seats.taken() as gpu:
            drive = _tried(drive, place, gpu, seats)
    drive.write(place)
    said = (drive.state, drive.said) if not drive.said.startswith(drive.state) else (drive.said,)
    log.info("%s: %s", folder, ", ".join(filter(None, said)))
    result = JobReturn(overrides=words, status=JobStatus.COMPLETED)  # the tables tell of failures
    result.return_value = drive.state
    return result


def folder_of(place: Path, number: int) -> Path:
    """The folder of a drive."""
    text = str(place)
    return Path(text.replace("${hydra:job.num}", str(number))) if "${" in text else place / str(number)


def _tried(drive: Drive, place: Path, gpu: int | None, seats: Seats) -> Drive:
    """The drive after one or two tries."""
    if seats.stopped.is_set():
        return replace(drive, state=NOT_BEGUN)
    replace(drive, state=STOPPED).write(place)  # as it is found if this process is killed
    before, again = _stamp(Path(drive.folder)), False
    while True:
        code, said = _started(drive, place, gpu, seats, again and _stamp(Path(drive.folder)) != before)
        if code == 0:
            return replace(drive, state=DONE)
        if _was_stopped(code, said) and seats.stopped.wait(WAIT_S):
            return replace(drive, state=STOPPED, said=said)
        if again or seats.stopped.is_set() or not _may_pass(code, said):
            return replace(drive, state=FAILED, said=said)
        log.warning("%s failed: %s; it is tried once more", drive.folder, said)
        again = True


def _was_stopped(code: int, said: str) -> bool:
    return said.startswith(STOPS) or code in (-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP)


def _started(drive: Drive, place: Path, gpu: int | None, seats: Seats, goes_on: bool) -> tuple[int, str]:
    """Returns the status of a run and its last sentence. Its output lies next to the record."""
    words = [word for word in _alone(drive.arguments) if not (goes_on and word.startswith("train.overwrite="))]
    given = any(word.startswith(("train.resume=", "train.overwrite=")) for word in words)
    resume = [] if given else ["train.resume=auto"]
    command = [sys.executable, "-m", "nurec_lite.train", *words, *resume, f"out={drive.folder}"]
    own = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": _visible(gpu)}
    output = place / FLEET / f"{drive.job}.log"
    output.parent.mkdir(parents=True, exist_ok=True)
    before = output.stat().st_size if output.exists() else 0
    code = seats.run(command, {**os.environ, **share(seats.count), **own}, output)
    return code, _last_words(output, code, before)


def _alone(words: Sequence[str]) -> list[str]:
    """Arguments of a run by itself."""
    return [word for word in words if not word.startswith(("+sweep=", "out=", "hydra."))]


def _visible(gpu: int) -> str:
    """A GPU by its number among those that this process may use."""
    known = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return known[gpu] if known else str(gpu)


def _last_words(file: Path, code: int, before: int = 0) -> str:
    """The sentence of a run that failed, from its output: bytes after those of earlier runs."""
    lines = [line for line in file.read_bytes()[before:].decode(errors="replace").splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if line.startswith("error: ")), lines[-1] if lines else "")
    return last.removeprefix("error: ") if code > 0 else f"ended by signal {-code}; {file} has its output"
