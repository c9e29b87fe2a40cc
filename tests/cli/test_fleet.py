# SPDX-License-Identifier: Apache-2.0
"""A fleet of drives: finished ones are skipped, failed ones tried once more, each GPU has one run, and tables tell of all. Runs of other
settings are in test_same_run.py."""

import csv
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from tiny_arguments import TINY

from nurec_lite.base.errors import ConfigError, OutputError, StoppedError, UserError
from nurec_lite.base.paths import resource
from nurec_lite.capture.types import CaptureError
from nurec_lite.cli import fleet
from nurec_lite.cli.cluster import lost_jobs_fail
from nurec_lite.cli.fleet import (
    DONE,
    FAILED,
    FORMER,
    NOT_BEGUN,
    SKIPPED,
    STOPPED,
    Drive,
    Fleet,
    Seats,
    attempted,
    drives,
    launched,
)
from nurec_lite.config import Config, to_yaml
from nurec_lite.report.fleet import write_tables

METRICS = {"psnr": 24.5, "ssim": 0.8, "lidar_median_abs_m": 0.05, "seconds_total": 12.0}


def finish(folder: Path, words: Sequence[str] = ()) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.json").write_text(json.dumps(METRICS))
    (folder / "config.yaml").write_text(to_yaml(fleet._asked(words)))


@pytest.mark.parametrize("at_once", [0, -1, 10**9, float("nan"), 1.5, True, "two"])
def test_a_number_of_runs_at_the_same_time_is_checked(tmp_path: Path, at_once: Any) -> None:
    with pytest.raises(ConfigError, match=r"hydra\.launcher\.at_once is .*, but must be a whole number from 1 to 1024"):
        launched(swept(tmp_path), [["seed=0"]], 0, at_once)


def swept(place: Path) -> Any:
    hydra = {
        "hydra_logging": None,
        "verbose": False,
        "overrides": {"task": [f"out='{place}'"]},
        "sweep": {"dir": "elsewhere"},
    }
    return OmegaConf.create({"hydra": hydra})


