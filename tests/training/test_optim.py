# SPDX-License-Identifier: Apache-2.0
"""Adam over the scene: its groups, its schedules, and one step by hand."""

import math
from dataclasses import replace

import pytest
import torch
from tiny_capture import tiny_capture, tiny_scene

from nurec_lite.config import LearningRates
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.scene.calibration import none_known
from nurec_lite.scene.scene import Scene
from nurec_lite.training.optim import Adam, make_optimizer, means_rate, set_rates

LR = LearningRates(sky=0.05, decay=0.2, means=2e-3, means_decay=0.01)


def rates(optimizer: torch.optim.Adam) -> dict[str, float]:
    return {group["name"]: group["lr"] for group in optimizer.param_groups}


def trackless() -> Scene:
    tracks = Tracks.empty().to("cpu")
    return replace(
        tiny_scene(),
        tracks=tracks,
        track_translations=tracks.translations.clone(),
        track_quaternions=tracks.quaternions.clone(),
    )


def test_every_parameter_has_a_group_and_a_rate_of_its_own() -> None:
    scene = tiny_scene()
    optimizer = make_optimizer(scene, LR)
    assert rates(optimizer) == {name: getattr(LR, name) for name in scene.parameters()}
    for group in optimizer.param_groups:
        assert len(group["params"]) == 1 and group["params"][0] is scene.parameters()[group["name"]]
        assert group["params"][0].requires_grad and group["eps"] == 1e-15


def test_every_rate_belongs_to_a_parameter() -> None:
    names, scene = set(LR.__dataclass_fields__) - {"decay", "means_decay"}, tiny_scene()
    scene.calibration = none_known(tiny_capture(), 0.5, "cpu", grid=(3, 2, 2))
    assert names == set(scene.parameters())


@pytest.mark.parametrize("progress", [0.0, 0.25, 0.5, 1.0])
def test_rates_fall_exponentially(progress: float) -> None:
    optimizer = make_optimizer(tiny_scene(), LR)
    set_rates(optimizer, LR, progress)
    for name, rate in rates(optimizer).items():
        decay = LR.means_decay if name == "means" else LR.decay
        assert rate == pytest.approx(getattr(LR, name) * math.exp(progress * math.log(decay)))
    assert means_rate(LR, progress) == pytest.approx(rates(optimizer)["means"])


def test_a_schedule_does_not_accumulate() -> None:
    optimizer = make_optimizer(tiny_scene(), LR)
    for progress in (0.9, 0.3, 0.3):
        set_rates(optimizer, LR, progress)
    assert rates(optimizer)["sky"] == pytest.approx(LR.sky * LR.decay**0.3)


def test_two_steps_by_hand() -> None:
    """m = 0.9 m + 0.1 g, v = 0.999 v + 0.001 g^2, x -= lr m / (1 - 0.9^t) / sqrt(v / (1 - 0.999^t))."""
    scene = tiny_scene()
    optimizer = make_optimizer(scene, LR)
    sky = scene.sky
    start = sky.detach().clone()
    sky.grad = torch.full_like(sky, 2.0)
    set_rates(optimizer, LR, 0.0)
    optimizer.step()  # m = 0.2, v = 0.004: m / 0.1 = 2, sqrt(v / 0.001) = 2
    torch.testing.assert_close(sky.detach(), start - 0.05, rtol=0, atol=1e-6)
    sky.grad = torch.full_like(sky, -1.0)
    set_rates(optimizer, LR, 0.5)
    optimizer.step()  # m = 0.08, v = 0.004996: m / 0.19 = 0.421053, sqrt(v / 0.001999) = 1.580900
    rate = 0.05 * math.sqrt(0.2)
    torch.testing.assert_close(sky.detach(), start - 0.05 - rate * 0.421053 / 1.580900, rtol=0, atol=2e-6)


@pytest.mark.parametrize("failed", [None, 0.0, 1.0])
def test_it_is_torch_s_adam(failed: float | None) -> None:
    values, gradients = torch.randn(33, 3), torch.randn(4, 33, 3)
    found = []
    for kind in (torch.optim.Adam, Adam):
        p = values.clone().requires_grad_()
        optimizer = kind([{"params": [p], "name": "p", "lr": 0.1}], eps=1e-15, fused=True)
        for gradient in gradients:
            p.grad = gradient.clone()
            if failed is not None:
                optimizer.found_inf = torch.tensor(failed)
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        assert p.grad is None
        found.append((p, optimizer.state_dict()))
    (p, state), (own, own_state) = found
    assert torch.equal(own, p) and torch.equal(own, values) == (failed == 1.0) and own.requires_grad
    assert own_state["param_groups"] == state["param_groups"]
    assert all(torch.equal(own_state["state"][0][name], value) for name, value in state["state"][0].items())


def test_a_parameter_without_a_gradient_stays() -> None:
    scene = tiny_scene()
    optimizer = make_optimizer(scene, LR)
    before = scene.exposure.detach().clone()
    scene.sky.grad = torch.ones_like(scene.sky)
    optimizer.step()
    assert torch.equal(scene.exposure.detach(), before)


def test_parameters_may_have_no_rows() -> None:
    scene = trackless()
    optimizer = make_optimizer(scene, LR)
    assert scene.track_translations.shape == (0, 3)
    for p in scene.parameters().values():
        p.grad = torch.ones_like(p)
    optimizer.step()
    set_rates(optimizer, LR, 0.5)
    optimizer.step()
    assert all(p.isfinite().all() for p in scene.parameters().values())
    again = make_optimizer(trackless(), LR)
    again.load_state_dict(optimizer.state_dict())
