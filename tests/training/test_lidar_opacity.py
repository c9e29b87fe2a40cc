# SPDX-License-Identifier: Apache-2.0
"""A lidar with an opacity of its own: dead Gaussians, copies and noise, and a run without one that goes on with one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_capture import tiny_capture, tiny_config, tiny_state
from torch import Tensor

from nurec_lite.base.errors import UserError
from nurec_lite.config import Config
from nurec_lite.scene.gaussians import LIDAR_VALUES, Gaussians
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.checkpoint import load_checkpoint, save_checkpoint, scene_from_dict
from nurec_lite.training.density import (
    DEAD_OPACITY,
    MAX_COPIES,
    add_noise,
    mcmc_split,
    relocate,
    relocate_masked,
    split_opacity,
)
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState
from nurec_lite.training.step import step

CPU = torch.device("cpu")
BOTH = pytest.mark.parametrize("chosen", [relocate, relocate_masked], ids=lambda f: f.__name__)


def gaussians(
    opacities: list[tuple[float, float]],  # of the camera and of the lidar
) -> Gaussians:
    n, logits = len(opacities), torch.logit(torch.tensor(opacities))
    make = torch.Generator().manual_seed(1)
    return Gaussians(
        means=torch.randn(n, 3, generator=make),
        quats=torch.randn(n, 4, generator=make),
        log_scales=torch.randn(n, 3, generator=make) - 2,
        opacity_logits=logits[:, 0],
        sh0=torch.randn(n, 1, 3, generator=make),
        sh_rest=torch.randn(n, 3, 3, generator=make),
        lidar_logits=torch.cat([torch.randn(n, LIDAR_VALUES, generator=make), logits[:, 1:]], dim=1),
        node=torch.zeros(n, dtype=torch.int64),
    )


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def opacities_of(values: dict[str, Tensor]) -> Tensor:  # [N, 2]
    return torch.sigmoid(torch.stack([values["opacity_logits"], values["lidar_logits"][:, LIDAR_VALUES]], dim=1))


# ---- density


@BOTH
def test_dead_means_dead_for_both_sensors(chosen: Callable) -> None:
    g = gaussians([(0.5, 0.001), (0.001, 0.5), (0.001, 0.002), (0.6, 0.7)])
    moved = chosen(g, 0, generator())
    stays = (moved.changed["means"] == g.means).all(-1)
    assert stays.tolist() == [True, True, False, True]


@BOTH
def test_all_are_dead_only_where_no_sensor_sees_any(chosen: Callable) -> None:
    moved = chosen(gaussians([(0.001, 0.3), (0.001, 0.001)]), 0, generator())
    assert moved is not None and bool((moved.changed["means"][0] == moved.changed["means"][1]).all())


@BOTH
@pytest.mark.parametrize("opacities", [(0.6, 0.3), (0.3, 0.6), (0.9, 0.002), (0.002, 0.9), (0.5, 0.5)], ids=str)
def test_copies_share_both_opacities(chosen: Callable, opacities: tuple[float, float]) -> None:
    """A ray through the mean passes three copies as it passed the one, for either sensor; values of the lidar are kept."""
    g = gaussians([opacities, (0.001, 0.001), (0.001, 0.001)])
    values = chosen(g, 0, generator()).changed
    found = opacities_of(values)
    torch.testing.assert_close(1 - (1 - found) ** 3, torch.tensor(opacities).expand(3, 2), rtol=1e-4, atol=1e-6)
    assert torch.equal(values["lidar_logits"][:, :LIDAR_VALUES], g.lidar_logits[:1, :LIDAR_VALUES].expand(3, 2))
    _, factor = split_opacity(torch.tensor([max(opacities)]), torch.tensor([3]))  # scales follow the greater
    torch.testing.assert_close(values["log_scales"], (g.log_scales[0] + factor.log()).expand(3, 3))


def test_scales_shrink_the_more_the_more_opaque() -> None:
    """The least factor is that of the greatest opacity, for any number of copies."""
    o = torch.linspace(DEAD_OPACITY, 1 - 1e-6, 400, dtype=torch.float64)
    for n in range(2, MAX_COPIES + 1):
        _, factor = split_opacity(o, torch.full((len(o),), n))
        assert bool((factor.diff() < 0).all()), n


@pytest.mark.parametrize(("sensor", "low", "high"), [(0, 1 - 1e-6, 1 + 1e-6), (1, 0.8, 1.0)])
def test_the_integral_across_is_kept_for_the_widest_view(sensor: int, low: float, high: float) -> None:
    """The other sensor loses some, and never wins any: one factor cannot suit both."""
    o, n = torch.tensor([[0.9, 0.3]], dtype=torch.float64), 4
    logits, factor = mcmc_split(torch.logit(o), torch.tensor([n]))
    x = torch.linspace(-30, 30, 200_001, dtype=torch.float64)
    alone = torch.trapezoid(o[0, sensor] * torch.exp(-0.5 * x * x), x)
    shared = torch.sigmoid(logits)[0, sensor]
    copies = torch.trapezoid(1 - (1 - shared * torch.exp(-0.5 * (x / factor) ** 2)) ** n, x)
    assert low < float(copies / alone) < high


def test_copies_of_what_one_sensor_does_not_see_stay_unseen_by_it() -> None:
    """The floor that keeps copies from being dead is for the greater opacity alone."""
    logits, _ = mcmc_split(torch.logit(torch.tensor([[0.9, 0.004], [1e-5, 0.02]])), torch.tensor([10, 51]))
    found = torch.sigmoid(logits)
    assert float(found[0, 1]) == pytest.approx(0.0004, rel=0.01) and float(found[1, 0]) < 2e-6
    assert float(found[1, 1]) == pytest.approx(DEAD_OPACITY, rel=1e-4)


def test_one_opacity_is_parted_as_split_opacity_says() -> None:
    o, n = torch.tensor([0.3, 0.9, 0.006]), torch.tensor([2, 7, 5])
    logits, factor = mcmc_split(torch.logit(o)[:, None], n)
    shared, expected = split_opacity(torch.sigmoid(torch.logit(o)), n)
    assert torch.equal(logits[:, 0], torch.logit(shared.clamp(min=DEAD_OPACITY, max=1 - 1e-6)))
    assert torch.equal(factor, expected)


def test_noise_leaves_gaussians_opaque_to_either_sensor() -> None:
    g = gaussians([(0.9, 1e-5), (1e-5, 0.9), (1e-5, 1e-5)])
    before = g.means.clone()
    add_noise(g, 1.0, generator())
    moved = (g.means - before).norm(dim=-1) / g.log_scales.exp().norm(dim=-1)
    assert moved[:2].max() < 1e-6 and moved[2] > 0.01


# ---- a run with and without


def configured(own: bool, **more: Any) -> Config:
    config = tiny_config(**more)
    config.model.lidar_opacity = own
    return config


def saved(state: TrainState, path: Path) -> Path:
    save_checkpoint(path, state.scene, state.optimizer, state.generator, state.config, {"step": 2, "seconds": 1.0}, [])
    return path


def run_before(path: Path) -> Path:
    """A run of a few steps, from before there was the key."""
    state, stages = tiny_state(configured(False)), reference_stages()
    for state.step in range(2):
        step(stages, state)
    content = torch.load(saved(state, path), weights_only=True)
    del content["config"]["model"]["lidar_opacity"]
    torch.save(content, path)
    return path


def resumed(path: Path, own: bool) -> TrainState:
    config = configured(own)
    config.train.resume = str(path)
    return make_state(config, tiny_capture(), CPU)


def moments(state: TrainState, name: str) -> dict[str, Tensor]:
    return state.optimizer.state[state.scene.parameters()[name]]


@pytest.mark.parametrize("own", [True, False])
def test_a_scene_starts_with_equal_opacities(own: bool) -> None:
    g = make_state(configured(own), tiny_capture(), CPU).scene.gaussians
    assert g.lidar_logits.shape == (len(g), LIDAR_VALUES + own)
    assert not own or torch.equal(g.lidar_logits[:, LIDAR_VALUES], g.opacity_logits)


@pytest.mark.parametrize("without", [{"train.lidar_rays": 0}, {"render": "gsplat"}], ids=str)
def test_without_rays_there_is_one_opacity(without: dict[str, Any]) -> None:
    config = configured(True)
    config.train.lidar_rays = without.get("train.lidar_rays", config.train.lidar_rays)
    config.render = without.get("render", config.render)
    assert make_state(config, tiny_capture(), CPU).scene.gaussians.lidar_logits.shape[1] == LIDAR_VALUES


def test_both_opacities_come_back_from_a_checkpoint(tmp_path: Path) -> None:
    state = tiny_state()
    with torch.no_grad():
        state.scene.gaussians.lidar_logits[:, LIDAR_VALUES] += 1.5
    found = scene_from_dict(load_checkpoint(saved(state, tmp_path / "checkpoint.pt"), "cpu")["scene"]).gaussians
    assert torch.equal(found.lidar_logits, state.scene.gaussians.lidar_logits)
    assert torch.equal(found.opacity_logits, state.scene.gaussians.opacity_logits)


def test_a_checkpoint_from_before_is_one_with_one_opacity(tmp_path: Path) -> None:
    content = load_checkpoint(run_before(tmp_path / "checkpoint.pt"), "cpu")
    assert content["config"]["model"]["lidar_opacity"] is False
    assert scene_from_dict(content["scene"]).gaussians.lidar_logits.shape[1] == LIDAR_VALUES
    state = resumed(tmp_path / "checkpoint.pt", own=False)
    step(reference_stages(), state)
    assert state.scene.gaussians.lidar_logits.shape[1] == LIDAR_VALUES


def test_it_may_go_on_with_two_which_start_equal_with_the_camera_s_moments(tmp_path: Path) -> None:
    path = run_before(tmp_path / "checkpoint.pt")
    one, two = resumed(path, own=False), resumed(path, own=True)
    g = two.scene.gaussians
    assert torch.equal(g.lidar_logits[:, :LIDAR_VALUES], one.scene.gaussians.lidar_logits)
    assert torch.equal(g.lidar_logits[:, LIDAR_VALUES], g.opacity_logits)
    for name in ("exp_avg", "exp_avg_sq"):
        found, camera = moments(two, "lidar_logits")[name], moments(two, "opacity_logits")[name]
        assert torch.equal(found[:, :LIDAR_VALUES], moments(one, "lidar_logits")[name])
        assert torch.equal(found[:, LIDAR_VALUES], camera) and camera.any()
    step(reference_stages(), two)
    assert not torch.equal(two.scene.gaussians.lidar_logits[:, LIDAR_VALUES], two.scene.gaussians.opacity_logits)


def test_before_the_first_update_there_are_no_moments_to_carry(tmp_path: Path) -> None:
    two = resumed(saved(tiny_state(configured(False)), tmp_path / "checkpoint.pt"), own=True)
    assert not two.optimizer.state and two.scene.gaussians.lidar_logits.shape[1] == LIDAR_VALUES + 1


def test_what_has_two_does_not_go_on_with_one(tmp_path: Path) -> None:
    path = saved(tiny_state(), tmp_path / "checkpoint.pt")
    with pytest.raises(UserError, match=r"was made with model\.lidar_opacity=true, but this run has false"):
        resumed(path, own=False)


def test_without_one_of_its_own_a_step_has_the_terms_and_gradients_of_one_opacity() -> None:
    """The test compares it with a step of two equal opacities: cameras and lidar share the gradient of one."""
    found = []
    for own in (False, True):
        state, result = tiny_state(configured(own)), {}

        def keep(state: TrainState, result: dict[str, Tensor] = result) -> None:
            result.update({n: p.grad.clone() for n, p in state.scene.parameters().items() if p.grad is not None})

        stages = reference_stages().replaced(optimize=keep, density=lambda stages, state: None)
        found.append((step(stages, state).terms, result))
    (terms, one), (more, two) = found
    assert "tie" not in terms and float(more["tie"]) == 0
    assert float(more["opacity"]) == pytest.approx(2 * float(terms["opacity"]), rel=1e-6)
    for name in ("image", "range", "intensity", "drop"):
        assert torch.equal(terms[name], more[name]), name
    both = two["opacity_logits"] + two["lidar_logits"][:, LIDAR_VALUES]
    weight = tiny_config().loss.opacity / len(both)  # which each opacity feels once, so that both feel it twice
    opacities = torch.sigmoid(tiny_state().scene.gaussians.opacity_logits.detach())
    torch.testing.assert_close(both - weight * opacities * (1 - opacities), one["opacity_logits"], rtol=1e-3, atol=1e-8)
