# SPDX-License-Identifier: Apache-2.0
"""Steps of the option `batch` with one launch for all views, or with the loop, as a training runs them on a machine with a GPU."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny_capture import tiny_config, tiny_state
from torch import Tensor

from nurec_lite.backends import base_stages
from nurec_lite.base.options import option_module, parameters_of
from nurec_lite.config import DensityConfig
from nurec_lite.native.bind import native_stages
from nurec_lite.native.plan import CUDA_PLAN
from nurec_lite.training.checkpoint import scene_to
from nurec_lite.training.optim import make_optimizer
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState

NEEDED = ("fused_interp", "collect_once", "warp_cull")
WITHOUT_WAITING = ("fused_interp", "collect_once", "no_sync", "warp_cull", "tile_cull", "balanced_tiles", "fused_adam")


def stages_with(device: torch.device, names: tuple[str, ...], **own: Any) -> Stages:
    """Stages with the options in this order, the option last, on a stand-in for a GPU; parts are short, and keys tell apart near
    distances."""
    stages = replace(base_stages("native", device).compiled(CUDA_PLAN, native_stages), device="cuda")
    for name in (*names, "batch"):
        values = parameters_of(name) | (own if name == "batch" else {})
        values |= {"balanced_tiles": {"part": 64}, "short_keys": {"bits": 24}}.get(name, {})
        stages = option_module(name).apply(stages, **values)
    return stages


def state_for(
    stages: Stages, device: torch.device, calibrate: bool = False, rays: int = 128, own_opacities: bool = True
) -> TrainState:
    """A state that makes no relocations; with `own_opacities` the lidar has opacities of its own."""
    config = tiny_config(density=DensityConfig(every=1000))
    config.model.calibrate, config.model.lidar_opacity = calibrate, own_opacities
    config = replace(config, train=replace(config.train, lidar_rays=rays))
    state = tiny_state(config)
    state.plan = stages.feed.frames(state.plan)
    if device.type == "cpu":
        return state
    scene, generator = scene_to(state.scene, device), torch.Generator(device).manual_seed(config.seed)
    there = TrainState(state.plan, config, scene, make_optimizer(scene, config.lr), generator, device)
    base_stages("native", device).feed.schedule(stages, there)
    return there


def learned(stages: Stages, state: TrainState, number: int = 3) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Loss terms of the step of this number, and its gradients."""
    found: dict[str, Tensor] = {}

    def optimize(state: TrainState) -> None:
        found.update({name: p.grad.clone() for name, p in state.scene.parameters().items() if p.grad is not None})

    stages = stages.replaced(optimize=optimize)
    state.step = number
    result = stages.update.learn(stages, state, stages.feed.fetch(stages, state))
    return {name: float(term) for name, term in result.terms.items()}, found


def assert_learned_alike(found: Any, expected: Any, device: torch.device) -> None:
    """Compares results of `learned`. A GPU's compiler may fuse other products, so that a response near a threshold falls the other way."""
    assert found[0] == pytest.approx(expected[0], rel=1e-3 if device.type == "cuda" else 2e-5, abs=1e-6)
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        share = 1e-2 if device.type == "cuda" else 3e-5
        off = float((found[1][name] - gradient).double().norm())
        assert off <= share * float(gradient.double().norm()) + 1e-9, f"{name}: {off}"


def assert_ended_alike(found: TrainState, expected: TrainState) -> None:
    """Compares states after some steps: Adam tells apart numbers that differ by rounding alone where a gradient is near zero."""
    for key, value in expected.scene.parameters().items():
        off = float((found.scene.parameters()[key] - value).detach().norm())
        assert off <= 0.02 * float(value.detach().norm()) + 1e-3, f"{key}: {off}"


def counted(stages: Stages, *names: str) -> tuple[Stages, Counter[str]]:
    """The stages, and how often those of these names are called."""
    calls: Counter[str] = Counter()

    def around(name: str) -> Callable[[Callable], Callable]:
        return lambda inner: lambda *args: (calls.update([name]), inner(*args))[1]

    replaced = {name: around(name)(stages.stage(name)) for name in names}
    return stages.replaced(**replaced), calls
