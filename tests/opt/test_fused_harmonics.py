# SPDX-License-Identifier: Apache-2.0
"""The option `fused_harmonics`: gradients that nobody writes lead where those that are written do, which is asked in float64; and where
they cannot be left out, they are written."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from recorder_standin import install
from rounding import assert_near
from stepping import assert_close, cramped, everything, no_sync_of, steps
from tiny_capture import tiny_config, tiny_shots, tiny_state
from torch import Tensor
from torch.nn import functional as F

from benchmarks.opt import bench_fused_harmonics
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import parameters_of
from nurec_lite.geometry.harmonics import sh_basis
from nurec_lite.native import ops
from nurec_lite.native.rank1_sh import Rank1ShGrad
from nurec_lite.opt.all import fused_adam
from nurec_lite.training.density import by_node, relocate
from nurec_lite.training.optim import replace_gaussians
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState
from nurec_lite.training.step import step

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
CPU = torch.device("cpu")
BELOW = ("fused_interp", "fused_adam", "fused_colour")
BETAS, EPSILON = (0.9, 0.999), 1e-15
NONE = slice(0, 0)


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


# ---- the update


def optimizers(
    n: int, bands: int, device: str
) -> tuple[torch.optim.Adam, torch.optim.Adam]:  # ours, torch's in float64
    """Optimizers of harmonics between other parameters."""
    shapes = {"means": (n, 3), "sh0": (n, 1, 3), "sh_rest": (n, bands - 1, 3), "lidar_logits": (n, 2)}
    values = {name: torch.randn(shape, device=device) for name, shape in shapes.items()}
    made = []
    for dtype in (torch.float32, torch.float64):
        groups = [
            {"params": [v.to(dtype).clone().requires_grad_()], "name": name, "lr": 0.01 * (k + 1)}
            for k, (name, v) in enumerate(values.items())
        ]
        made.append(torch.optim.Adam(groups, betas=BETAS, eps=EPSILON, fused=dtype == torch.float32))
    return made[0], made[1]


def parameters_in(optimizer: torch.optim.Adam) -> list[Tensor]:
    return [group["params"][0] for group in optimizer.param_groups]


def give(
    ours: torch.optim.Adam,
    plain: torch.optim.Adam,
    views: int = 1,
    without: slice = NONE,  # Gaussians without a product, but for the first half of them in the last of several views
) -> Rank1ShGrad:
    """Gives products of harmonics, which the plain optimizer gets written, and gradients of all others. Views lie apart, as in a message
    of ranks."""
    (means, sh0, sh_rest, lidar), exact = parameters_in(ours), parameters_in(plain)
    n, bands = len(sh0), 1 + sh_rest.shape[1]
    directions, colours = torch.randn(views, 6 * n + 5, device=means.device)[:, : 6 * n].view(views, 2, n, 3).unbind(1)
    directions.copy_(F.normalize(directions, dim=-1))
    colours[torch.rand_like(colours) < 0.4] = 0
    last = colours[-1, : without.stop // 2].clone()
    colours[:, without] = 0
    if views > 1:
        colours[-1, : without.stop // 2] = last
    product = (sh_basis(directions.double(), bands)[..., None] * colours.double()[:, :, None]).sum(0)
    assert product.shape == (n, bands, 3)
    means.grad, lidar.grad = torch.randn_like(means), torch.randn_like(lidar)
    given = means.grad.double(), product[:, :1].clone(), product[:, 1:].clone(), lidar.grad.double()
    for p, gradient in zip(exact, given, strict=True):
        p.grad = gradient
    return Rank1ShGrad((sh0, sh_rest), directions, colours)


def assert_same(ours: torch.optim.Adam, plain: torch.optim.Adam) -> None:
    for a, b in zip(parameters_in(ours), parameters_in(plain), strict=True):
        assert_near(a, b)
        mine, other = ours.state[a], plain.state[b]
        assert list(mine) == list(other) and float(mine["step"]) == float(other["step"])
        assert_near(mine["exp_avg"], other["exp_avg"])
        assert_near(mine["exp_avg_sq"], other["exp_avg_sq"])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bands", [1, 4, 9, 16])
@pytest.mark.parametrize("n", [0, 1, 31, 33, 64, 113, 259, 1025])
def test_steps_are_those_of_written_gradients(n: int, bands: int, device: str) -> None:
    """Several; sizes about those of a block."""
    ours, plain = optimizers(n, bands, device)
    for _ in range(4):
        given = give(ours, plain)
        fused_adam.update(ours, outer=given)
        plain.step()
        assert_same(ours, plain)
        assert all(p.grad is None for p in given.harmonics)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bands, views", [(1, 2), (4, 2), (4, 3), (9, 2), (16, 2), (16, 7)])
def test_products_of_several_views_are_added_up(bands: int, views: int, device: str) -> None:
    ours, plain = optimizers(259, bands, device)
    for written in (False, False, True):
        given = give(ours, plain, views)
        if written:
            given.write()
        fused_adam.update(ours, outer=None if written else given)
        plain.step()
        for p in given.harmonics:
            p.grad = None
        assert_same(ours, plain)


@pytest.mark.parametrize("device", DEVICES)
def test_moments_that_start_anywhere(device: str) -> None:
    """They start in the middle of a row that is read as a vector."""
    ours, plain = optimizers(70, 16, device)
    given = give(ours, plain)
    fused_adam.update(ours, outer=given)
    plain.step()
    for name in ("exp_avg", "exp_avg_sq"):
        for p in given.harmonics:
            longer = torch.cat([torch.zeros(3, device=device), ours.state[p][name].flatten()])
            ours.state[p][name] = longer[3:].view_as(p)
    fused_adam.update(ours, outer=give(ours, plain))
    plain.step()
    assert_same(ours, plain)


@pytest.mark.parametrize("device", DEVICES)
def test_a_failed_step_changes_nothing(device: str) -> None:
    ours, plain = optimizers(67, 16, device)
    fused_adam.update(ours, torch.zeros((), device=device), outer=give(ours, plain))
    plain.step()
    assert_same(ours, plain)
    fused_adam.update(ours, torch.ones((), device=device), outer=give(ours, plain))
    assert_same(ours, plain)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bands, views", [(9, 1), (16, 1), (16, 2), (4, 3), (1, 1)])
def test_touched_only(bands: int, views: int, device: str) -> None:
    """Rows without a gradient stay, with their moments; all others change as ever. Some blocks have no gradient at all, one of them in all
    views but the last."""
    ours, plain = optimizers(700, bands, device)
    fused_adam.update(ours, outer=give(ours, plain, views))
    plain.step()
    before = [t.detach().clone() for p in parameters_in(plain) for t in (p, plain.state[p]["exp_avg"])]
    given = give(ours, plain, views, without=slice(0, 520))
    fused_adam.update(ours, outer=given, touched_only=("sh0", "sh_rest"))
    plain.step()
    for k in (1, 2):
        a, b = parameters_in(ours)[k], parameters_in(plain)[k]
        still = (given.colours == 0).all(0)[:, None].expand_as(a)
        assert_near(a, torch.where(still, before[2 * k], b))
        assert_near(ours.state[a]["exp_avg"], torch.where(still, before[2 * k + 1], plain.state[b]["exp_avg"]))
    assert_near(parameters_in(ours)[3], parameters_in(plain)[3])


def test_another_gradient_is_added() -> None:
    ours, plain = optimizers(35, 4, "cpu")
    given = give(ours, plain)
    own = torch.randn_like(given.harmonics[1])
    given.harmonics[1].grad = own.clone()
    parameters_in(plain)[2].grad += own.double()
    fused_adam.update(ours, outer=given)
    plain.step()
    assert_same(ours, plain)


def test_neither_a_gradient_nor_a_product() -> None:
    """Is left alone, and has no moments."""
    ours, plain = optimizers(5, 4, "cpu")
    give(ours, plain)
    fused_adam.update(ours)
    means, sh0, _, _ = parameters_in(ours)
    assert means in ours.state and sh0 not in ours.state


# ---- the option


def stages_of(*names: str, base: Stages | None = None, **parameters: dict[str, Any]) -> Stages:
    given = {name: parameters_of(name) | parameters.get(name, {}) for name in names}
    return build_stages(given, base or base_stages("native", CPU))


def own_of(*above: str, **parameters: dict[str, Any]) -> Stages:
    return stages_of(*BELOW, "fused_harmonics", *above, **parameters)


def gradients_of(stages: Stages, state: TrainState) -> dict[str, Tensor | None]:
    """Gradients of one step."""
    found: dict[str, Tensor | None] = {}
    optimize = stages.update.optimize

    def look(state: TrainState) -> None:
        found.update({group["name"]: group["params"][0].grad for group in state.optimizer.param_groups})
        optimize(state)

    step(stages.replaced(optimize=look), state)
    return found


def test_it_needs_two_others_before_it() -> None:
    stages = own_of()
    assert stages.plan is not None and stages.plan.rank1_sh is not None
    assert stages.update.optimize.handover is stages.plan.rank1_sh  # type: ignore[attr-defined]
    with pytest.raises(OptionError, match="requires 'fused_adam'"):
        stages_of("fused_interp", "fused_colour", "fused_harmonics")
    with pytest.raises(OptionError, match="name 'fused_adam' first"):
        stages_of("fused_interp", "fused_colour", "fused_harmonics", "fused_adam")
    with pytest.raises(OptionError, match="cannot run here: it changes compiled kernels"):
        stages_of(*BELOW, "fused_harmonics", base=base_stages("reference", CPU))


def test_nobody_writes_the_gradient_and_the_update_is_the_same() -> None:
    ours, plain = tiny_state(), tiny_state()
    found, wanted = gradients_of(own_of(), ours), gradients_of(stages_of(*BELOW), plain)
    assert {name for name in wanted if found[name] is None and wanted[name] is not None} == {"sh0", "sh_rest"}
    mine, other = everything(ours), everything(plain)
    assert mine.keys() == other.keys()
    for name, value in mine.items():
        if "exp_avg" in name:
            assert_near(value, other[name], 1e-4)
        else:
            torch.testing.assert_close(value, other[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("above", [(), ("no_sync", "fused_activate")], ids=str)
def test_steps_with_relocations_are_those_without_it(above: tuple[str, ...]) -> None:
    """At steps 3, 7 and 11, some with growth, some where the tensors lie."""
    ours, plain = tiny_state(), tiny_state()
    steps(own_of(*above), ours, 4)
    steps(stages_of(*BELOW, *above), plain, 4)
    assert_close(ours, plain, 1e-3, 1e-4)
    steps(own_of(*above), ours, 10)
    assert all(value.isfinite().all() for value in everything(ours).values())
    assert len(ours.scene.gaussians) > len(tiny_state().scene.gaussians)


def test_updates_after_a_relocation_find_the_new_tensors() -> None:
    """Grown by the same draws."""
    ours, plain = tiny_state(), tiny_state()
    stages = {"ours": own_of(), "plain": stages_of(*BELOW)}
    for number in range(3):
        for state, own in ((ours, stages["ours"]), (plain, stages["plain"])):
            shots = own.feed.fetch(own, state)
            own.feed.schedule(own, state)
            own.update.learn(own, state, shots)
        if number == 1:
            moved = relocate(plain.scene.gaussians, 7, torch.Generator().manual_seed(0))
            assert moved is not None
            for state in (ours, plain):
                replace_gaussians(state.scene, state.optimizer, moved.in_order(by_node(moved)))
    assert len(ours.scene.gaussians) == len(plain.scene.gaussians) == len(tiny_state().scene.gaussians) + 7
    assert_close(ours, plain, 1e-3, 1e-3)


def test_a_step_that_failed_changes_nothing_and_is_done_again() -> None:
    stages = own_of("no_sync")
    state, before = tiny_state(), tiny_state()
    state.failed = torch.ones(())
    shots = stages.feed.fetch(stages, state)
    stages.update.learn(stages, state, shots)
    for name in ("sh0", "sh_rest"):
        assert torch.equal(getattr(state.scene.gaussians, name), getattr(before.scene.gaussians, name))
    plain, overflown = tiny_state(), tiny_state()
    steps(own_of("no_sync"), plain, 6)
    tight = cramped(own_of("no_sync"), {1, 2})
    steps(tight, overflown, 6)
    assert no_sync_of(tight).redone >= 2
    assert_close(overflown, plain, 1e-4, 1e-6)


def test_it_goes_with_recorded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    below = ("collect_once", "no_sync", "fused_ssim", "fused_sky", "fused_activate")
    plain, graphed = tiny_state(), tiny_state()
    stages = own_of(*below, "cuda_graph")
    steps(own_of(*below), plain, 5)
    steps(stages, graphed, 5)
    assert_close(graphed, plain, 1e-4, 1e-6)
    steps(stages, graphed, 25)
    assert stages.update.learn.launched >= 6  # type: ignore[attr-defined]
    assert all(value.isfinite().all() for value in everything(graphed).values())


def test_poses_that_are_learned_and_all_that_a_scene_learns() -> None:
    config = tiny_config()
    config = replace(config, model=replace(config.model, calibrate=True, bilateral_grid=[3, 2, 2], lidar_opacity=True))
    ours, plain = tiny_state(config), tiny_state(config)
    steps(own_of(), ours, 3)
    steps(stages_of(*BELOW), plain, 3)
    assert_close(ours, plain, 1e-3, 1e-3)


@pytest.mark.parametrize("degree", range(4))
def test_any_degree(degree: int) -> None:
    ours, plain = tiny_state(), tiny_state()
    for state in (ours, plain):
        g = state.scene.gaussians
        cut = g.sh_rest.detach()[:, : (degree + 1) ** 2 - 1].clone().requires_grad_()
        (group,) = (group for group in state.optimizer.param_groups if group["name"] == "sh_rest")
        g.sh_rest, group["params"][0] = cut, cut
    steps(own_of(), ours, 2)
    steps(stages_of(*BELOW), plain, 2)
    assert_close(ours, plain, 1e-3, 1e-4)


def test_gaussians_without_a_gradient_stay_with_touched_only() -> None:
    touched = {"fused_adam": {"touched_only": True}}
    ours, plain = tiny_state(), tiny_state()
    steps(own_of(**touched), ours, 3)
    steps(stages_of(*BELOW, **touched), plain, 3)
    assert_close(ours, plain, 1e-3, 1e-3)


# ---- where gradients must be written


@pytest.mark.parametrize("images", [(), (0, 1)], ids=["no image", "two images"])
def test_a_step_of_another_number_of_images_writes(images: tuple[int, ...]) -> None:
    """The same numbers, but for the Gaussians that no tile looks at, which the renderer gathers no more."""
    ours, plain = tiny_state(), tiny_state()
    for state, stages in ((ours, own_of()), (plain, stages_of(*BELOW))):
        stages.update.learn(stages, state, tiny_shots(images, (0,)))
    assert_close(ours, plain, 1e-5, 1e-6)


def test_it_goes_with_batch() -> None:
    state, stages = tiny_state(), own_of("batch", batch={"images": 2})
    state.plan = stages.feed.frames(state.plan)
    found = gradients_of(stages, state)
    assert found["sh0"] is not None and found["sh_rest"] is not None


def test_after_options_that_add_gradients_up_it_does_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def everywhere(state: TrainState) -> None:
        """Products of several processes."""

    first = base_stages("native", CPU).swap("several_gpus", reduce=everywhere)
    with caplog.at_level("WARNING"):
        stages = stages_of(*BELOW, "fused_harmonics", base=first)
    assert "fused_harmonics is off: 'several_gpus' exchanges the gradients that it would not write" in caplog.text
    assert stages.plan is not None and stages.plan.rank1_sh is None
    assert gradients_of(stages, tiny_state())["sh_rest"] is not None
    with pytest.raises(OptionError, match="name 'several_gpus' first"):
        own_of().swap("several_gpus", reduce=everywhere)


# ---- its benchmark

SMALL = ["--device", "cpu", "--sizes", "500x30", "--rounds", "2", "--warmup", "1", "--copy-mib", "1"]


def test_the_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert bench_fused_harmonics.main([*SMALL, "--out", str(out)]) == 0
    report = json.loads(out.read_text())
    assert {(row["version"], row["on"]) for row in report["rows"]} == {
        (version, f"500x30 {what}") for version in ("dense", "fused") for what in ("backward", "update", "both")
    }
    least = {what: bench_fused_harmonics.least_bytes("500x30", what) for what in ("backward", "update", "both")}
    assert least["both"] == least["backward"] + least["update"] and least["backward"] == 500 * 252 + 150 * 8
    assert "fused" in capsys.readouterr().out


def test_the_benchmark_does_not_time_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    backward = bench_fused_harmonics.backward

    def wrong(version: str, *rest: Any) -> list[Tensor]:
        return [1.01 * t if version == "dense" else t for t in backward(version, *rest)]

    monkeypatch.setattr(bench_fused_harmonics, "backward", wrong)
    assert bench_fused_harmonics.main([*SMALL, "--out", str(tmp_path / "out.json")]) == 1
    report = json.loads((tmp_path / "out.json").read_text())
    assert list(report["disagreements"]) == ["dense, 500x30"]
