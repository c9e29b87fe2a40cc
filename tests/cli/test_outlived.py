# SPDX-License-Identifier: Apache-2.0
"""Events that a run outlives, or ends well with: lack of memory, a disk that is full for a while, unreadable frames, failing outputs.
In this process; tests/cli/test_interrupts.py has events that need one of their own."""

import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from shell import Train

from nurec_lite.base import files
from nurec_lite.base.folders import MARKER
from nurec_lite.evaluation import drawing, measure
from nurec_lite.scene import moments
from nurec_lite.training import loop
from nurec_lite.training.checkpoint import load_checkpoint
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState

NO_GPU_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
NO_MEMORY = RuntimeError(
    "[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes."
)


def before_step(monkeypatch: pytest.MonkeyPatch, what: Callable[[TrainState], None]) -> None:
    """Something happens in the middle of each step, before its update."""
    inner = loop.one_step

    def around(attempt: Callable) -> Callable:
        return lambda stages, state, shots: (what(state), attempt(stages, state, shots))[1]

    monkeypatch.setattr(loop, "one_step", lambda stages, *rest: inner(stages.wrap(try_step=around), *rest))


def step_of(out: Path) -> int:
    return int(load_checkpoint(out / "checkpoint.pt", "cpu")["counters"]["step"])


# ---- memory


