# SPDX-License-Identifier: Apache-2.0
"""Training from the outside: budgets, resuming, learning, and the command line."""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image
from tiny_capture import ROOT, TINY, tiny_capture, tiny_config, tiny_state

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.folders import MARKER
from nurec_lite.capture.pack import write_pack
from nurec_lite.config import Config, DataConfig, DensityConfig, MeasureConfig, TrainConfig
from nurec_lite.evaluation.measure import evaluate, held_out
from nurec_lite.report.results import counters
from nurec_lite.train import choose_device, run
from nurec_lite.training import loop
from nurec_lite.training.baseline import next_batch as decoded
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.checkpoint import CheckpointError, load_checkpoint
from nurec_lite.training.history import Figures
from nurec_lite.training.loop import train
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state
from nurec_lite.training.state import StepResult, TrainState

CPU = torch.device("cpu")
SMALL = ["model.points=2500", "model.actor_points=50", "model.raised_points=300", "model.far_points=200",
         "train.lidar_rays=512", "train.seconds=null", "device=cpu", "measure.seconds=0"]  # fmt: skip
KEYS = {
    "psnr", "ssim", "psnr_actors", "psnr_per_actor", "lidar_median_abs_m", "lidar_mean_abs_m", "lidar_median_sq_m2",
    "lidar_opacity_half", "intensity_rmse", "drop_accuracy", "chamfer_m", "seconds_total", "seconds_train", "steps",
    "gaussians", "device", "commit", "findings", "step_ms", "peak_memory_bytes",
}  # fmt: skip
BOXES = {f"boxes_beside_{d}m" for d in range(4)}  # where images are large enough


# Resuming


class PowerCutError(Exception):
    pass


def interrupted_at(step: int) -> Stages:
    def next_batch(plan: Any, at: int) -> Any:
        if at == step:
            raise PowerCutError
        return decoded(plan, at)

    return reference_stages().swap("test", next_batch=next_batch)


def assert_equal_states(a: TrainState, b: TrainState) -> None:
    assert a.step == b.step
    mine, other = a.scene.parameters(), b.scene.parameters()
    for name in mine:
        assert torch.equal(mine[name], other[name]), name
        moments, others = a.optimizer.state[mine[name]], b.optimizer.state[other[name]]
        assert moments.keys() == others.keys() == {"step", "exp_avg", "exp_avg_sq"}
        assert all(torch.equal(moments[key], others[key]) for key in moments), name
    assert torch.equal(a.scene.gaussians.node, b.scene.gaussians.node)
    assert torch.equal(a.generator.get_state(), b.generator.get_state())
    rates, others = ([g["lr"] for g in s.optimizer.param_groups] for s in (a, b))
    assert rates == others


def test_others_may_begin_between_the_last_step_and_the_checkpoint(tmp_path: Path) -> None:
    state, seen = make_state(tiny_config(steps=3), tiny_capture(), CPU), list[tuple[int, bool]]()
    path = tmp_path / "checkpoint.pt"
    train(reference_stages(), state, path, lambda: seen.append((state.step, path.exists())))
    assert seen == [(3, False)] and path.exists()


@pytest.mark.portable
@pytest.mark.parametrize("at", [1, 6])
def test_a_resumed_run_is_bitwise_an_uninterrupted_one(tmp_path: Path, at: int) -> None:
    """With dead Gaussians relocated and growth before and after the interruption, and noise at every step."""
    config = tiny_config(steps=12)
    config.model.guessed_opacity = 0.004
    config.train = replace(config.train, checkpoint_seconds=0.0)  # saves before every step
    whole = make_state(config, tiny_capture(), CPU)
    n = len(whole.scene.gaussians)
    train(reference_stages(), whole, tmp_path / "whole.pt")
    assert len(whole.scene.gaussians) > n

    cut = tmp_path / "cut.pt"
    with pytest.raises(PowerCutError):
        train(interrupted_at(at), make_state(config, tiny_capture(), CPU), cut)
    resumed = make_state(replace(config, train=replace(config.train, resume=str(cut))), tiny_capture(), CPU)
    assert resumed.step == at and resumed.seconds > 0 and resumed.history.rows
    train(reference_stages(), resumed, cut)
    assert_equal_states(whole, resumed)
    a, b = (load_checkpoint(path, "cpu")["counters"] for path in (tmp_path / "whole.pt", cut))
    assert a["step"] == b["step"] == 12


def test_equal_seeds_train_equally_and_others_do_not(tmp_path: Path) -> None:
    states = []
    for seed in (0, 0, 1):
        states.append(make_state(tiny_config(steps=3, seed=seed), tiny_capture(), CPU))
        train(reference_stages(), states[-1], tmp_path / "checkpoint.pt")
    assert_equal_states(states[0], states[1])
    assert not torch.equal(states[0].scene.sky, states[2].scene.sky)


