# SPDX-License-Identifier: Apache-2.0
"""Noise of the option `fused_activate`: that of plain torch in float64, from the numbers that the option draws; and the source of the
count that these draws follow."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from philox import eta_of
from stepping import assert_close, cramped, no_sync_of, steps
from stored_gaussians import gaussians_of, on
from tiny_capture import tiny_capture, tiny_config, tiny_state
from torch import Tensor

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.config import DensityConfig
from nurec_lite.native import ops
from nurec_lite.opt.all import fused_activate
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.training import baseline
from nurec_lite.training.density import sgld_noise
from nurec_lite.training.loop import train
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SIZES = (0, 1, 31, 33, 256, 257, 1025, 5001)  # a block has 256 Gaussians


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def stages_of(*more: str) -> Stages:
    names = ("fused_interp", "collect_once", "fused_activate", *more)
    return build_stages({name: parameters_of(name) for name in names}, base_stages("native", torch.device("cpu")))


# ---- draws


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("n", SIZES)
def test_noise_with_the_numbers_of_a_step(n: int, columns: int, device: str) -> None:
    g, eta = gaussians_of(n, columns), eta_of(n, step=41, seed=3)
    g.means.zero_(), g.opacity_logits.sub_(4), g.lidar_logits.sub_(4)  # transparent ones
    found, thin = on(g, device), on(g, device)
    step, amount = (torch.tensor(value, device=device) for value in (41.0, 0.7))
    fused_activate.add_sgld_noise(found, step, 3, amount, None)
    thin.clamp_min_scale_()
    assert torch.equal(found.log_scales, thin.log_scales) and (
        n < 20 or not torch.equal(thin.log_scales.cpu(), g.log_scales)
    )
    exact = on(thin, "cpu", torch.float64)
    wanted = sgld_noise(exact.quats, exact.log_scales, exact.greatest_opacity(), 0.7, eta)
    size = (exact.log_scales.exp() * eta).norm(dim=1, keepdim=True)  # rounding of an opacity counts a hundred times
    assert bool(((found.means.cpu().double() - wanted).abs() <= 2e-5 * size).all())
    assert n < 20 or bool((wanted.norm(dim=1) > 0.1 * size.squeeze(1)).any())


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_that_failed_moves_nothing_and_keeps_the_thickness(device: str) -> None:
    g = on(gaussians_of(300), device)
    before = g.means.clone()
    step, amount, failed = (torch.tensor(value, device=device) for value in (1.0, 0.7, 1.0))
    fused_activate.add_sgld_noise(g, step, 0, amount, failed)
    assert torch.equal(g.means, before)
    assert bool((g.log_scales >= -9.2104).all())


@pytest.mark.parametrize("device", DEVICES)
def test_another_step_or_seed_draws_others_and_the_same_the_same(device: str) -> None:
    def moved(step: int, seed: int) -> Tensor:
        g = on(gaussians_of(300, odd=False), device)
        g.means.zero_(), g.opacity_logits.fill_(-8), g.lidar_logits.fill_(-8)
        fused_activate.add_sgld_noise(
            g, torch.tensor(float(step), device=device), seed, torch.ones((), device=device), None
        )
        return g.means

    first = moved(7, 1)
    assert torch.equal(first, moved(7, 1)) and bool(first.all())
    assert not bool((first == moved(8, 1)).any()) and not bool((first == moved(7, 2)).any())


def plain_noise(state: TrainState) -> None:
    """The readable one, with the numbers that the option draws."""
    eta = eta_of(len(state.scene.gaussians), int(fused_activate.updates(state)), state.config.seed)
    baseline.noise(state, lambda *given: sgld_noise(*given[:-1], eta.to(given[-1])))


@pytest.mark.parametrize("counted", [0, 41])
@pytest.mark.parametrize("amount", [0.0, 0.5])
def test_the_stage_draws_by_updates_and_seed(amount: float, counted: int) -> None:
    """Torch's generator stays where it is."""
    config = tiny_config(seed=5, density=DensityConfig(noise=amount))
    states = []
    for stage in (plain_noise, fused_activate.noise):
        state = tiny_state(config)
        assert state.lr_and_noise is not None
        state.lr_and_noise[-1], state.failed = 2 * amount, torch.zeros(())
        if counted:
            state.optimizer.state[state.scene.gaussians.means]["step"] = torch.tensor(float(counted))
        with torch.no_grad():
            state.scene.gaussians.opacity_logits.sub_(8)
            state.scene.gaussians.log_scales[::3] = -12
        stage(state)
        states.append(state)
    (a, b), start = states, tiny_state(config)
    assert torch.equal(b.generator.get_state(), start.generator.get_state())
    for name, value in a.scene.parameters().items():
        torch.testing.assert_close(b.scene.parameters()[name], value, rtol=1e-5, atol=1e-6)
    assert torch.equal(b.scene.gaussians.means, start.scene.gaussians.means) == (amount == 0)


# ---- rows that count


@pytest.mark.parametrize("optimizer", [(), ("fused_adam",)], ids=["torch's", "fused_adam"])
def test_every_update_draws_anew(optimizer: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Over relocations, with growth and without, either optimizer counts on, where the means are."""
    state, numbers = tiny_state(), []
    add_sgld_noise = fused_activate.add_sgld_noise

    def result(g: Gaussians, step: Tensor, *given: Any) -> None:
        numbers.append(float(step))
        assert step.dtype == torch.float32 and step.device == g.means.device
        add_sgld_noise(g, step, *given)

    monkeypatch.setattr(fused_activate, "add_sgld_noise", result)
    steps(stages_of(*optimizer), state, 10)
    assert numbers == list(range(1, 11)) and len(state.scene.gaussians) > len(tiny_state().scene.gaussians)


def test_a_step_that_is_done_again_draws_the_same() -> None:
    plain, overflown = tiny_state(), tiny_state()
    steps(stages_of("no_sync", "fused_adam"), plain, 3)
    tight = cramped(stages_of("no_sync", "fused_adam"), {1, 2})
    steps(tight, overflown, 3)
    assert no_sync_of(tight).redone >= 2
    assert_close(overflown, plain, 1e-4, 1e-6)


def test_a_resumed_run_counts_on(tmp_path: Path) -> None:
    config, path = tiny_config(steps=3), tmp_path / "checkpoint.pt"
    train(stages_of(), make_state(config, tiny_capture(), torch.device("cpu")), path)
    config.train = replace(config.train, resume=str(path))
    found = fused_activate.updates(make_state(config, tiny_capture(), torch.device("cpu")))
    assert float(found) == 3 and found.dtype == torch.float32