class Runs:
    """Stands in for processes: counts starts of each folder, notes their GPUs, and counts runs at the same time."""

    code, said = 1, "the GPU is gone"  # of a failure

    def __init__(self, failures: dict[str, int]) -> None:
        self.failures, self.started, self.gpus, self.most = failures, list[str](), list[str](), 0
        self._now, self._lock = set[str](), threading.Lock()

    def run(self, seats: Seats, command: list[str], environment: dict[str, str], output: Path) -> int:
        folder, gpu = Path(command[-1].removeprefix("out=")), environment.get("CUDA_VISIBLE_DEVICES", "")
        with self._lock:
            assert gpu not in self._now, "two runs on one GPU"
            self._now.add(gpu)
            self.most = max(self.most, len(self._now))
            self.started.append(folder.name)
            self.gpus.append(gpu)
        with output.open("a") as file:
            file.write(f"error: {self.said}\n")
        with self._lock:
            self._now.discard(gpu)
            self.failures[folder.name] = self.failures.get(folder.name, 0) - 1
        if self.failures[folder.name] >= 0:
            return self.code
        with self._lock:  # Hydra composes in one thread at a time
            finish(folder, [word for word in command[3:-1] if not word.startswith("train.")])
        return 0


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    made = Runs({"0": 2, "1": 1})
    monkeypatch.setattr(Seats, "run", lambda self, *given: made.run(self, *given))
    monkeypatch.setattr(fleet, "configure_log", lambda *given: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return made


JOBS = [["+sweep=fleet", f"data.root=/drives/{name}"] for name in ("a", "b", "c", "d")]


def test_a_drive_that_fails_is_tried_once_more_and_one_that_ended_is_skipped(runs: Runs, tmp_path: Path) -> None:
    finish(tmp_path / "2", JOBS[2])
    results = launched(swept(tmp_path), JOBS, 0, 1)
    assert runs.started == ["0", "0", "1", "1", "3"]
    assert [r.return_value for r in results] == [d.state for d in drives(tmp_path)] == [FAILED, DONE, SKIPPED, DONE]
    assert drives(tmp_path)[0].said == "the GPU is gone"
    launched(swept(tmp_path), JOBS, 0, 1)
    assert runs.started[5:] == ["0"], "the same command again tries the failed runs, and nothing else"


def test_each_gpu_has_one_run_at_a_time(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    launched(swept(tmp_path), JOBS, 0, None)
    assert set(runs.gpus) <= {"0", "1"} and runs.most <= 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    launched(swept(tmp_path / "again"), JOBS[2:], 2, None)
    assert set(runs.gpus[-2:]) <= {"5", "7"}


MISSING = "/drives/a does not exist; name an existing pack"
SHORT = "there is not enough memory for the frames of a; read fewer"


@pytest.mark.parametrize(
    "code, said, tries",
    [
        (2, MISSING, 1),
        (2, SHORT, 2),
        (2, "a.png cannot be read; saved after step 9; go on", 2),
        (1, "a trace", 2),
        (-9, "", 2),
    ],
)
def test_a_wrong_input_is_not_tried_again(runs: Runs, tmp_path: Path, code: int, said: str, tries: int) -> None:
    runs.code, runs.said = code, said
    launched(swept(tmp_path), JOBS[:1], 0, 1)
    assert len(runs.started) == tries and drives(tmp_path)[0].state == FAILED


def test_a_second_try_replaces_a_run_that_the_first_one_left(runs: Runs, tmp_path: Path, monkeypatch: Any) -> None:
    """With train.overwrite=true, a checkpoint from before the first try is of the run to replace."""
    seen: list[list[str]] = []
    run, checkpoint = Seats.run, tmp_path / "0/checkpoint.pt"
    checkpoint.parent.mkdir()
    checkpoint.touch()
    monkeypatch.setattr(Seats, "run", lambda self, *given: (seen.append(given[0]), run(self, *given))[1])
    launched(swept(tmp_path), [[*JOBS[0], "train.overwrite=true"]], 0, 1)
    assert ["train.overwrite=true" in words for words in seen] == [True, True]
    monkeypatch.setattr(
        Seats, "run", lambda self, *given: (seen.append(given[0]), os.utime(checkpoint, ns=(1, 1)), 1)[2]
    )
    launched(swept(tmp_path), [[*JOBS[0], "train.overwrite=true"]], 0, 1)
    assert ["train.resume=auto" in words for words in seen[2:]] == [False, True]


def test_the_last_words_are_of_the_last_try(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("error: an earlier one\nKeyError: 'now'\n")
    assert fleet._last_words(tmp_path / "log", 1, len("error: an earlier one\n")) == "KeyError: 'now'"


# ---- Ctrl-C


def test_nothing_is_started_after_a_stop(runs: Runs, tmp_path: Path) -> None:
    seats = Seats(1, 0)
    seats.stop()
    drive = Drive(0, JOBS[0], str(tmp_path / "0"), SKIPPED)
    assert fleet._tried(drive, tmp_path, None, seats).state == NOT_BEGUN and not runs.started


def test_a_stop_is_no_failure(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C reaches the launcher while drive 0 trains, which then saves a checkpoint and ends."""

    def run(seats: Seats, command: list[str], environment: dict[str, str], output: Path) -> int:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert seats.stopped.wait(60)
        output.write_text("error: stopped after step 7; go on with train.resume=checkpoint.pt\n")
        return 2

    monkeypatch.setattr(Seats, "run", run)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(StoppedError, match="the fleet is stopped; the same command goes on"):
        launched(swept(tmp_path), JOBS[:3], 0, 1)
    signal.signal(signal.SIGINT, before)
    assert [drive.state for drive in drives(tmp_path)][:1] == [STOPPED]
    found = write_tables(tmp_path)
    assert found is not None and found.failed == 0 and found.text.startswith("3 drives: 1 stopped, 2 not started.")
    assert f"|{tmp_path}/1|data.root=/drives/b|not started|" in found.text


def test_a_run_that_another_program_stops_is_tried_again(runs: Runs, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(fleet, "WAIT_S", 0.0)
    runs.code, runs.said = 2, "stopped after step 7; go on with train.resume=checkpoint.pt"
    launched(swept(tmp_path), JOBS[1:2], 1, 1)
    assert runs.started == ["1", "1"] and drives(tmp_path)[0].state == DONE


def test_a_stop_asks_processes_to_end(tmp_path: Path) -> None:
    seats, code = Seats(1, 0), list[int]()
    words = [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(60)"]
    thread = threading.Thread(target=lambda: code.append(seats.run(words, dict(os.environ), tmp_path / "log")))
    thread.start()
    while not (tmp_path / "log").exists() or "up" not in (tmp_path / "log").read_text():
        thread.join(0.02)
    seats.stop()
    thread.join(30)
    assert code == [-15] and "signal 15" in fleet._last_words(tmp_path / "log", -15)


# ---- tables


def test_the_tables_have_results_and_failures(tmp_path: Path) -> None:
    for job, state in enumerate((DONE, FAILED)):
        Drive(job, JOBS[job], str(tmp_path / str(job)), state, "no | sweeps" if state == FAILED else "").write(tmp_path)
    finish(tmp_path / "0")
    found = write_tables(tmp_path)
    assert found is not None
    assert (found.drives, found.failed) == (2, 1) and found.text.startswith("2 drives: 1 done, 1 failed.")
    assert "|data.root=/drives/a|24.50|0.800|" in found.text and "|data.root=/drives/b|no \\| sweeps|" in found.text
    assert (tmp_path / "fleet/fleet.md").read_text() == found.text + "\n"
    rows = list(csv.DictReader((tmp_path / "fleet/fleet.csv").open()))
    assert [row["psnr"] for row in rows] == ["24.5", ""] and rows[1]["said"] == "no | sweeps"


ROOT, CUT = 'data.root="/my drives/a"', "data.frames=[0,3]"


@pytest.mark.parametrize(
    "jobs, names",
    [
        ([[ROOT, "seed=1"], ['data.root="/b"', "seed=1"]], ["data.root=/my drives/a", "data.root=/b"]),
        ([["+sweep=fleet", "data=pack", ROOT, 'out="/x"']], ["data.root=/my drives/a"]),
        ([["+sweep=fleet", CUT, 'out="/x"', "hydra.launcher.at_once=1"]], [CUT]),
        ([[ROOT, CUT, "seed=1"], [ROOT, CUT, "seed=2"]], ["seed=1", "seed=2"]),
    ],
)
def test_drives_have_names_that_can_be_read(tmp_path: Path, jobs: list[list[str]], names: list[str]) -> None:
    for job, words in enumerate(jobs):
        Drive(job, words, str(tmp_path / str(job)), DONE).write(tmp_path)
    found = write_tables(tmp_path)
    assert found is not None
    assert [line.split("|")[2] for line in found.text.splitlines()[4:]] == names
    assert found.text.startswith("1 drive: 1 done." if len(jobs) == 1 else "2 drives: 2 done.")


def test_the_tables_have_the_drives_of_this_command_alone(runs: Runs, tmp_path: Path) -> None:
    launched(swept(tmp_path), JOBS[1:], 1, 1)
    config = swept(tmp_path)
    Fleet().on_multirun_start(config)
    assert {drive.state for drive in drives(tmp_path)} == {FORMER} and write_tables(tmp_path) is None
    launched(config, JOBS[1:2], 1, 1)
    found = write_tables(tmp_path)
    assert found is not None and found.drives == 1 and found.text.startswith("1 drive: 1 ended before.")


def test_one_run_is_one_run(runs: Runs, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "nurec_lite"):
        launched(swept(tmp_path), JOBS[3:], 3, 1)
    assert "1 run, 1 at the same time" in caplog.messages


# ---- runs that another launcher starts in its own way, such as Slurm


@pytest.fixture
def in_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    overrides, sweep, job = SimpleNamespace(task=["seed=0"]), SimpleNamespace(dir="elsewhere"), SimpleNamespace(num=0)
    hydra = SimpleNamespace(callbacks={"fleet": None}, overrides=overrides, sweep=sweep, job=job)
    monkeypatch.setattr(HydraConfig, "get", lambda: hydra)


@pytest.mark.parametrize(
    "record",
    ["", "[1]", '{"job": "x", "arguments": [], "folder": "", "state": ""}', '{"more": 1}', None]
    + [f'{{"job": 1, "arguments": {words}, "folder": "", "state": ""}}' for words in ("3", "[3]")],
)
def test_a_record_that_cannot_be_read_is_a_drive_to_do(tmp_path: Path, record: str | None) -> None:
    Drive(2, [], "b", DONE).write(tmp_path)
    place = tmp_path / fleet.FLEET / "1.json"
    os.mkfifo(place) if record is None else place.write_text(record)
    assert [drive.job for drive in drives(tmp_path)] == [2]


def test_a_job_that_fails_is_tried_once_more(in_fleet: None, tmp_path: Path) -> None:
    seen: list[Config] = []

    def run(config: Config) -> dict[str, object]:
        seen.append(config)
        if len(seen) == 1:
            raise RuntimeError("a GPU that has failed")
        return {"steps": 1}

    config = replace(fleet._asked([]), out=str(tmp_path))
    assert attempted(config, run) == {"steps": 1}
    assert [one.train.resume for one in seen] == [None, "auto"]
    finish(tmp_path)
    assert attempted(config, run) is None and len(seen) == 2


@pytest.mark.parametrize(
    "error, tries",
    [
        (ConfigError("no such key"), 1),
        (CaptureError(MISSING), 1),
        (UserError(SHORT), 2),
        (OutputError("x cannot be written"), 2),
    ],
)
def test_a_mistake_in_the_command_is_not_tried_again(
    in_fleet: None, tmp_path: Path, error: UserError, tries: int
) -> None:
    def run(config: Config) -> dict[str, object]:
        seen.append(1)
        raise error

    seen: list[int] = []
    with pytest.raises(type(error)):
        attempted(replace(Config(), out=str(tmp_path)), run)
    assert len(seen) == tries


def test_a_job_may_replace_a_run(in_fleet: None, tmp_path: Path) -> None:
    """The fleet's own train.resume=auto does not stand in its way, and a second try replaces it, too."""
    seen: list[tuple[str | None, bool]] = []

    def run(config: Config) -> dict[str, object]:
        seen.append((config.train.resume, config.train.overwrite))
        if len(seen) == 1:
            raise RuntimeError("a GPU that has failed")
        return {"steps": 1}

    finish(tmp_path, ["seed=5"])
    config = replace(fleet._asked(["train.overwrite=true", "train.resume=auto"]), out=str(tmp_path))
    assert attempted(config, run) == {"steps": 1} and seen == [(None, True), (None, True)]


@pytest.mark.skipif(find_spec("submitit") is None, reason="hydra-submitit-launcher (extra slurm) is not installed")
def test_a_job_without_a_result_is_a_drive_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from submitit.core.core import Job
    from submitit.core.utils import UncompletedJobError

    def lost(job: Job[Any]) -> list[Any]:
        raise UncompletedJobError("no output")

    monkeypatch.setattr(Job, "results", lost)
    monkeypatch.setattr(Job, "state", "TIMEOUT")
    submitted = SimpleNamespace(args=(["data.root=/drives/b"], "hydra.sweep.dir", 1, "job_id_for_1", {}))
    monkeypatch.setattr(Job, "submission", lambda job: submitted)
    monkeypatch.setattr("nurec_lite.cli.cluster.places", [tmp_path])
    with lost_jobs_fail(["-m", "hydra/launcher=slurm"]):
        (found,) = Job(tmp_path, "13_1").results()
    with pytest.raises(UserError, match=r"job 13_1 ended without a result \(TIMEOUT\).*the same command again"):
        _ = found.return_value
    (drive,) = drives(tmp_path)
    assert (drive.job, drive.folder, drive.state) == (1, str(tmp_path / "1"), FAILED) and "TIMEOUT" in drive.said
    with lost_jobs_fail(["-m"]), pytest.raises(UncompletedJobError):
        Job(tmp_path, "13_1").results()


@pytest.mark.parametrize("more, launcher", [([], "Processes"), (["hydra/launcher=basic"], "BasicLauncher")])
def test_the_fleet_composes_with_any_launcher(more: list[str], launcher: str) -> None:
    with initialize_config_dir(str(resource("conf")), version_base="1.3"):
        composed = compose("train", overrides=["+sweep=fleet", *more], return_hydra_config=True)
    assert composed.hydra.launcher._target_.endswith(f".{launcher}") and composed.train.resume == "auto"


@pytest.mark.slow
def test_a_fleet_from_the_command_line(tmp_path: Path) -> None:
    words = [
        *TINY[:-2],
        "density.cap=1000",
        "measure.seconds=0",
        "train.steps=1",
        "train.evaluate=false",
        f"out={tmp_path}/fleet",
    ]
    command = [sys.executable, "-m", "nurec_lite.train", "-m", "+sweep=fleet", *words, "data.frames=[0,3],[0,10]"]
    first, second = (subprocess.run(command, capture_output=True, text=True) for _ in range(2))
    third = subprocess.run([*command, "train.steps=2"], capture_output=True, text=True)
    assert third.stderr.startswith(
        f"error: {tmp_path}/fleet/1 holds a run with train.steps=1, but train.steps=2 is asked for"
    )
    assert "tables:" not in third.stdout and "tried once more" not in first.stdout
    assert first.returncode == second.returncode == 2 and "1 of 2 drives failed" in first.stderr
    assert "2 drives: 1 failed, 1 done." in first.stdout and "2 drives: 1 failed, 1 ended before." in second.stdout