@pytest.mark.parametrize("error", [NO_GPU_MEMORY, NO_MEMORY, MemoryError()])
def test_memory_that_runs_out_is_tried_with_less(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def what(state: TrainState) -> None:
        if state.step == 3 and state.config.train.lidar_rays > 64:
            raise error

    before_step(monkeypatch, what)
    ended = train(
        f"out={tmp_path / 'out'}",
        "train.steps=5",
        "train.lidar_rays=200",
        "train.checkpoint_seconds=0",
        "density.cap=1000",
        "model.mirror_actors=false",
    )
    assert ended.code == 0 and step_of(tmp_path / "out") == 5
    said = [line for line in ended.out.splitlines() if "not enough memory" in line]
    start = "there is not enough memory for step 4 of 372 Gaussians; tried again from "
    assert [line.startswith(start) for line in said] == [True, True]
    assert said[0].endswith("/checkpoint.pt with train.lidar_rays=100 density.cap=260")
    assert said[1].endswith("/checkpoint.pt with train.lidar_rays=64 density.cap=260")


def test_without_a_checkpoint_it_begins_with_less(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def what(state: TrainState) -> None:
        if state.config.model.points == 300:
            raise NO_GPU_MEMORY

    before_step(monkeypatch, what)
    ended = train(f"out={tmp_path / 'out'}", "train.steps=2")
    assert ended.code == 0 and "tried again from the start with " in ended.out
    assert load_checkpoint(tmp_path / "out/checkpoint.pt", "cpu")["config"]["model"]["points"] == 210


def test_a_run_that_is_replaced_is_not_gone_on_with(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory runs out before the new run owns the folder."""
    command, tries = sys.modules["nurec_lite.train"], list[int]()
    assert train(f"out={tmp_path / 'out'}", "train.steps=3").code == 0

    def scarce(*given: Any) -> TrainState:
        tries.append(1)
        if len(tries) == 1:
            raise NO_GPU_MEMORY
        return make_state(*given)

    monkeypatch.setattr(command, "make_state", scarce)
    ended = train(f"out={tmp_path / 'out'}", "train.steps=2", "train.overwrite=true")
    assert ended.code == 0 and "not enough memory for the scene; tried again from the start with " in ended.out
    assert step_of(tmp_path / "out") == 2


def test_memory_that_is_never_enough_is_a_sentence(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def what(state: TrainState) -> None:
        raise NO_MEMORY

    before_step(monkeypatch, what)
    ended = train(f"out={tmp_path / 'out'}", "train.steps=2")
    assert ended.code == 2
    assert ended.error.startswith("error: there is not enough memory for step 1 of ")
    assert "less of them did not help; give smaller model.*, density.cap and train.lidar_rays" in ended.error


@pytest.mark.parametrize("error", [NO_GPU_MEMORY, NO_MEMORY, MemoryError(), RuntimeError("can't start new thread")])
def test_memory_that_frames_do_not_fit_into_is_said_at_once(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A smaller model would not help."""

    def decoded(frames: Any) -> Any:
        raise error

    monkeypatch.setattr(moments, "_decoded", decoded)
    ended = train(f"out={tmp_path / 'out'}", "train.steps=2")
    assert ended.code == 2 and "tried again" not in ended.out
    assert ended.error == (
        "error: there is not enough memory for the frames of street_0; read fewer, as in data.frames=[0,5], or use a machine with "
        "more memory"
    )


def test_no_memory_to_measure_costs_no_checkpoint(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluate(*args: Any, **keys: Any) -> Any:
        raise NO_GPU_MEMORY

    monkeypatch.setattr(measure, "evaluate", evaluate)
    ended = train(f"out={tmp_path / 'out'}", "train.steps=2", "train.evaluate=true")
    assert ended.code == 2
    assert ended.error == (
        "error: there is not enough memory to measure the held-out frames; "
        f"{tmp_path / 'out/checkpoint.pt'} is saved, and python -m nurec_lite.evaluate measures it"
    )
    assert step_of(tmp_path / "out") == 2


# ---- the capture


@pytest.mark.parametrize("options", [[], ["+opt=[workers]"]])
def test_a_frame_that_cannot_be_read_ends_a_run_that_is_saved(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    def what(state: TrainState) -> None:
        if state.step == 3:
            os.truncate(train.pack, train.pack.stat().st_size // 10)

    before_step(monkeypatch, what)
    whole = train.pack.read_bytes()
    ended = train(f"out={tmp_path / 'out'}", "train.steps=500", *options)
    assert ended.code == 2 and "tiny.pack: " in ended.error and "is damaged" in ended.error
    step = step_of(tmp_path / "out")
    assert ended.error.endswith(f"; saved after step {step}; go on with train.resume={tmp_path / 'out/checkpoint.pt'}")
    assert step >= 4
    train.pack.write_bytes(whole)
    monkeypatch.undo()
    assert train(f"out={tmp_path / 'out'}", "train.resume=auto", f"train.steps={step + 1}").code == 0


# ---- outputs


def full_disk(monkeypatch: pytest.MonkeyPatch, writes: range, name: str = "checkpoint.pt") -> list[int]:
    """Some of the flushes of a file fail, by their number."""
    flush, seen = os.fsync, []

    def fsync(descriptor: int) -> None:
        if f".{name}." in os.readlink(f"/proc/self/fd/{descriptor}"):
            seen.append(len(seen))
            if seen[-1] in writes:
                raise OSError(errno.ENOSPC, "No space left on device")
        flush(descriptor)

    monkeypatch.setattr(files.os, "fsync", fsync)
    monkeypatch.setattr(files, "WAITS", (0.0, 0.0, 0.0))
    return seen


def test_a_disk_that_is_full_for_a_while(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = full_disk(monkeypatch, range(2, 5))
    ended = train(f"out={tmp_path / 'out'}", "train.steps=6", "train.checkpoint_seconds=0")
    assert ended.code == 0 and step_of(tmp_path / "out") == 6 and len(seen) == 7
    assert ended.out.count("cannot be written (No space left on device)") == 3
    assert "the run goes on and tries again" in ended.out


def test_the_last_checkpoint_waits_for_disk_space(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_disk(monkeypatch, range(2))
    ended = train(f"out={tmp_path / 'out'}", "train.steps=2")
    assert ended.code == 0 and "tried again in 0 s" in ended.out and step_of(tmp_path / "out") == 2


@pytest.mark.parametrize("name", ["report.html", "metrics.json"])
def test_an_output_that_fails_costs_no_other(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    full_disk(monkeypatch, range(99), name)
    out = tmp_path / "out"
    ended = train(f"out={out}", "train.steps=1")
    assert ended.code == 2
    assert ended.error.startswith(f"error: {out / name} cannot be written (No space left on device)")
    assert ended.error.endswith(f"; {out / 'checkpoint.pt'} is saved, and python -m nurec_lite.evaluate measures it")
    rest = {"checkpoint.pt", "config.yaml", "history.csv", "metrics.json", "report.html", MARKER} - {name}
    assert {p.name for p in out.iterdir()} == rest


def test_pictures_that_fail_cost_no_metrics(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save_png(path: Path, picture: Any) -> None:
        raise files.OutputError(f"{path} cannot be written")

    monkeypatch.setattr(drawing, "save_png", save_png)
    ended = train(f"out={tmp_path / 'out'}", "train.steps=1", "train.evaluate=true")
    assert ended.code == 2 and "cannot be written; " in ended.error
    assert json.loads((tmp_path / "out/metrics.json").read_text())["psnr"] > 5
