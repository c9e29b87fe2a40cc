# SPDX-License-Identifier: Apache-2.0
"""Relocations that keep the number of Gaussians: they write into the store, and leave it alone where they must not happen."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tiny_capture import tiny_config, tiny_state
from torch import Tensor

from nurec_lite.config import DensityConfig
from nurec_lite.training.baseline import optimize, reference_stages
from nurec_lite.training.density import Relocation, by_node, relocate_masked
from nurec_lite.training.optim import MOMENTS, overwrite_gaussians, replace_gaussians
from nurec_lite.training.stages import Changes, Stages
from nurec_lite.training.state import TrainState


def trained_a_bit() -> TrainState:
    """Every parameter has moments, a tenth of the Gaussians are dead, and no density control is due but in every step."""
    state = tiny_state(tiny_config(density=DensityConfig(every=1, start=0.0, stop=1.0, noise=0.0, cap=1)))
    generator = torch.Generator().manual_seed(5)
    for p in state.scene.parameters().values():
        p.grad = torch.randn(p.shape, generator=generator)
    optimize(state)
    with torch.no_grad():
        state.scene.gaussians.opacity_logits[::10] = -9
        state.scene.gaussians.lidar_logits[::10, 2:] = -9
    return state


def everything(state: TrainState) -> dict[str, Tensor]:
    """All tensors of the store and its optimizer; not copied."""
    found = {"node": state.scene.gaussians.node}
    for group in state.optimizer.param_groups:
        (parameter,) = group["params"]
        found |= {f"{group['name']} {key}": state.optimizer.state[parameter][key] for key in MOMENTS}
        found[group["name"]] = parameter.detach()
    return found


def relocation(state: TrainState) -> Relocation:
    generator = torch.Generator().manual_seed(2)
    return relocate_masked(state.scene.gaussians, 0, generator, jitter=0.5, order=by_node)


def test_it_is_what_new_tensors_would_be() -> None:
    renewed, overwritten = trained_a_bit(), trained_a_bit()
    before = {name: value.data_ptr() for name, value in everything(overwritten).items()}
    replace_gaussians(renewed.scene, renewed.optimizer, relocation(renewed))
    overwrite_gaussians(overwritten.scene, overwritten.optimizer, relocation(overwritten))
    for name, value in everything(renewed).items():
        found = everything(overwritten)[name]
        assert torch.equal(found, value) and found.data_ptr() == before[name], name
    assert not torch.equal(overwritten.scene.gaussians.means, trained_a_bit().scene.gaussians.means)


@pytest.mark.parametrize("void", [True, False])
def test_a_void_one_changes_nothing(void: bool) -> None:
    state, plain = trained_a_bit(), trained_a_bit()
    if not void:
        overwrite_gaussians(plain.scene, plain.optimizer, relocation(plain))
    overwrite_gaussians(state.scene, state.optimizer, relocation(state), torch.tensor(void))
    for name, value in everything(plain).items():
        assert torch.equal(everything(state)[name], value), name


def test_parameters_without_moments_have_none_after() -> None:
    state = tiny_state()
    overwrite_gaussians(state.scene, state.optimizer, relocation(state))
    assert not state.optimizer.state


def controlled(state: TrainState, stages: Stages) -> bool:
    """Whether density control changed the store."""
    before = state.scene.gaussians.means.detach().clone()
    stages.update.density(stages, state)
    return not torch.equal(before, state.scene.gaussians.means)


def forbidding(vetoed: bool) -> Stages:
    """Stages; one of them forbids a relocation in place, or none does."""
    stage = SimpleNamespace(graph_key=None, forbids_inplace_relocation=lambda scene, node: torch.tensor(vetoed))
    return replace(reference_stages().replaced(relocate=relocate_masked), changes=Changes(capturable=(stage,)))


@pytest.mark.parametrize(("failed", "vetoed"), [(None, False), (0.0, False), (1.0, False), (0.0, True), (None, True)])
def test_density_control_asks_whether_it_may(failed: float | None, vetoed: bool) -> None:
    state = trained_a_bit()
    state.failed = None if failed is None else torch.tensor(failed)
    stages = forbidding(vetoed)
    assert controlled(state, stages) == (not failed and not vetoed)


def test_what_grows_gets_new_tensors_whatever_anybody_says() -> None:
    state = trained_a_bit()
    state.config = replace(state.config, density=replace(state.config.density, cap=10_000))
    n, node = len(state.scene.gaussians), state.scene.gaussians.node
    stages = replace(forbidding(True), update=reference_stages().update)
    stages.update.density(stages, state)
    assert len(state.scene.gaussians) > n and state.scene.gaussians.node is not node
