# SPDX-License-Identifier: Apache-2.0
"""Gaussians that no view of a step sees: on a long drive regularisers and momentum leave them alone, on a short one both act on all."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tiny_capture import tiny_config, tiny_state
from torch import Tensor

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.opt.all import fused_adam
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.training import unseen
from nurec_lite.training.optim import MOMENTS
from nurec_lite.training.state import TrainState
from nurec_lite.training.step import step

BEHIND = 7  # Gaussians that are moved to a place that no sensor sees
FUSED = ("fused_interp", "fused_adam", "fused_activate", "fused_colour", "fused_harmonics")
Changed = Callable[[], dict[str, tuple[Tensor, Tensor]]]


@pytest.fixture(params=[(), FUSED], ids=["plain", "fused"])
def changed(request: pytest.FixtureRequest) -> Changed:
    """Runs two steps; the second does not see some Gaussians of the first one. Returns whether the second step changed their values and
    moments, and those of all, by name."""

    def run() -> dict[str, tuple[Tensor, Tensor]]:
        options = {name: parameters_of(name) for name in request.param}
        stages = build_stages(options, base_stages("native", torch.device("cpu")))
        state = fading()
        step(stages, state)
        hidden = seen(state)[:BEHIND]
        with torch.no_grad():
            state.scene.gaussians.means[hidden] += 1e4
        before = values(state)
        state.step += 1
        step(stages, state)
        changed = {name: (now != before[name]).reshape(len(now), -1).any(1) for name, now in values(state).items()}
        return {name: (rows[hidden], rows) for name, rows in changed.items()}

    return run


def fading() -> TrainState:
    config = tiny_config()
    config.loss.opacity = config.loss.scale = 0.05
    config.density.noise = 0.0
    return tiny_state(config)


def seen(state: TrainState) -> Tensor:
    """Numbers of the Gaussians that have momentum in place and colour."""
    g, kept = state.scene.gaussians, state.optimizer.state
    moving = [(kept[p]["exp_avg"] != 0).flatten(1).all(1) for p in (g.means, g.sh0)]
    return torch.nonzero(moving[0] & moving[1])[:, 0]


def values(state: TrainState) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name in Gaussians.trained():
        parameter = getattr(state.scene.gaussians, name)
        moments = {f"{name} {key}": state.optimizer.state[parameter][key] for key in MOMENTS}
        found |= {name: parameter.detach().clone()} | {key: kept.clone() for key, kept in moments.items()}
    return found


def test_on_a_long_drive_they_stay(changed: Changed) -> None:
    with unseen.every_drive_is_long():
        found = changed()
    for name, (hidden, rows) in found.items():
        assert not hidden.any() and rows.any(), name


def test_on_a_short_drive_both_act_on_all(changed: Changed) -> None:
    moved = changed()
    for name in ("opacity_logits", "log_scales", "means", "means exp_avg", "sh0", "sh0 exp_avg_sq"):
        assert moved[name][0].all(), name


def test_both_ways_update_alike() -> None:
    """Three updates, each with a gradient for other values."""
    states, generator = [fading() for _ in range(2)], torch.Generator().manual_seed(0)
    for _ in range(3):
        give_gradients(states, generator)
        with unseen.sparse(states[0].optimizer, Gaussians.trained()):
            states[0].optimizer.step()
        fused_adam.update(states[1].optimizer, touched_only=Gaussians.trained())
    plain, fused = map(values, states)
    for name, value in plain.items():
        torch.testing.assert_close(fused[name], value, rtol=1e-5, atol=1e-7)


def test_a_gaussian_that_is_seen_late_moves_by_three_rates_at_most() -> None:
    """Its moments are of few gradients, though steps are many. A second beta of 0.999 would allow 5.2 rates here."""
    state, stages = fading(), base_stages("native", torch.device("cpu"))
    means, sizes = state.scene.gaussians.means, list[Tensor]()
    with unseen.every_drive_is_long():
        stages.feed.schedule(stages, state)
        for k in range(1030):
            seen, before = k >= 1000, means.detach().clone()
            means.grad = torch.full_like(means, float(seen))
            with unseen.sparse(state.optimizer, ("means",)):
                state.optimizer.step()
            sizes.append((means.detach() - before).abs().max() / state.config.lr.means)
    assert max(sizes[:1000]) == 0
    assert max(sizes) == pytest.approx(max(_moves(0.995)), rel=1e-3) and max(sizes) < 3


def _moves(second: float) -> list[float]:
    """Moves in rates, at each of the first gradients of 1 after a thousand steps without one."""
    return [(1 - 0.9**n) * ((1 - second ** (1000 + n)) / (1 - second**n)) ** 0.5 for n in range(1, 31)]


def give_gradients(states: list[TrainState], generator: torch.Generator) -> None:
    """The same ones to all, with zeros in half of the values."""
    for name in Gaussians.trained():
        parameters = [getattr(state.scene.gaussians, name) for state in states]
        gradient, kept = (torch.randn(parameters[0].shape, generator=generator) for _ in range(2))
        for parameter in parameters:
            parameter.grad = gradient * (kept > 0)


def test_momentum_acts_on_all_while_moments_remember(changed: Changed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unseen, "LONG", 0)
    moved = changed()
    assert moved["means"][0].all() and moved["opacity_logits"][0].all() and moved["sh0 exp_avg_sq"][0].all()


@pytest.mark.parametrize(
    ("images", "a_step", "long", "sparse"),
    [
        (42, 1, False, False),
        (288, 1, False, False),
        (420, 1, True, False),
        (1440, 1, True, True),
        (1440, 2, True, True),
        (1440, 6, False, False),
    ],
)
def test_a_drive_is_long_by_the_steps_until_all_images_have_come(
    images: int, a_step: int, long: bool, sparse: bool
) -> None:
    state = tiny_state(tiny_config())
    split = replace(state.plan.split, train_images=(0,) * images)
    capture = replace(state.plan.capture, split=split)
    state.plan = replace(state.plan, capture=capture, images_a_step=a_step)
    assert unseen.is_long(state) == long
    assert unseen.sparse_parameters(state) == (Gaussians.trained() if sparse else ())
    assert unseen.betas(state) == (0.9, 0.995 if sparse else 0.999)
