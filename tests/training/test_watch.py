# SPDX-License-Identifier: Apache-2.0
"""NaN and infinity are noticed, in any tensor and whether or not a loss shows them."""

import math

import pytest
import torch
from tiny_capture import tiny_config, tiny_state

from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.history import Figures, History
from nurec_lite.training.schema import LARGEST
from nurec_lite.training.state import TrainState
from nurec_lite.training.step import step
from nurec_lite.training.watch import EVERY, Watch


def trained() -> TrainState:
    state = tiny_state(tiny_config())
    step(reference_stages(), state)
    return state


def test_a_good_state_is_no_trouble() -> None:
    state, watch = trained(), Watch()
    assert watch.trouble_now(1, state.optimizer) is None and watch.trouble() is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["means", "sky", "exposure", "track_translations"])
def test_one_number_of_any_parameter(name: str, value: float) -> None:
    state, watch = trained(), Watch()
    with torch.no_grad():
        parameter = state.scene.parameters()[name]
        parameter[(-1,) * parameter.dim()] = value
    assert watch.trouble_now(7, state.optimizer) == (7, f"{name} is {'nan' if math.isnan(value) else 'inf'}")


def test_adam_s_moments() -> None:
    state = trained()
    state.optimizer.state[state.scene.gaussians.sh0]["exp_avg_sq"][3] = math.inf
    assert Watch().trouble_now(2, state.optimizer) == (2, "sh0 (Adam) is inf")


@pytest.mark.parametrize(("name", "largest"), [("means", 5000.0), ("log_scales", 40.0), ("sky", LARGEST)])
def test_values_that_no_checkpoint_may_hold(name: str, largest: float) -> None:
    state, watch = trained(), Watch(edge=5000.0)
    with torch.no_grad():
        value = state.scene.parameters()[name].view(-1)
        value[-1] = -largest
        assert watch.trouble_now(2, state.optimizer) is None
        value[-1] *= 1.01
    step, wrong = watch.trouble_now(3, state.optimizer) or (0, "")
    assert step == 3 and wrong.startswith("Gaussians fly 5050 m" if name == "means" else f"{name} is ")


def test_it_looks_now_and_then() -> None:
    state, watch = trained(), Watch(edge=1000.0)
    with torch.no_grad():
        state.scene.sky[0, 0, 0] = math.nan
    result = []
    for n in range(1, EVERY + 1):
        watch.look(n, state.optimizer)
        result.append(watch.trouble())
    assert result[:-1] == [None] * (EVERY - 1) and result[-1] == (EVERY, "sky is nan")


# Figures of steps


def test_the_first_step_that_is_not_finite_is_reported_and_becomes_no_mean() -> None:
    history = History()
    for n, value in enumerate((1.0, math.nan, math.inf, 2.0), 1):
        history.add(n, 0.01 * n, 5, Figures.of({"range": torch.tensor(value)}, torch.tensor(0.1)))
    row = history.read()
    assert history.trouble() == (2, "range is nan")
    assert row is not None and row["step"] == 4 and 1 <= row["range"] <= 2


def test_a_step_that_is_done_again_is_no_trouble() -> None:
    history = History()
    history.add(1, 0.01, 5, Figures.of({"range": torch.tensor(math.nan)}, None, torch.tensor(1.0)))
    history.read()
    assert history.trouble() is None


def test_range_errors_that_grow_are_reported() -> None:
    history = History()
    for n in range(1, 200):
        history.add(n, 0.01 * n, 5, Figures.of({"range": torch.tensor(1.0 if n < 80 else 20.0)}, None))
    history.read()
    found = history.trouble()
    assert found is not None and found[0] > 80
    assert found[1].startswith("the range error is ") and found[1].endswith(" m instead of 1.0 m at the start")


def test_a_bad_first_step_is_no_trouble() -> None:
    """Single steps differ; only means over many of them tell."""
    history = History()
    for n in range(1, 200):
        history.add(
            n, 0.01 * n, 5, Figures.of({"range": torch.tensor(0.1 if n == 1 else 4.0 if n % 9 else 20.0)}, None)
        )
    history.read()
    assert history.trouble() is None
