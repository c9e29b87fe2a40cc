# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and a full disk, from the outside: the last checkpoint is whole, nothing half-written and no process stays behind."""

import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from tiny_capture import ROOT, tiny_capture

from nurec_lite.base.folders import MARKER
from nurec_lite.base.progress import StopWish
from nurec_lite.capture.pack import write_pack
from nurec_lite.training.checkpoint import load_checkpoint
from scripts.faults_child import session

SMALL = ["model.points=400", "model.actor_points=20", "model.raised_points=60", "model.far_points=40",
         "train.lidar_rays=64", "train.seconds=null", "train.evaluate=false", "device=cpu"]  # fmt: skip
PATIENCE = 600  # seconds, on a machine that does much else


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("interrupts") / "tiny.pack"
    write_pack(tiny_capture(), path, image_format="png")
    return path


def start(pack: Path, out: Path, *arguments: str, limit: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    """Training in a session of its own, as in a terminal of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "nurec_lite.train", "data=pack", f"data.root={pack}", f"out={out}", *SMALL]
    return subprocess.Popen(
        [*command, *arguments], cwd=ROOT, env=environment, text=True, start_new_session=True, preexec_fn=limit,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def wait_for(condition: Callable[[], object], running: subprocess.Popen[str] | None = None) -> None:
    """Fails when the program ends before; the limit is for one that hangs."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert running is None or running.poll() is None, f"it ended before, with code {running.returncode}"
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "options"),
    [(signal.SIGINT, "workers"), (signal.SIGTERM, "[workers,resident]")],
)
def test_ctrl_c_leaves_a_whole_checkpoint_and_no_process(
    pack: Path, tmp_path: Path, number: signal.Signals, options: str
) -> None:
    """The signal reaches the whole group, loader processes included, as from a keyboard."""
    running = start(pack, tmp_path, "train.steps=1000000", f"+opt={options}", "train.checkpoint_seconds=0.5")
    wait_for((tmp_path / "checkpoint.pt").exists, running)
    loaders = len(session(running.pid)) - 1
    assert (loaders > 0) == (options == "workers"), (
        "no loader process is there to be orphaned, or one that nobody needs"
    )
    os.killpg(running.pid, number) if number == signal.SIGINT else running.send_signal(number)
    _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 2
    step = load_checkpoint(tmp_path / "checkpoint.pt", "cpu")["counters"]["step"]
    last = errors.strip().splitlines()[-1]
    assert last == f"error: stopped after step {step}; go on with train.resume={tmp_path / 'checkpoint.pt'}"
    assert "Traceback" not in errors
    wait_for(lambda: not session(running.pid))
    assert {p.name for p in tmp_path.iterdir()} == {"checkpoint.pt", "config.yaml", "history.csv", MARKER}


@pytest.mark.slow
def test_a_killed_run_leaves_a_whole_checkpoint_and_no_process(pack: Path, tmp_path: Path) -> None:
    running = start(pack, tmp_path, "train.steps=1000000", "+opt=workers", "train.checkpoint_seconds=0.5")
    wait_for((tmp_path / "checkpoint.pt").exists, running)
    running.kill()
    running.communicate(timeout=PATIENCE)
    load_checkpoint(tmp_path / "checkpoint.pt", "cpu")
    wait_for(lambda: not session(running.pid))


@pytest.mark.slow
def test_a_full_disk_keeps_the_previous_checkpoint(pack: Path, tmp_path: Path) -> None:
    running = start(pack, tmp_path, "train.steps=2")
    running.communicate(timeout=PATIENCE)
    checkpoint = tmp_path / "checkpoint.pt"
    before, bound = checkpoint.read_bytes(), checkpoint.stat().st_size // 2

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (bound, bound))

    running = start(pack, tmp_path, "train.steps=4", f"train.resume={checkpoint}", limit=limit)
    _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 2
    last = errors.strip().splitlines()[-1]
    assert last.startswith(f"error: {checkpoint} cannot be written (File too large); free some space"), errors
    assert "Traceback" not in errors
    assert checkpoint.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {
        MARKER,
        "checkpoint.pt",
        "config.yaml",
        "history.csv",
        "metrics.json",
        "report.html",
    }


@pytest.mark.slow
@pytest.mark.parametrize("pipe", ["2>&1 | tee log", ">&- 2>&-"])
def test_ctrl_c_where_nobody_reads_any_more(pack: Path, tmp_path: Path, pipe: str) -> None:
    """tee dies of the same Ctrl-C; the streams may be closed from the start."""
    command = [
        sys.executable,
        "-m",
        "nurec_lite.train",
        "data=pack",
        f"data.root={pack}",
        f"out={tmp_path / 'out'}",
        *SMALL,
    ]
    line = shlex.join([*command, "train.steps=1000000", "train.checkpoint_seconds=0.5", "+opt=workers"])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    listening = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    running = subprocess.Popen(
        ["bash", "-c", f"cd {shlex.quote(str(tmp_path))}; {line} {pipe}"],
        env=environment, start_new_session=True, stdout=subprocess.DEVNULL, preexec_fn=listening,
    )  # fmt: skip
    checkpoint = tmp_path / "out/checkpoint.pt"
    wait_for(checkpoint.exists, running)
    before = load_checkpoint(checkpoint, "cpu")["counters"]["step"]
    os.killpg(running.pid, signal.SIGINT)
    wait_for(lambda: not session(running.pid))
    running.wait()
    assert load_checkpoint(checkpoint, "cpu")["counters"]["step"] > before
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"checkpoint.pt", "config.yaml", "history.csv", MARKER}


@pytest.mark.slow
def test_two_requests_end_a_run_whose_loader_is_stopped(pack: Path, tmp_path: Path) -> None:
    """The run is saved as well: waiting for a batch changes nothing."""
    running = start(pack, tmp_path, "train.steps=1000000", "+opt=workers", "train.checkpoint_seconds=0.5")
    wait_for((tmp_path / "checkpoint.pt").exists, running)
    for worker in set(session(running.pid)) - {running.pid}:
        os.kill(worker, signal.SIGSTOP)
    running.terminate()
    errors = None
    for seconds in (1.5, 60, 60, PATIENCE):  # a busy machine may take in two requests as one: then another one follows
        with suppress(subprocess.TimeoutExpired):
            _, errors = running.communicate(timeout=seconds)
            break
        running.terminate()
    assert running.returncode == 2 and errors is not None
    assert "Traceback" not in errors
    assert errors.strip().splitlines()[-1].startswith("error: stopped")
    wait_for(lambda: not session(running.pid))


def test_a_pair_of_signals_is_one_wish() -> None:
    """timeout(1) sends them so: to the process and to its group."""
    with StopWish() as stop:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP):
            signal.raise_signal(number)
        assert stop.asked


def test_nohup_is_obeyed() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopWish() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.asked
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_second_signal_interrupts_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopWish() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
