# SPDX-License-Identifier: Apache-2.0
"""Training begins while the capture is checked; nothing is saved before it has passed."""

import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from tiny_capture import tiny_capture, tiny_config, tiny_state

from nurec_lite.base.errors import StoppedError
from nurec_lite.capture.checks.begun import BegunChecks
from nurec_lite.capture.checks.starts import Start
from nurec_lite.capture.types import CaptureError
from nurec_lite.config import Config, ModelConfig, TrainConfig
from nurec_lite.scene.calibration import add_starts, none_known
from nurec_lite.train import run
from nurec_lite.training import loop
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.broken import BrokenError
from nurec_lite.training.checkpoint import load_checkpoint
from nurec_lite.training.history import Figures
from nurec_lite.training.loop import train
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import StepResult, TrainState

FEW = 3
COMMAND = sys.modules["nurec_lite.train"]  # the package has a function of that name
WRONG = CaptureError("the clocks of two sensors differ by 80 ms")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "UNCHECKED", FEW)


def idle(stop_at: int | None = None) -> Stages:
    """Steps that do nothing; Ctrl-C comes during one of them."""

    def attempt(stages: Stages, state: TrainState, shots: Any) -> StepResult:
        if state.step == stop_at:
            raise KeyboardInterrupt
        return StepResult(Figures.of({}, torch.tensor(0.1)))

    return reference_stages().swap("test", try_step=attempt, fetch=lambda stages, state: None)


def unaccepted(steps: int, accept: Callable[[TrainState], Any], **changes: Any) -> TrainState:
    state = tiny_state(tiny_config(train=TrainConfig(steps=steps, **changes)))
    state.accept = lambda: accept(state)
    return state


def refuse(*_: Any) -> None:
    raise WRONG


@pytest.mark.parametrize(("steps", "at"), [(8, FEW), (2, 2), (FEW, FEW), (0, 0)])
def test_a_capture_is_accepted_after_a_fixed_number_of_steps(tmp_path: Path, steps: int, at: int) -> None:
    path, seen = tmp_path / "checkpoint.pt", list[tuple[int, bool]]()
    state = unaccepted(steps, lambda state: seen.append((state.step, path.exists())))
    train(idle(), state, path)
    assert seen == [(at, False)] and state.accept is None and load_checkpoint(path, "cpu")["counters"]["step"] == steps


def test_a_budget_of_seconds_never_waits_for_checks_that_go_on(tmp_path: Path) -> None:
    seen = list[int]()
    state = unaccepted(1, lambda state: seen.append(state.step))
    state.config = replace(state.config, train=replace(state.config.train, steps=None, seconds=0.5))
    state.checked = lambda: state.step >= 3 * FEW
    train(idle(), state, tmp_path / "checkpoint.pt")
    assert seen == [3 * FEW] and state.step > 3 * FEW


def test_a_budget_of_seconds_ends_with_the_verdict(tmp_path: Path) -> None:
    state = unaccepted(1, refuse)
    state.config = replace(state.config, train=replace(state.config.train, steps=None, seconds=0.1))
    state.checked = lambda: False
    with pytest.raises(CaptureError, match="clocks of two sensors"):
        train(idle(), state, tmp_path / "checkpoint.pt")
    assert state.step > FEW and not list(tmp_path.iterdir())


def test_checks_say_when_they_have_ended() -> None:
    go = Event()
    checks = BegunChecks(lambda: (go.wait(), ([], {}))[1])
    assert not checks.ended()
    go.set()
    assert checks.doubts() == [] and checks.ended()


def test_a_checkpoint_that_is_due_waits_for_the_checks(tmp_path: Path) -> None:
    path, seen = tmp_path / "checkpoint.pt", list[tuple[int, bool]]()
    train(idle(), unaccepted(5, lambda state: seen.append((state.step, path.exists())), checkpoint_seconds=0.0), path)
    assert seen == [(1, False)] and path.exists()


def test_a_wrong_capture_leaves_nothing(tmp_path: Path) -> None:
    state = unaccepted(8, refuse)
    with pytest.raises(CaptureError, match="clocks of two sensors") as found:
        train(idle(), state, tmp_path / "checkpoint.pt")
    assert found.value is WRONG and state.step == FEW and not list(tmp_path.iterdir())


