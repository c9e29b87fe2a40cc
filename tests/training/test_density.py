# SPDX-License-Identifier: Apache-2.0
"""Density control: opacities that are split, relocation, growth, and noise."""

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, getcontext
from math import comb
from typing import Any

import pytest
import torch
from tiny_capture import tiny_config, tiny_state
from torch import Tensor

from nurec_lite.config import DensityConfig
from nurec_lite.geometry.se3 import quat_conjugate, quat_normalize, quat_rotate
from nurec_lite.scene.boxes import outside_boxes
from nurec_lite.scene.gaussians import LIDAR_VALUES, THINNEST, Gaussians
from nurec_lite.training.baseline import optimize, reference_stages
from nurec_lite.training.density import (
    DEAD_OPACITY,
    MAX_COPIES,
    Relocation,
    add_noise,
    by_node,
    relocate,
    relocate_masked,
    split_opacity,
)
from nurec_lite.training.optim import replace_gaussians
from nurec_lite.training.state import TrainState
from nurec_lite.training.step import step

getcontext().prec = 60


def gaussians(opacities: list[float]) -> Gaussians:
    """Random ones; the node of Gaussian i is i % 3."""
    n = len(opacities)
    make = torch.Generator().manual_seed(1)
    return Gaussians(
        means=torch.randn(n, 3, generator=make),
        quats=torch.randn(n, 4, generator=make),
        log_scales=torch.randn(n, 3, generator=make) - 2,
        opacity_logits=torch.logit(torch.tensor(opacities)),
        sh0=torch.randn(n, 1, 3, generator=make),
        sh_rest=torch.randn(n, 3, 3, generator=make),
        lidar_logits=torch.randn(n, 2, generator=make),
        node=torch.arange(n) % 3,
    )


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(params=[relocate, relocate_masked], ids=lambda f: f.__name__, autouse=True)
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relocation that counts the dead, and relocation that masks them."""
    monkeypatch.setattr(sys.modules[__name__], "chosen", request.param)


chosen: Callable[..., Relocation | None] = relocate


def moved(g: Gaussians, n_new: int = 0, seed: int = 0, **more: Any) -> Relocation:
    relocation = chosen(g, n_new, generator(seed), **more)
    assert relocation is not None
    return relocation


def values(moved_: Relocation, g: Gaussians) -> dict[str, Tensor]:
    """Values of the new store."""
    return {name: moved_.value(name, getattr(g, name)) for name in Gaussians.trained()}


def adapt(state: TrainState) -> None:
    """Density control with either relocation."""
    stages = reference_stages().replaced(relocate=chosen)
    stages.update.density(stages, state)


# Splitting


def scale_factor(o: float, n: int) -> float:
    """Equation 9 of the paper as it stands there, in 60 digits."""
    shared = 1 - (1 - Decimal(o)) ** (Decimal(1) / n)
    total = sum(
        (-1) ** k * comb(i - 1, k) * shared ** (k + 1) / Decimal(k + 1).sqrt()
        for i in range(1, n + 1)
        for k in range(i)
    )
    return float(Decimal(o) / Decimal(total))


def test_copies_together_are_as_opaque_as_the_one() -> None:
    o = torch.tensor([0.01, 0.3, 0.5, 0.9, 0.99, 0.9999], dtype=torch.float64)[:, None].expand(6, MAX_COPIES)
    n = torch.arange(1, MAX_COPIES + 1).expand(6, MAX_COPIES)
    shared, _ = split_opacity(o.reshape(-1), n.reshape(-1))
    torch.testing.assert_close(1 - (1 - shared) ** n.reshape(-1), o.reshape(-1), rtol=1e-9, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_copy_changes_nothing(dtype: torch.dtype) -> None:
    o = torch.tensor([0.006, 0.2, 0.5, 0.99], dtype=dtype)
    shared, factor = split_opacity(o, torch.ones(4, dtype=torch.int64))
    assert shared.dtype == factor.dtype == dtype
    torch.testing.assert_close(shared, o)
    torch.testing.assert_close(factor, torch.ones_like(o))


@pytest.mark.parametrize("n", [1, 2, 3, 10, 30, MAX_COPIES])
def test_scales_follow_the_double_sum_of_the_paper(n: int) -> None:
    opacities = [0.006, 0.1, 0.5, 0.9, 0.999, 0.999999]
    _, factor = split_opacity(torch.tensor(opacities, dtype=torch.float64), torch.full((6,), n))
    expected = torch.tensor([scale_factor(o, n) for o in opacities], dtype=torch.float64)
    torch.testing.assert_close(factor, expected, rtol=1e-7, atol=0)


def test_numbers_of_copies_may_differ_between_gaussians() -> None:
    o, n = torch.full((4,), 0.7, dtype=torch.float64), torch.tensor([1, 5, 2, 51])
    together = split_opacity(o, n)
    for i in range(4):
        alone = split_opacity(o[i : i + 1], n[i : i + 1])
        torch.testing.assert_close(torch.stack([t[i] for t in together]), torch.stack([t[0] for t in alone]))


def test_the_integral_along_a_ray_through_copies_is_kept() -> None:
    """Equation 9 has this purpose: the alpha of n shrunk copies, integrated across the Gaussian, is that of the one."""
    o, n = 0.8, 4
    shared, factor = (t.item() for t in split_opacity(torch.tensor([o], dtype=torch.float64), torch.tensor([n])))
    x = torch.linspace(-30, 30, 200_001, dtype=torch.float64)
    alone = o * torch.exp(-0.5 * x * x)
    copies = 1 - (1 - shared * torch.exp(-0.5 * (x / factor) ** 2)) ** n
    assert torch.trapezoid(copies, x).item() == pytest.approx(torch.trapezoid(alone, x).item(), rel=1e-6)


def test_opaque_gaussians_and_none_at_all_are_fine() -> None:
    shared, factor = split_opacity(torch.ones(2), torch.tensor([1, 51]))
    assert shared.isfinite().all() and factor.isfinite().all() and (shared <= 1).all() and (factor > 0).all()
    assert len(split_opacity(torch.zeros(0), torch.zeros(0, dtype=torch.int64))[0]) == 0


# Relocation


def test_the_dead_land_on_the_living() -> None:
    g = gaussians([0.5, 0.001, 0.8, 0.004, 0.3, 0.002])
    moved_ = moved(g)
    dead = [1, 3, 5]
    assert len(moved_.node) == len(g)
    where = torch.cdist(values(moved_, g)["means"][dead], g.means).argmin(1)
    assert set(where.tolist()) <= {0, 2, 4}
    for name in ("means", "quats", "sh0", "sh_rest", "lidar_logits"):
        assert torch.equal(values(moved_, g)[name][dead], getattr(g, name)[where])
    assert torch.equal(moved_.node[dead], g.node[where])
    living = [0, 2, 4]
    for name in ("means", "quats", "sh0", "sh_rest", "lidar_logits"):
        assert torch.equal(values(moved_, g)[name][living], getattr(g, name)[living])
    assert (torch.sigmoid(values(moved_, g)["opacity_logits"]) >= 0.99 * DEAD_OPACITY).all()


def test_copies_share_the_opacity_and_shrink() -> None:
    g = gaussians([0.6, 0.001, 0.001])
    moved_ = moved(g)
    shared, factor = split_opacity(torch.tensor([0.6]), torch.tensor([3]))
    torch.testing.assert_close(torch.sigmoid(values(moved_, g)["opacity_logits"]), shared.expand(3))
    expected = (g.log_scales[0] + factor.log()).expand(3, 3)
    torch.testing.assert_close(values(moved_, g)["log_scales"], expected)


def test_opaque_gaussians_are_copied_more_often() -> None:
    g = gaussians([0.9, 0.1, *[0.001] * 2000])
    moved_ = moved(g)
    on_first = (values(moved_, g)["means"][2:] == g.means[0]).all(-1).float().mean()
    assert on_first == pytest.approx(0.9, abs=0.03)


def test_very_many_copies_stay_finite() -> None:
    g = gaussians([0.9, *[0.001] * 500])
    found = values(moved(g, n_new=300), g)
    assert all(value.isfinite().all() and len(value) == 801 for value in found.values())


def test_new_ones_are_appended_and_follow_their_parent_s_node() -> None:
    g = gaussians([0.5, 0.7, 0.2, 0.9])
    moved_ = moved(g, n_new=3)
    assert all(len(value) == 7 for value in values(moved_, g).values()) and len(moved_.source) == 7
    parent = torch.cdist(values(moved_, g)["means"][4:], g.means).argmin(1)
    assert torch.equal(moved_.node, torch.cat([g.node, g.node[parent]]))


def test_nothing_dead_and_nothing_new_changes_nothing() -> None:
    g = gaussians([0.5, 0.7, 0.2])
    moved_ = moved(g)
    assert all(torch.equal(value, getattr(g, name)) for name, value in values(moved_, g).items())
    assert torch.equal(moved_.node, g.node) and torch.equal(moved_.source, torch.arange(3))


def test_all_dead_is_none() -> None:
    assert relocate(gaussians([0.001, 0.004]), 5, generator()) is None


def test_if_all_are_dead_all_stay() -> None:
    g = gaussians([0.001, 0.004])
    relocation = relocate_masked(g, 2, generator())
    assert torch.equal(values(relocation, g)["means"][:2], g.means) and relocation.source[0] == 0
    assert torch.equal(values(relocation, g)["means"][2:], g.means[1:].expand(2, 3))
    assert all(value.isfinite().all() and len(value) == 4 for value in values(relocation, g).values())


def test_images_decide_where_copies_go_and_the_lidar_keeps_its_own_alive() -> None:
    """Half are seen by the lidar alone: none of them is dead, and none is copied."""
    g = gaussians([0.8] * 200 + [1e-5] * 200)
    g.lidar_logits = torch.cat([g.lidar_logits, torch.full((400, 1), 3.0)], dim=1)
    found = chosen(g, 300, generator())
    copied = found.anew
    assert int(copied[:200].sum()) > 100 and not copied[200:400].any() and len(found.source) == 700


def test_no_training_makes_a_gaussian_thinner_than_float_holds() -> None:
    state = tiny_state(tiny_config())
    state.scene.gaussians.log_scales.data[:7, 1] = -60.0
    step(reference_stages(), state)
    assert float(state.scene.gaussians.log_scales.detach().min()) == pytest.approx(math.log(THINNEST))


def test_weights_decide_together_with_opacity_whom_copies_follow() -> None:
    n = 4000
    g = gaussians([0.9, 0.3, 0.5, *[0.001] * n])
    weights = torch.tensor([1.0, 6.0, 0.0, *[50.0] * n])  # 0.9 : 1.8 : 0, and dead ones never
    relocation = moved(g, weights=weights)
    parent = torch.cdist(values(relocation, g)["means"][3:], g.means[:3]).argmin(1)
    share = torch.bincount(parent, minlength=3) / n
    assert torch.allclose(share, torch.tensor([1 / 3, 2 / 3, 0]), atol=0.03)  # 4 standard deviations


def test_jitter_moves_copies_by_their_parent_s_spread_and_nothing_else() -> None:
    n = 3000
    g = gaussians([0.9, 0.8, *[0.001] * n])
    relocation = moved(g, weights=torch.tensor([1.0, 0.0, *[1.0] * n]), jitter=0.5)
    means = values(relocation, g)["means"]
    assert torch.equal(means[1], g.means[1])  # nobody copied it
    around = quat_rotate(quat_conjugate(quat_normalize(g.quats[0])), torch.cat([means[:1], means[2:]]) - g.means[0])
    assert torch.allclose(around.std(0), 0.5 * g.log_scales[0].exp(), rtol=0.06)
    assert torch.allclose(around.mean(0), torch.zeros(3), atol=0.05 * float(g.log_scales[0].exp().max()))


def test_the_store_stays_in_the_order_of_the_nodes() -> None:
    g = gaussians([0.5, 0.7, 0.2, 0.9, 0.001, 0.3])
    before = moved(g, n_new=4)
    after = before.in_order(by_node(before))
    assert after.node.tolist() == sorted(before.node.tolist())
    for node in range(3):  # within a node as they were
        own = before.node == node
        new, old = values(after, g), values(before, g)
        assert all(torch.equal(new[n][after.node == node], old[n][own]) for n in old)
        assert torch.equal(after.source[after.node == node], before.source[own])
        assert torch.equal(after.anew[after.node == node], before.anew[own])


def test_training_keeps_the_store_in_order() -> None:
    state = tiny_state(tiny_config(density=DensityConfig(every=1, start=0.0, stop=1.0, cap=560, growth=1.05)))
    assert bool((state.scene.gaussians.node.diff() >= 0).all())
    n = len(state.scene.gaussians)
    adapt(state)
    node = state.scene.gaussians.node
    assert len(node) > n and bool((node.diff() >= 0).all()) and len(node.unique()) > 1


def test_unchanged_gaussians_are_their_own_source_and_changed_ones_begin_anew() -> None:
    g = gaussians([0.5, 0.001, 0.4, 0.3, 0.2, 0.1])
    moved_ = moved(g)
    changed = (values(moved_, g)["log_scales"] != g.log_scales).any(-1)
    assert changed.sum() == 2  # the dead one and the one it landed on
    assert torch.equal(moved_.anew, changed) and torch.equal(moved_.source[~changed], torch.arange(6)[~changed])


def test_relocation_is_reproducible() -> None:
    g = gaussians([0.5, 0.001, 0.8, 0.3] * 20)
    first, again, other = moved(g, 9, 4), moved(g, 9, 4), moved(g, 9, 5)
    assert all(torch.equal(value, values(again, g)[name]) for name, value in values(first, g).items())
    assert not torch.equal(first.changed["means"], other.changed["means"])


# With the optimizer


def trained_a_bit(**changes: float | None) -> TrainState:
    """Every parameter has moments."""
    config = tiny_config(density=replace(DensityConfig(every=1, start=0.0, stop=1.0, noise=0.0), **changes))
    state = tiny_state(config)
    torch.manual_seed(5)
    for p in state.scene.parameters().values():
        p.grad = torch.randn_like(p)
    optimize(state)
    return state


def moments(state: TrainState, name: str) -> tuple[Tensor, Tensor]:
    p = state.scene.parameters()[name]
    return state.optimizer.state[p]["exp_avg"].clone(), state.optimizer.state[p]["exp_avg_sq"].clone()


def test_moments_are_kept_for_the_unchanged_and_zero_for_the_changed() -> None:
    state = trained_a_bit()
    g = state.scene.gaussians
    with torch.no_grad():
        g.opacity_logits[::7] = -8.0
        g.lidar_logits[::7, LIDAR_VALUES] = -8.0
    before = {name: moments(state, name) for name in Gaussians.trained()}
    moved_ = moved(g, n_new=5)
    replace_gaussians(state.scene, state.optimizer, moved_)
    kept, new = ~moved_.anew, moved_.anew
    assert kept.any() and new.sum() > 5
    for name, old in before.items():
        for m, m_old in zip(moments(state, name), old, strict=True):
            assert m.shape == getattr(g, name).shape
            assert torch.equal(m[kept], m_old[moved_.source[kept]]) and not m[new].any()


def test_the_optimizer_holds_the_scene_s_own_tensors_afterwards() -> None:
    state = trained_a_bit()
    sky = moments(state, "sky")
    replace_gaussians(state.scene, state.optimizer, moved(state.scene.gaussians, n_new=5))
    held = {group["name"]: group["params"][0] for group in state.optimizer.param_groups}
    for name, parameter in state.scene.parameters().items():
        assert held[name] is parameter and parameter.requires_grad and parameter.is_leaf
    assert len(state.optimizer.state) == len(held)
    assert all(torch.equal(a, b) for a, b in zip(moments(state, "sky"), sky, strict=True))
    for p in state.scene.parameters().values():
        p.grad = torch.ones_like(p)
    optimize(state)  # and goes on


def test_before_the_first_step_there_are_no_moments_to_move() -> None:
    state = tiny_state()
    replace_gaussians(state.scene, state.optimizer, moved(state.scene.gaussians, n_new=5))
    assert not state.optimizer.state


def test_the_number_grows_to_the_cap_and_not_beyond() -> None:
    state = trained_a_bit(growth=1.5)
    n = len(state.scene.gaussians)
    cap = 2 * n
    state.config = replace(state.config, density=replace(state.config.density, cap=cap))
    sizes = []
    for _ in range(4):
        adapt(state)
        sizes.append(len(state.scene.gaussians))
    assert sizes == [int(1.5 * n), cap, cap, cap]
    assert all(len(getattr(state.scene.gaussians, f)) == cap for f in Gaussians.__dataclass_fields__)


def test_a_cap_below_the_number_removes_nothing() -> None:
    state = trained_a_bit(cap=10)
    n = len(state.scene.gaussians)
    adapt(state)
    assert len(state.scene.gaussians) == n


@pytest.mark.parametrize(
    ("step", "progress", "due"),
    [
        (3, 0.5, True),
        (4, 0.5, False),
        (2, 0.5, False),
        (3, 0.1, False),
        (3, 0.9, False),
        (7, 0.2, True),
        (7, 0.8, True),
    ],
)
def test_relocation_comes_at_its_steps_within_its_part_of_the_run(step: int, progress: float, due: bool) -> None:
    state = trained_a_bit(every=4, start=0.2, stop=0.8, cap=10_000, growth=1.1)
    state.step, state.progress = step, progress
    n = len(state.scene.gaussians)
    adapt(state)
    assert (len(state.scene.gaussians) > n) == due


# Noise


def noise_of(g: Gaussians, amount: float = 1.0, seed: int = 0) -> Tensor:
    before = g.means.clone()
    add_noise(g, amount, generator(seed))
    return g.means - before


def test_noise_moves_the_transparent_and_hardly_the_opaque() -> None:
    g = gaussians([1e-6] * 500 + [0.05] * 500 + [0.5] * 500)
    along = noise_of(g).norm(dim=-1) / g.log_scales.exp().norm(dim=-1)
    dead, faint, opaque = along.view(3, 500).mean(1)
    assert dead > 0.2
    assert 1e-3 * dead < faint < 0.05 * dead
    assert opaque < 1e-6


def test_noise_has_the_stated_deviation_along_the_axes_of_the_gaussian() -> None:
    n = 4000
    g = gaussians([1e-6] * n)
    g.quats[:] = torch.tensor([0.5, 0.1, -0.7, 0.4])
    g.log_scales[:] = torch.tensor([0.01, 0.3, 2.0]).log()
    q = quat_normalize(g.quats)
    q_inverse = q * torch.tensor([1.0, -1, -1, -1])
    local = quat_rotate(q_inverse, noise_of(g, amount=0.5))
    transparent = torch.sigmoid(torch.tensor(100 * DEAD_OPACITY))
    torch.testing.assert_close(local.std(0), 0.5 * transparent * torch.tensor([0.01, 0.3, 2.0]), rtol=0.05, atol=0)
    torch.testing.assert_close(local.mean(0), torch.zeros(3), rtol=0, atol=0.1)
    assert torch.corrcoef(local.T).triu(1).abs().max() < 0.06


def test_noise_is_reproducible_and_changes_nothing_but_means() -> None:
    first, again, other = (gaussians([0.004] * 20) for _ in range(3))
    a, b, c = noise_of(first, seed=1), noise_of(again, seed=1), noise_of(other, seed=2)
    assert torch.equal(a, b) and not torch.equal(a, c)
    plain = gaussians([0.004] * 20)
    assert all(
        torch.equal(getattr(first, f), getattr(plain, f)) for f in Gaussians.__dataclass_fields__ if f != "means"
    )


def test_noise_works_on_a_parameter_and_fades_with_the_rate_of_the_means() -> None:
    steps = []
    for progress in (0.0, 1.0):
        state = trained_a_bit(noise=1.0, start=2.0)
        state.progress = progress
        with torch.no_grad():
            state.scene.gaussians.opacity_logits.fill_(-12.0)
            state.scene.gaussians.lidar_logits[:, LIDAR_VALUES] = -12.0
        before = state.scene.gaussians.means.detach().clone()
        stages = reference_stages()
        stages.feed.schedule(stages, state)
        stages.update.noise(state)
        steps.append((state.scene.gaussians.means.detach() - before).norm())
    assert steps[1] / steps[0] == pytest.approx(state.config.lr.means_decay, rel=0.01)


def test_without_noise_nothing_moves() -> None:
    state = trained_a_bit(noise=0.0, start=2.0)
    before = state.scene.gaussians.means.detach().clone()
    reference_stages().update.noise(state)
    assert torch.equal(before, state.scene.gaussians.means)


# Gaussians that have left their box


def test_gaussians_outside_of_their_box() -> None:
    scene = tiny_state().scene
    sizes, node = scene.tracks.sizes, scene.gaussians.node
    k = int(node.max())
    own = torch.nonzero(node == k).squeeze(-1)
    assert not bool(outside_boxes(scene, 1.5)[own].any()) and not bool(outside_boxes(scene, 0.01)[node == 0].any())
    with torch.no_grad():
        scene.gaussians.means[own[0]] = 0.7 * sizes[k - 1] * torch.tensor([1.0, 0, 0])
    assert torch.nonzero(outside_boxes(scene, 1.3)).squeeze(-1).tolist() == [int(own[0])]
    assert not bool(outside_boxes(scene, 1.5).any())


def test_a_lost_gaussian_counts_as_dead() -> None:
    g = gaussians([0.9, 0.8, 0.7, 0.001])
    lost = torch.tensor([False, True, False, False])
    relocation = moved(g, lost=lost)
    changed = relocation.anew.tolist()
    assert changed[1] and changed[3]
    parents = g.node[torch.tensor([0, 2])].tolist()
    assert relocation.node[1] in parents and relocation.node[3] in parents


@pytest.mark.parametrize("box", [None, 1.2])
def test_density_control_brings_them_back(box: float | None) -> None:
    state = trained_a_bit(box=box, cap=1)
    far = int(state.scene.gaussians.node.max())
    own = state.scene.gaussians.node == far
    with torch.no_grad():
        state.scene.gaussians.means[own] += 50
        state.scene.gaussians.opacity_logits[:] = 2
    adapt(state)
    lost = outside_boxes(state.scene, 1.2)
    assert bool(lost.any()) == (box is None)
