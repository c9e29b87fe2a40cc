# SPDX-License-Identifier: Apache-2.0
"""The option `amp`: moments of harmonics are bfloat16, and stay it through relocations, checkpoints, and steps whose gradients are written.
tests/native/test_short_moments.py has the numbers of the update."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from recorder_standin import install
from stepping import assert_close, cramped, everything, no_sync_of, steps
from tiny_capture import tiny_capture, tiny_config, tiny_shots, tiny_state

from benchmarks.opt import bench_amp
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import parameters_of
from nurec_lite.native import ops
from nurec_lite.opt.all.fused_adam import FusedAdam
from nurec_lite.opt.lab import amp
from nurec_lite.training.checkpoint import load_checkpoint, save_checkpoint
from nurec_lite.training.density import by_node, relocate
from nurec_lite.training.optim import MOMENTS, replace_gaussians
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState

CPU = torch.device("cpu")
BELOW = ("fused_interp", "fused_adam", "fused_colour", "fused_harmonics")
UNIT = 2.0**-7  # between two neighbours, at most, as a part of either
SHORT, WHOLE = torch.bfloat16, torch.float32


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


# ---- the option


def stages_of(*names: str, base: Stages | None = None, **parameters: dict[str, Any]) -> Stages:
    given = {name: parameters_of(name) | parameters.get(name, {}) for name in names}
    return build_stages(given, base or base_stages("native", CPU))


def own_of(*above: str, **parameters: dict[str, Any]) -> Stages:
    return stages_of(*BELOW, "amp", *above, **parameters)


def types_of(state: TrainState) -> dict[str, torch.dtype]:
    """Types of all tensors that have moments; shapes and devices are those of the parameters."""
    found = {}
    for group in state.optimizer.param_groups:
        (parameter,) = group["params"]
        kept = state.optimizer.state.get(parameter, {})
        assert parameter.dtype == WHOLE and all(kept[name].shape == parameter.shape for name in MOMENTS if kept)
        found |= {f"{group['name']} {name}": kept[name].dtype for name in MOMENTS if kept}
    return found


def assert_short(state: TrainState) -> None:
    """Those of harmonics, and no others."""
    short = {name for name, dtype in types_of(state).items() if dtype == SHORT}
    assert short == {f"{name} {key}" for name in amp.SHORT for key in MOMENTS}
    assert all(value.isfinite().all() for value in everything(state).values())


def test_it_needs_others_before_it() -> None:
    assert isinstance(own_of().update.optimize, FusedAdam) and own_of().update.optimize.handover is not None
    with pytest.raises(OptionError, match="requires 'fused_harmonics'"):
        stages_of("fused_interp", "fused_adam", "fused_colour", "amp")
    with pytest.raises(OptionError, match="name 'fused_adam' first"):
        stages_of("amp", *BELOW)
    with pytest.raises(OptionError, match="cannot run here: it changes compiled kernels"):
        stages_of(*BELOW, "amp", base=base_stages("reference", CPU))


def test_fused_harmonics_may_come_after_it() -> None:
    stages = stages_of("fused_interp", "fused_adam", "fused_colour", "amp", "fused_harmonics")
    state = tiny_state()
    steps(stages, state, 1)
    assert_short(state)


def test_steps_are_those_without_it_but_for_8_bits() -> None:
    ours, plain = tiny_state(), tiny_state()
    steps(own_of(), ours, 3)
    steps(stages_of(*BELOW), plain, 3)
    assert_short(ours)
    mine, other = ours.scene.parameters(), plain.scene.parameters()
    for name in amp.SHORT:
        rate = next(g["lr"] for g in ours.optimizer.param_groups if g["name"] == name)
        assert 0 < float((mine[name] - other[name]).detach().abs().max()) < 0.5 * rate
    torch.testing.assert_close(mine["means"], other["means"], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("above", [(), ("no_sync", "fused_activate")], ids=str)
def test_relocations_and_growth_keep_the_type(above: tuple[str, ...]) -> None:
    """At steps 3, 7 and 11, some with growth, some where the tensors lie."""
    state = tiny_state()
    steps(own_of(*above), state, 14)
    assert len(state.scene.gaussians) > len(tiny_state().scene.gaussians)
    assert_short(state)


def test_moments_follow_a_relocation() -> None:
    state = tiny_state()
    steps(own_of(), state, 2)
    old = state.optimizer.state[state.scene.gaussians.sh_rest]["exp_avg_sq"].clone()
    moved = relocate(state.scene.gaussians, 7, torch.Generator().manual_seed(0))
    assert moved is not None
    moved = moved.in_order(by_node(moved))
    replace_gaussians(state.scene, state.optimizer, moved)
    new, known = state.optimizer.state[state.scene.gaussians.sh_rest]["exp_avg_sq"], ~moved.anew
    assert new.dtype == SHORT and torch.equal(new[known], old[moved.source[known]]) and not new[~known].any()


@pytest.mark.parametrize("degree", range(4))
def test_any_degree(degree: int) -> None:
    state = tiny_state()
    g = state.scene.gaussians
    cut = g.sh_rest.detach()[:, : (degree + 1) ** 2 - 1].clone().requires_grad_()
    (group,) = (group for group in state.optimizer.param_groups if group["name"] == "sh_rest")
    g.sh_rest, group["params"][0] = cut, cut
    steps(own_of(), state, 2)
    assert_short(state)


@pytest.mark.parametrize("images", [(), (0, 1)], ids=["no image", "two images"])
def test_steps_of_another_number_of_images(images: tuple[int, ...]) -> None:
    """Gradients are written, or there are none."""
    state, stages = tiny_state(), own_of()
    stages.update.learn(stages, state, tiny_shots((0,), (0,)))
    before = state.scene.gaussians.sh_rest.detach().clone()
    stages.update.learn(stages, state, tiny_shots(images, (0,)))
    assert_short(state)
    assert torch.equal(before, state.scene.gaussians.sh_rest) == (not images)


def test_it_goes_with_batch() -> None:
    state, stages = tiny_state(), own_of("batch", batch={"images": 2})
    state.plan = stages.feed.frames(state.plan)
    steps(stages, state, 2)
    assert_short(state)


def test_where_fused_harmonics_stands_aside() -> None:
    first = base_stages("native", CPU).swap("several_gpus", reduce=lambda state: None)
    state = tiny_state()
    steps(stages_of(*BELOW, "amp", base=first), state, 2)
    assert_short(state)


def test_a_step_that_failed_changes_nothing_and_is_done_again() -> None:
    stages, state = own_of("no_sync"), tiny_state()
    state.failed = torch.ones(())
    stages.update.learn(stages, state, stages.feed.fetch(stages, state))
    for name in amp.SHORT:
        assert torch.equal(getattr(state.scene.gaussians, name), getattr(tiny_state().scene.gaussians, name))
    plain, overflown = tiny_state(), tiny_state()
    steps(own_of("no_sync"), plain, 6)
    tight = cramped(own_of("no_sync"), {1, 2})
    steps(tight, overflown, 6)
    assert no_sync_of(tight).redone >= 2
    assert_close(overflown, plain, 2 * UNIT, 1e-4)


def test_it_goes_with_recorded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    below = ("collect_once", "no_sync", "fused_ssim", "fused_sky", "fused_activate")
    state, stages = tiny_state(), own_of(*below, "cuda_graph")
    steps(stages, state, 30)
    assert stages.update.learn.launched >= 6  # type: ignore[attr-defined]
    assert_short(state)


# ---- checkpoints


def saved(names: tuple[str, ...], path: Path) -> TrainState:
    """A checkpoint after three steps without relocation."""
    state = tiny_state()
    steps(stages_of(*names), state, 3)
    counters = {"step": state.step, "seconds": 1.0}
    save_checkpoint(path, state.scene, state.optimizer, state.generator, state.config, counters, [])
    return state


def resumed(path: Path) -> TrainState:
    config = tiny_config()
    return make_state(replace(config, train=replace(config.train, resume=str(path))), tiny_capture(), CPU)


def test_a_checkpoint_keeps_them(tmp_path: Path) -> None:
    state = saved((*BELOW, "amp"), tmp_path / "checkpoint.pt")
    kept = load_checkpoint(tmp_path / "checkpoint.pt", "cpu")["optimizer"]["state"]
    for k, group in enumerate(state.optimizer.param_groups):
        for name in MOMENTS:
            moment = state.optimizer.state[group["params"][0]][name]
            assert kept[k][name].dtype == moment.dtype == (SHORT if group["name"] in amp.SHORT else WHOLE)
            assert torch.equal(kept[k][name], moment)


def test_a_run_that_goes_on_is_the_same(tmp_path: Path) -> None:
    state = saved((*BELOW, "amp"), tmp_path / "checkpoint.pt")
    again = resumed(tmp_path / "checkpoint.pt")
    steps(own_of(), state, 1)
    steps(own_of(), again, 1)
    assert_short(again)
    assert_close(again, state, 2 * UNIT, 1e-3)


@pytest.mark.parametrize("after", [(), ("fused_adam",), BELOW], ids=str)
def test_it_goes_on_without(after: tuple[str, ...], tmp_path: Path) -> None:
    state = saved((*BELOW, "amp"), tmp_path / "checkpoint.pt")
    again = resumed(tmp_path / "checkpoint.pt")
    mine, other = everything(again), everything(state)
    assert all(torch.equal(mine[name], other[name].to(mine[name].dtype)) for name in mine)
    steps(stages_of(*after), again, 1)
    assert set(types_of(again).values()) == {WHOLE}
    assert float(again.optimizer.state[again.scene.gaussians.sh0]["step"]) == 4


@pytest.mark.parametrize("before", [(), BELOW], ids=str)
def test_it_goes_on_from_a_run_without(before: tuple[str, ...], tmp_path: Path) -> None:
    state = saved(before, tmp_path / "checkpoint.pt")
    again = resumed(tmp_path / "checkpoint.pt")
    amp.shorten(again.optimizer)
    for a, b in zip(again.optimizer.param_groups[0]["params"], state.optimizer.param_groups[0]["params"], strict=True):
        assert torch.equal(again.optimizer.state[a]["exp_avg"], state.optimizer.state[b]["exp_avg"])
    short = again.optimizer.state[again.scene.gaussians.sh_rest]["exp_avg_sq"]
    assert torch.equal(short, state.optimizer.state[state.scene.gaussians.sh_rest]["exp_avg_sq"].bfloat16())
    steps(own_of(), again, 1)
    assert_short(again)
    assert float(again.optimizer.state[again.scene.gaussians.sh0]["step"]) == 4


# ---- its benchmark

SMALL = ["--device", "cpu", "--gaussians", "50", "--rounds", "2", "--warmup", "1", "--copy-mib", "1"]


def test_the_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert bench_amp.main([*SMALL, "--out", str(out)]) == 0
    rows = {(row["version"], row["on"].split()[-1]): row["least_bytes"] for row in json.loads(out.read_text())["rows"]}
    assert rows == {
        ("float32", "outer"): 50 * (48 * 24 + 24), ("bfloat16", "outer"): 50 * (48 * 16 + 24),
        ("float32", "written"): 50 * 48 * 28, ("bfloat16", "written"): 50 * 48 * 20,
    }  # fmt: skip
    assert "bfloat16" in capsys.readouterr().out


def test_the_benchmark_does_not_time_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    right = bench_amp.call_of
    monkeypatch.setattr(bench_amp, "call_of", lambda kind, u: (lambda: None) if kind == "outer" else right(kind, u))
    assert bench_amp.main([*SMALL, "--out", str(tmp_path / "out.json")]) == 1
    report = json.loads((tmp_path / "out.json").read_text())
    assert list(report["disagreements"]) == ["float32, 50 Gaussians, outer", "bfloat16, 50 Gaussians, outer"]
    assert {row["on"] for row in report["rows"]} == {"50 Gaussians, written"}