@pytest.mark.parametrize(("accept", "error"), [(refuse, CaptureError), (lambda _: None, BrokenError)])
def test_a_training_that_diverges_before_the_verdict_waits_for_it(
    tmp_path: Path, accept: Callable[[TrainState], Any], error: type[Exception]
) -> None:
    def attempt(stages: Stages, state: TrainState, shots: Any) -> StepResult:
        state.scene.gaussians.means.data[:] = torch.nan
        return StepResult(Figures.of({}, torch.tensor(torch.nan)))

    stages = reference_stages().swap("test", try_step=attempt, fetch=lambda stages, state: None)
    with pytest.raises(error):
        train(stages, unaccepted(FEW, accept), tmp_path / "checkpoint.pt")
    assert bool(list(tmp_path.iterdir())) == (error is BrokenError)


def test_an_interruption_before_the_verdict_saves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(idle(stop_at=2), unaccepted(8, lambda _: pytest.fail("accepted")), tmp_path / "checkpoint.pt")
    assert not list(tmp_path.iterdir())


def test_a_run_that_is_asked_to_stop_hears_the_verdict_and_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Asked(loop.StopWish):
        def __init__(self) -> None:
            super().__init__()
            self.asked = True

    monkeypatch.setattr(loop, "StopWish", Asked)
    seen = list[int]()
    with pytest.raises(StoppedError):
        train(idle(), unaccepted(8, lambda state: seen.append(state.step)), tmp_path / "checkpoint.pt")
    assert seen == [0] and (tmp_path / "checkpoint.pt").exists()


# ---- whole runs


def run_unchecked(
    monkeypatch: pytest.MonkeyPatch, config: Config, check: Callable[[], Any], unchecked: bool = True
) -> dict[str, Any]:
    monkeypatch.setattr(COMMAND, "begins_unchecked", lambda state: unchecked)
    monkeypatch.setattr(COMMAND, "begin_checks", lambda *_, **__: BegunChecks(check))
    return run(config, source=tiny_capture())


def config_of(out: Path) -> Config:
    model = ModelConfig(points=300, actor_points=40, raised_points=100, far_points=80, sky_height=8, calibrate=True)
    return tiny_config(steps=5, ops="reference", out=str(out), model=model)


def test_a_run_that_begins_unchecked_ends_like_one_that_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, unchecked in (("early", True), ("late", False)):
        run_unchecked(monkeypatch, config_of(tmp_path / name), lambda: ([], {}), unchecked)
    early, late = (load_checkpoint(tmp_path / name / "checkpoint.pt", "cpu")["scene"] for name in ("early", "late"))
    assert all(torch.equal(early["parameters"][k], late["parameters"][k]) for k in late["parameters"])
    assert {p.name for p in (tmp_path / "early").iterdir()} == {p.name for p in (tmp_path / "late").iterdir()}


def test_a_wrong_capture_stops_a_run_that_has_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begun = config_of(tmp_path / "out")
    with pytest.raises(CaptureError, match="clocks of two sensors"):
        run_unchecked(monkeypatch, begun, refuse)
    assert not (tmp_path / "out").exists()
    run_unchecked(monkeypatch, begun, lambda: ([], {}))  # the name is free
    assert json.loads((tmp_path / "out/metrics.json").read_text())["steps"] == 5


def test_a_training_that_fails_on_a_wrong_capture_says_that_it_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: Any) -> None:
        raise IndexError("no such pixel")

    monkeypatch.setattr(loop, "one_step", fail)
    with pytest.raises(CaptureError, match="clocks of two sensors"):
        run_unchecked(monkeypatch, config_of(tmp_path / "out"), refuse)


def test_corrections_from_the_checks_reach_the_scene(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name, start = tiny_capture().cameras[0].name, Start(2.0, 0.03)
    run_unchecked(monkeypatch, config_of(tmp_path / "out"), lambda: ([], {name: start}))
    values = load_checkpoint(tmp_path / "out/checkpoint.pt", "cpu")["scene"]["parameters"]
    rotations = next(v for k, v in values.items() if k.endswith("camera_rotations"))
    assert math.degrees(-float(rotations[0, 1])) == pytest.approx(2.0, abs=0.5)


def test_starts_are_added_in_place() -> None:
    known = none_known(tiny_capture(), 0.5, "cpu")
    known.camera_rotations.requires_grad_()
    rotations, name = known.camera_rotations, tiny_capture().cameras[0].name
    for _ in range(2):
        add_starts(known, {name: Start(1.5, -0.02)})
    assert known.camera_rotations is rotations and rotations.requires_grad
    assert math.degrees(float(rotations.detach()[0, 1])) == pytest.approx(-3.0)
    assert float(known.camera_offsets[0]) == pytest.approx(-0.04)
