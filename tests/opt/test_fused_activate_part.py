# SPDX-License-Identifier: Apache-2.0
"""Relocation with the option `fused_activate`: equal to relocation without it, up to rounding of copies."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from stored_gaussians import gaussians_of, on
from tiny_capture import tiny_state

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.native import ops
from nurec_lite.opt.all import fused_activate
from nurec_lite.scene.gaussians import LIDAR_VALUES, Gaussians
from nurec_lite.training.density import MAX_COPIES, Relocation, by_node, relocate, relocate_masked

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
BOTH = pytest.mark.parametrize("chosen", [relocate, relocate_masked], ids=lambda f: f.__name__)
ROUNDING = {"rtol": 1e-5, "atol": 1e-5}  # up to logits of 4 the last bit of an opacity is 4e-6 of its distance to 1


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def store(n: int, columns: int, living: int, device: str) -> Gaussians:
    """A store with some living Gaussians."""
    g = gaussians_of(n, columns, odd=False)
    g.opacity_logits.clamp_(-4, 4), g.lidar_logits.clamp_(max=4)
    g.opacity_logits[living:] = g.lidar_logits[living:, LIDAR_VALUES:] = -9
    return on(g, device)


def moved(chosen: Callable[..., Relocation | None], g: Gaussians, n_new: int, **more: Any) -> Relocation:
    generator = torch.Generator(g.means.device).manual_seed(3)
    found = chosen(g, n_new, generator, None, 0.3, None, by_node, **more)
    assert found is not None
    return found


def assert_alike(found: Relocation, wanted: Relocation) -> None:
    """Opacities and scales of those that begin anew come from `mcmc_split`; all else does not."""
    assert torch.equal(found.node, wanted.node) and torch.equal(found.source, wanted.source)
    assert torch.equal(found.anew, wanted.anew) and found.changed.keys() == wanted.changed.keys()
    for name, value in wanted.changed.items():
        own = found.changed[name]
        assert torch.equal(own[~wanted.anew], value[~wanted.anew]), name
        torch.testing.assert_close(own, value, **ROUNDING)
    assert torch.equal(found.changed["means"], wanted.changed["means"])
    values = (r.changed["lidar_logits"][:, :LIDAR_VALUES] for r in (found, wanted))
    assert torch.equal(*values)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize(("n", "living", "n_new"), [(1, 1, 1), (33, 31, 0), (200, 1, 5), (257, 20, 0), (1025, 900, 77)])
@BOTH
def test_a_relocation_is_that_without_it(
    chosen: Callable[..., Relocation | None], n: int, living: int, n_new: int, columns: int, device: str
) -> None:
    """Gaussians get few copies each, some ten, and more than one may have."""
    g = store(n, columns, living, device)
    found = moved(chosen, g, n_new, split=fused_activate.mcmc_split)
    assert_alike(found, moved(chosen, g, n_new))
    assert living > 1 or n < MAX_COPIES or int(found.source.bincount().max()) > MAX_COPIES


def test_the_step_s_relocation_is_by_the_option_s_stage() -> None:
    states, options = (tiny_state(), tiny_state()), ({"fused_activate": {}}, {})
    for state, given in zip(states, options, strict=True):
        stages = build_stages(given, base_stages("native", torch.device("cpu")))
        with torch.no_grad():
            state.scene.gaussians.opacity_logits[::5] = state.scene.gaussians.lidar_logits[::5, LIDAR_VALUES:] = -9
        stages.update.rearrange(stages.replaced(relocate=relocate_masked), state, 11)
    found, wanted = (state.scene.parameters() for state in states)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, **ROUNDING)
    assert torch.equal(found["means"], wanted["means"])
    assert torch.equal(states[0].generator.get_state(), states[1].generator.get_state())


def test_the_baseline_s_relocation_asks_the_stage() -> None:
    """It does not call the readable function itself."""
    result: list[int | None] = []

    def part(*given: Any) -> Any:
        result.append(given[-1])
        return fused_activate.mcmc_split(*given)

    stages = base_stages("native", torch.device("cpu")).replaced(mcmc_split=part)
    for chosen in (relocate, relocate_masked):
        stages.update.rearrange(stages.replaced(relocate=chosen), tiny_state(), 3)
    assert result == [None, MAX_COPIES]
