# SPDX-License-Identifier: Apache-2.0
"""density.cap=auto: the cap of the capture holds for the whole run, also for a continued one."""

import logging
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_capture import tiny_capture, tiny_config, tiny_state

from nurec_lite.bounds import BoundError, check_values
from nurec_lite.cli.words import hydra_arguments
from nurec_lite.config import Config, check_budget
from nurec_lite.training.baseline import density, reference_stages
from nurec_lite.training.checkpoint import CheckpointError, load_checkpoint
from nurec_lite.training.memory import smaller
from nurec_lite.training.saving import write_checkpoint
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState

CPU = torch.device("cpu")


def with_auto(config: Config, cap: int | str = "auto", points: int | str = "auto") -> Config:
    model = replace(config.model, points=points, raised_points=points, far_points=points)
    return replace(config, model=model, density=replace(config.density, cap=cap))


def fresh(config: Config) -> TrainState:
    return make_state(config, tiny_capture(), CPU)


@pytest.fixture(scope="module")
def begun() -> TrainState:
    return fresh(with_auto(tiny_config()))


def test_the_cap_is_said_and_density_control_grows_up_to_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    state = fresh(with_auto(tiny_config()))
    assert state.most is not None and f"density.cap=auto: at most {state.most:,} Gaussians (" in caplog.text
    state.most = len(state.scene.gaussians) + 7
    state.step = state.config.density.every - 1
    density(reference_stages(), state)
    assert len(state.scene.gaussians) == state.most == state.cap


def test_a_run_that_goes_on_keeps_its_cap(begun: TrainState, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    state = replace(begun, most=12_345, step=3)
    write_checkpoint(state, path)
    resume = replace(state.config, train=replace(state.config.train, resume=str(path)))
    assert make_state(resume, tiny_capture(), CPU).cap == 12_345
    given = replace(resume, density=replace(resume.density, cap=20_000))
    assert make_state(given, tiny_capture(), CPU).cap == 20_000


def test_a_run_with_given_numbers_goes_on_with_auto(tmp_path: Path) -> None:
    """An earlier version of a recipe began it."""
    path = tmp_path / "checkpoint.pt"
    write_checkpoint(tiny_state(), path)
    resume = replace(tiny_config(), train=replace(tiny_config().train, resume=str(path)))
    assert (
        make_state(with_auto(resume), tiny_capture(), CPU).cap
        == load_checkpoint(path, "cpu")["config"]["density"]["cap"]
    )
    with pytest.raises(CheckpointError, match=r"model\.points=300, but this run has 301"):
        make_state(replace(resume, model=replace(resume.model, points=301)), tiny_capture(), CPU)


def test_less_memory_leaves_open_numbers_to_the_cap() -> None:
    config = with_auto(tiny_config())
    changed, said = smaller(config, 1000, resumed=False)
    assert changed.density.cap == 700 and changed.model.points == "auto" and "model" not in said
    check_budget(changed)
    again, _ = smaller(changed, None, resumed=False)
    assert again.density.cap == int(0.7 * 700)
    none_made, _ = smaller(config, None, resumed=False)
    assert none_made.density.cap == 700_000


def test_a_number_stays_one_on_the_command_line() -> None:
    assert hydra_arguments("train", ["model.points=300", "density.cap=auto"]) == [
        "model.points=300",
        "density.cap=auto",
    ]
    for value, good in ((300, True), ("auto", True), ("300", False), ("many", False), (0, False)):
        with nullcontext() if good else pytest.raises(BoundError, match="must be auto or lie between 1 and"):
            check_values({"density": {"cap": value}}, [Config])