def test_the_checkpoint_of_another_capture_is_refused(tmp_path: Path) -> None:
    config = tiny_config(steps=1)
    train(reference_stages(), make_state(config, tiny_capture(), CPU), tmp_path / "mine.pt")
    other = tiny_capture(replace(TINY, parked_cars=1))
    with pytest.raises(
        CheckpointError,
        match=r"mine\.pt was made from another capture: .*; restore its capture",
    ):
        make_state(replace(config, train=replace(config.train, resume=str(tmp_path / "mine.pt"))), other, CPU)


# Budgets


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that stands still except for the time that a step adds."""
    now = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


def idle(clock: SimpleNamespace, seconds: float, seen: list[float]) -> Stages:
    """Steps that last so long and do nothing."""

    def attempt(stages: Stages, state: TrainState, shots: Any) -> StepResult:
        clock.seconds += seconds
        seen.append(state.progress)
        return StepResult(Figures.of({}, torch.tensor(0.1)))

    return reference_stages().swap("test", try_step=attempt, fetch=lambda stages, state: None)


@pytest.mark.parametrize(
    ("steps", "seconds", "before", "expected"),
    [
        (7, None, 0.0, 7), (None, 5.0, 0.0, 5), (None, 4.5, 0.0, 5), (100, 5.0, 0.0, 5), (3, 5.0, 0.0, 3),
        (None, 5.0, 3.0, 2), (None, 5.0, 6.0, 0), (0, None, 0.0, 0), (None, 0.0, 0.0, 0), (0, 9.0, 0.0, 0),
    ],
)  # fmt: skip
def test_the_budget_that_is_spent_first_ends_the_run(
    tmp_path: Path, clock: SimpleNamespace, steps: int | None, seconds: float | None, before: float, expected: int
) -> None:
    state, seen = tiny_state(tiny_config(train=TrainConfig(steps=steps, seconds=seconds))), []
    state.seconds = before
    train(idle(clock, 1.0, seen), state, tmp_path / "checkpoint.pt")
    assert state.step == len(seen) == expected
    assert state.seconds == pytest.approx(before + expected)
    assert seen == sorted(seen) and all(0 <= progress < 1 for progress in seen)
    counters = load_checkpoint(tmp_path / "checkpoint.pt", "cpu")["counters"]
    assert {name: counters[name] for name in ("step", "seconds", "gone")} == {
        "step": expected,
        "seconds": state.seconds,
        "gone": 0,
    }


def test_checkpoints_are_saved_now_and_then(
    tmp_path: Path, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    monkeypatch.setattr(loop, "save", lambda state, path, write=None: saved.append(state.step))
    config = tiny_config(train=TrainConfig(steps=10, checkpoint_seconds=2.5))
    train(idle(clock, 1.0, []), tiny_state(config), tmp_path / "checkpoint.pt")
    assert saved == [3, 6, 9, 10]


def test_a_budget_of_seconds_ends_on_time(tmp_path: Path) -> None:
    """The real clock runs: no step begins after the budget is spent."""
    state = tiny_state(tiny_config(train=TrainConfig(seconds=0.6, lidar_rays=64)))
    stages, spent = reference_stages(), []

    def attempt(stages: Stages, state: TrainState, shots: Any) -> StepResult:
        spent.append(state.seconds)
        return reference_stages().update.try_step(stages, state, shots)

    begin = time.monotonic()
    train(stages.swap("test", try_step=attempt), state, tmp_path / "checkpoint.pt")
    assert state.step == len(spent) >= 1
    assert max(spent) < 0.6 <= state.seconds <= time.monotonic() - begin


# Learning


@pytest.mark.portable
@pytest.mark.slow
def test_training_gets_clearly_better(tmp_path: Path) -> None:
    density = DensityConfig(every=20, start=0.1, stop=0.8, cap=600)
    config = tiny_config(train=TrainConfig(steps=80, lidar_rays=256), density=density)
    stages, state, capture = reference_stages(), tiny_state(config), tiny_capture()
    losses: list[float] = []

    def noted(inner: Callable) -> Callable:
        def loss(*args: Any) -> Any:
            terms = inner(*args)
            losses.append(sum(getattr(config.loss, name) * term.item() for name, term in terms.items()))
            return terms

        return loss

    before = evaluate(stages, state.scene, capture, held_out(capture)).metrics
    train(stages.wrap(terms=noted), state, tmp_path / "checkpoint.pt")
    after = evaluate(stages, state.scene, capture, held_out(capture)).metrics
    assert sum(losses[-16:]) < 0.75 * sum(losses[:16])
    assert after["psnr"] > before["psnr"] + 1  # type: ignore[operator]
    assert after["lidar_mean_abs_m"] < before["lidar_mean_abs_m"]  # type: ignore[operator]


# The whole job


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("train") / "tiny.pack"
    write_pack(tiny_capture(), path, image_format="png")
    return path


def job(pack: Path, out: Path, **changes: Any) -> Config:
    return tiny_config(steps=2, out=str(out), data=DataConfig(kind="pack", root=str(pack)), **changes)


def test_a_run_leaves_everything_in_its_folder(pack: Path, tmp_path: Path) -> None:
    metrics = run(job(pack, tmp_path / "deep" / "out", measure=MeasureConfig(seconds=60)))
    names = {str(p.relative_to(tmp_path / "deep/out")) for p in (tmp_path / "deep/out").rglob("*") if p.is_file()}
    moments = [f"pictures/{sensor}_{i:04d}.png" for sensor in ("camera_0", "camera_1", "lidar") for i in (4, 9)]
    assert names == {
        "metrics.json",
        "checkpoint.pt",
        "config.yaml",
        "history.csv",
        "report.html",
        "frames.csv",
        MARKER,
        *moments,
    }
    stored = json.loads((tmp_path / "deep/out/metrics.json").read_text())
    beside = {f"lidar_beside_{d}m" for d in range(4)}
    assert set(stored) == set(metrics) == KEYS | beside | {"flip", "notes"} | (BOXES & set(stored))
    assert stored["steps"] == 2 and stored["gaussians"] > 300 and stored["device"].startswith("cpu")
    assert 5 < stored["psnr"] < 50 and 0 < stored["ssim"] < 1 and 0 < stored["lidar_median_abs_m"] < 80
    assert 0 < stored["seconds_train"] < stored["seconds_total"]


def test_a_run_can_leave_out_the_measuring(pack: Path, tmp_path: Path) -> None:
    config = job(pack, tmp_path)
    config.train.evaluate = False
    assert "psnr" not in run(config)
    assert not (tmp_path / "pictures").exists() and (tmp_path / "checkpoint.pt").is_file()


def test_what_options_started_ends_when_a_run_fails(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = interrupted_at(1)
    closed: list[bool] = []
    monkeypatch.setattr(sys.modules["nurec_lite.train"], "build_stages", lambda options, base: stages)
    monkeypatch.setattr(Stages, "close", lambda self: closed.append(True))
    with pytest.raises(PowerCutError):
        run(job(pack, tmp_path))
    assert closed == [True]


def test_devices() -> None:
    assert choose_device("cpu") == CPU
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ConfigError, match="device=abacus is unknown"):
        choose_device("abacus")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="device=cuda:0, but torch sees no CUDA device; use device=cpu"):
            choose_device("cuda:0")


# The command line


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "nurec_lite.train", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300, check=False)


@pytest.mark.slow
def test_the_bundled_capture_from_the_command_line(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = call(f"out={out}", "data.downscale=2", "train.steps=3", *SMALL)
    assert done.returncode == 0, done.stderr
    assert (
        f"results in {out}: checkpoint.pt, config.yaml, frames.csv, history.csv, metrics.json, pictures, report.html"
        in done.stdout
    )
    assert "PSNR" in done.stderr  # the progress bar
    metrics = json.loads((out / "metrics.json").read_text())
    assert set(metrics) == KEYS
    numbers = KEYS - {"psnr_per_actor", "device", "commit", "findings"}
    assert all(isinstance(metrics[key], int | float) and math.isfinite(metrics[key]) for key in numbers)
    assert metrics["steps"] == 3 and metrics["psnr"] > 10 and metrics["seconds_total"] > metrics["seconds_train"]
    assert len(metrics["psnr_per_actor"]) == 3
    assert load_checkpoint(out / "checkpoint.pt", "cpu")["counters"]["step"] == 3
    stored = OmegaConf.load(out / "config.yaml")
    assert stored.train.steps == 3 and stored.model.points == 2500 and stored.out == str(out)
    pictures = sorted(p.name for p in (out / "pictures").iterdir())
    assert sum(name.startswith("camera") for name in pictures) >= 4 and any(n.startswith("lidar") for n in pictures)
    for name in pictures:
        with Image.open(out / "pictures" / name) as picture:
            picture.verify()

    on = tmp_path / "on"
    done = call(
        f"out={on}", "data.downscale=2", "train.steps=5", *SMALL, "+opt=workers", "train.evaluate=false",
        f"train.resume={out / 'checkpoint.pt'}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "option workers (exact)" in done.stdout
    assert json.loads((on / "metrics.json").read_text())["steps"] == 5


def test_a_mistake_is_one_sentence_and_code_2(tmp_path: Path) -> None:
    """Hydra finds the mistake, and has words and a code of its own; tests/cli/test_errors.py has the others, in its process."""
    done = call(f"out={tmp_path / 'out'}", "train.stepz=3")
    assert done.returncode == 2
    assert done.stderr == "error: key 'train.stepz' is unknown; did you mean train.steps?\n"
    assert "results in" not in done.stdout


def test_a_run_that_went_on_has_no_seconds_from_start_to_checkpoint() -> None:
    """Those of its process alone would stand beside the training of all."""
    state = tiny_state()
    assert "seconds_total" in counters(state)
    state.config = replace(state.config, train=replace(state.config.train, resume="runs/before/checkpoint.pt"))
    assert "seconds_total" not in counters(state) and "seconds_train" in counters(state)
