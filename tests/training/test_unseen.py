# SPDX-License-Identifier: Apache-2.0
"""Gaussians that no view of a step sees: on a long drive regularisers leave them alone, on a short one they act on all."""

from dataclasses import replace

import pytest
import torch
from tiny_capture import tiny_config, tiny_state

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.training import unseen
from nurec_lite.training.state import TrainState
from nurec_lite.training.step import step

FADING = ("opacity_logits", "log_scales", "lidar_logits")
BEHIND = 7  # Gaussians that are moved to where no sensor looks


@pytest.fixture(params=[(), ("fused_adam", "fused_activate")], ids=["plain", "fused"])
def changed(request: pytest.FixtureRequest):
    """Runs a step, and returns which of the Gaussians changed, by parameter."""

    def run() -> dict[str, torch.Tensor]:
        options = {name: parameters_of(name) for name in request.param}
        stages = build_stages(options, base_stages("native", torch.device("cpu")))
        state = hidden()
        before = {name: getattr(state.scene.gaussians, name).detach().clone() for name in FADING}
        step(stages, state)
        after = {name: getattr(state.scene.gaussians, name).detach() for name in FADING}
        return {name: (after[name] != before[name]).reshape(len(after[name]), -1).any(1) for name in FADING}

    return run


def hidden() -> TrainState:
    config = tiny_config()
    config.loss.opacity = config.loss.scale = 0.05
    state = tiny_state(config)
    with torch.no_grad():
        state.scene.gaussians.means[:BEHIND] += 1e4
    return state


def test_on_a_long_drive_they_stay(changed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unseen, "LONG", 0)
    for name, moved in changed().items():
        assert not moved[:BEHIND].any(), name
        assert moved[BEHIND:].any(), name


def test_on_a_short_drive_regularisers_act_on_all(changed) -> None:
    moved = changed()
    assert moved["opacity_logits"][:BEHIND].all() and moved["log_scales"][:BEHIND].all()


@pytest.mark.parametrize(
    ("images", "a_step", "long"), [(42, 1, False), (288, 1, False), (1440, 1, True), (1440, 6, False)]
)
def test_a_drive_is_long_by_the_steps_until_all_images_have_come(images: int, a_step: int, long: bool) -> None:
    state = tiny_state(tiny_config())
    split = replace(state.plan.split, train_images=(0,) * images)
    capture = replace(state.plan.capture, split=split)
    state.plan = replace(state.plan, capture=capture, images_a_step=a_step)
    assert unseen.is_long(state) == long
