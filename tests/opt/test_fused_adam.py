# SPDX-License-Identifier: Apache-2.0
"""The option `fused_adam`: parameters and moments are those of torch's Adam, through relocations, failed steps and checkpoints."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_capture import tiny_capture, tiny_config, tiny_state
from torch import Tensor

from benchmarks.opt import bench_fused_adam
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.native import ops
from nurec_lite.opt.all import fused_adam
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.training import baseline
from nurec_lite.training.checkpoint import load_checkpoint, save_checkpoint
from nurec_lite.training.density import by_node, relocate
from nurec_lite.training.optim import replace_gaussians
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState
from nurec_lite.training.step import step

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
OPTIONS = {"fused_adam": parameters_of("fused_adam")}
SHAPES = ((0, 3), (1,), (31, 3), (33,), (256, 4), (341, 3), (1025, 15, 3), (), (1023,))  # 1024 values are a block's
BETAS, EPSILON = (0.9, 0.999), 1e-15


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def optimizers(
    shapes: tuple[tuple[int, ...], ...], device: str
) -> tuple[torch.optim.Adam, torch.optim.Adam]:  # ours in float32, torch's in float64
    """Optimizers of equal parameters, each parameter a group with a rate of its own."""
    values = [torch.randn(shape, device=device) for shape in shapes]
    made = []
    for dtype in (torch.float32, torch.float64):
        groups = [
            {"params": [v.to(dtype).clone().requires_grad_()], "name": f"group {k}", "lr": 0.01 * (k + 1)}
            for k, v in enumerate(values)
        ]
        made.append(torch.optim.Adam(groups, betas=BETAS, eps=EPSILON, fused=dtype == torch.float32))
    return made[0], made[1]


def give_gradients(ours: torch.optim.Adam, plain: torch.optim.Adam, zeros: float = 0.3, size: float = 1.0) -> None:
    for a, b in zip(parameters_in(ours), parameters_in(plain), strict=True):
        gradient = size * torch.randn_like(a) * (torch.rand_like(a) >= zeros)
        a.grad, b.grad = gradient, gradient.double()


def parameters_in(optimizer: torch.optim.Adam) -> list[Tensor]:
    return [group["params"][0] for group in optimizer.param_groups]


def assert_same(ours: torch.optim.Adam, plain: torch.optim.Adam, part: float = 1e-5) -> None:
    """Parameters and moments, to a part of the largest of each."""
    for a, b in zip(parameters_in(ours), parameters_in(plain), strict=True):
        near(a, b, part)
        mine, other = ours.state[a], plain.state[b]
        assert list(mine) == list(other) and float(mine["step"]) == float(other["step"])
        near(mine["exp_avg"], other["exp_avg"], part)
        near(mine["exp_avg_sq"], other["exp_avg_sq"], part)


def near(a: Tensor, b: Tensor, part: float) -> None:
    a, b = a.detach(), b.detach()
    assert a.shape == b.shape and a.isfinite().all()
    if b.numel():
        assert float((a.double() - b).abs().max()) <= part * float(b.abs().max())


# ---- one update


@pytest.mark.parametrize("device", DEVICES)
def test_steps(device: str) -> None:
    """A dozen, over tensors of odd sizes, with rates that change."""
    ours, plain = optimizers(SHAPES, device)
    for number in range(12):
        for optimizer in (ours, plain):
            for group in optimizer.param_groups:
                group["lr"] *= 0.8
        give_gradients(ours, plain)
        fused_adam.update(ours)
        plain.step()
        assert_same(ours, plain)
        assert float(ours.state[parameters_in(ours)[0]]["step"]) == number + 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [1e-3, 1e-12, 1e12])
def test_gradients_of_any_size(size: float, device: str) -> None:
    """Gradients include such small ones that epsilon counts."""
    ours, plain = optimizers(((65, 3),), device)
    for _ in range(3):
        give_gradients(ours, plain, size=size)
        fused_adam.update(ours)
        plain.step()
    assert_same(ours, plain)


@pytest.mark.parametrize("device", DEVICES)
def test_what_had_no_gradient_for_many_steps(device: str) -> None:
    """Momentum goes on by itself, as torch has it."""
    ours, plain = optimizers(((100,),), device)
    for number in range(40):
        give_gradients(ours, plain, zeros=0.0 if number < 2 else 1.0)
        fused_adam.update(ours)
        plain.step()
    assert_same(ours, plain)


@pytest.mark.parametrize("device", DEVICES)
def test_a_parameter_without_a_gradient(device: str) -> None:
    """Keeps its value, and does not count the step."""
    ours, plain = optimizers(((5,), (6, 3), (7,)), device)
    for missing in (1, 0, 2, None):
        give_gradients(ours, plain)
        for optimizer in (ours, plain):
            if missing is not None:
                parameters_in(optimizer)[missing].grad = None
        fused_adam.update(ours)
        plain.step()
    assert_same(ours, plain)
    assert {float(kept["step"]) for kept in ours.state.values()} == {3.0}


def test_nothing_has_a_gradient() -> None:
    ours, _ = optimizers(((5,),), "cpu")
    fused_adam.update(ours)
    assert not ours.state


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_that_start_anywhere(device: str) -> None:
    """They start in the middle of a row that is read as a vector."""
    ours, plain = optimizers(((1030,), (9, 3)), device)
    give_gradients(ours, plain)
    for parameter in parameters_in(ours):
        longer = torch.zeros(parameter.numel() + 3, device=device)
        longer[3:] = parameter.grad.flatten()
        parameter.grad = longer[3:].view_as(parameter)
    fused_adam.update(ours)
    plain.step()
    assert_same(ours, plain)


@pytest.mark.parametrize("device", DEVICES)
def test_parameters_that_lie_in_another_order(device: str) -> None:
    """The sky is one: its channels are the last in memory."""
    optimizers_of = [torch.optim.Adam([torch.rand(4, 7, 3, device=device, dtype=d).movedim(-1, 0).requires_grad_()],
                                      eps=EPSILON, fused=True) for d in (torch.float32, torch.float64)]  # fmt: skip
    ours, plain = optimizers_of
    with torch.no_grad():
        parameters_in(plain)[0].copy_(parameters_in(ours)[0])
    ours.param_groups[0]["name"] = "sky"
    for _ in range(3):
        give_gradients(ours, plain)
        fused_adam.update(ours)
        plain.step()
    assert_same(ours, plain)


@pytest.mark.parametrize("device", DEVICES)
def test_a_failed_step_changes_nothing(device: str) -> None:
    ours, plain = optimizers(SHAPES, device)
    give_gradients(ours, plain)
    fused_adam.update(ours, torch.zeros((), device=device))
    plain.step()
    assert_same(ours, plain)
    before = [[t.detach().clone() for t in (p, *ours.state[p].values())] for p in parameters_in(ours)]
    fused_adam.update(ours, torch.ones((), device=device))
    for parameter, tensors in zip(parameters_in(ours), before, strict=True):
        for now, then in zip((parameter, *ours.state[parameter].values()), tensors, strict=True):
            assert torch.equal(now, then)


# ---- touched values alone


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shift", [0, 1])
def test_touched_only(shift: int, device: str) -> None:
    """Values with a gradient take the update; others, their moments with them, stay, also beside one that has a gradient. The other
    group goes on as ever."""
    ours, plain = optimizers(((1029,), (40,)), device)
    give_gradients(ours, plain, zeros=0.0)
    fused_adam.update(ours)
    plain.step()
    first, second = parameters_in(ours)
    before = [t.detach().clone() for t in (first, ours.state[first]["exp_avg"], ours.state[first]["exp_avg_sq"])]
    give_gradients(ours, plain, zeros=0.6)
    first.grad[100:300] = 0
    parameters_in(plain)[0].grad[100:300] = 0
    if shift:  # not read in vectors
        first.grad = torch.cat([first.grad[:1], first.grad])[1:]
    untouched = first.grad == 0
    fused_adam.update(ours, touched_only=("group 0",))
    plain.step()
    after = first, ours.state[first]["exp_avg"], ours.state[first]["exp_avg_sq"]
    expected = parameters_in(plain)[0]
    updated = expected, plain.state[expected]["exp_avg"], plain.state[expected]["exp_avg_sq"]
    for then, now, full in zip(before, after, updated, strict=True):
        assert torch.equal(now[untouched], then[untouched])
        near(now[~untouched], full[~untouched], 1e-5)
    near(second, parameters_in(plain)[1], 1e-5)


def test_touched_only_is_of_the_gaussians() -> None:
    """The sky and the tracks are updated as ever."""
    found = []
    for touched_only in (False, True):
        state = tiny_state()
        stages = build_stages(
            {"fused_adam": {"touched_only": touched_only}}, base_stages("native", torch.device("cpu"))
        )
        for state.step in range(3):
            shots = stages.feed.fetch(stages, state)
            stages.update.learn(stages, state, shots)
        found.append({name: kept for name, kept in moments_of(state).items()})
    assert (found[0]["means"] != found[1]["means"]).any()
    assert all(float(kept) == 3 for name, kept in found[1].items() if name.endswith("step"))


def moments_of(state: TrainState) -> dict[str, Tensor]:
    """Moments of all groups, and the parameters themselves."""
    found = dict(state.scene.parameters())
    for group in state.optimizer.param_groups:
        found |= {f"{group['name']} {key}": v for key, v in state.optimizer.state[group["params"][0]].items()}
    return found


# ---- in training


def test_the_option_swaps_the_update() -> None:
    assert build_stages(OPTIONS).changes.claims == {"optimize": "fused_adam"}


def both(state: TrainState) -> tuple[TrainState, TrainState]:
    """The state, and another one like it."""
    return state, tiny_state(state.config)


def test_updates_of_a_step_with_relocations_are_torch_s() -> None:
    """Every optimizer gets the same gradients; all Gaussians are relocated by the same draws, with growth."""
    ours, plain = both(tiny_state())
    for number in range(6):
        generator = torch.Generator().manual_seed(number)
        for state, optimize in ((ours, fused_adam.FusedAdam(())), (plain, baseline.optimize)):
            state.progress = number / 6
            baseline.schedule(baseline.reference_stages(), state)
            drawn = torch.Generator().manual_seed(number)
            for parameter in state.scene.parameters().values():
                parameter.grad = torch.empty_like(parameter).normal_(generator=drawn)
            optimize(state)
            assert all(p.grad is None for p in state.scene.parameters().values())
        if number in (2, 4):
            g = plain.scene.gaussians
            moved = relocate(g, 7, generator)
            assert moved is not None
            for state in (ours, plain):
                replace_gaussians(state.scene, state.optimizer, moved.in_order(by_node(moved)))
    theirs = moments_of(plain)
    for name, value in moments_of(ours).items():
        near(value, theirs[name].double(), 1e-5)
    assert len(ours.scene.gaussians) == len(plain.scene.gaussians) == len(tiny_state().scene.gaussians) + 14


def test_steps_are_those_without_it() -> None:
    """Three, before anything is relocated."""
    states = both(tiny_state())
    for state, options in zip(states, (OPTIONS, {}), strict=True):
        stages = build_stages(options, base_stages("native", torch.device("cpu")))
        for state.step in range(3):
            step(stages, state)
    theirs = moments_of(states[1])
    for name, value in moments_of(states[0]).items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-3, atol=1e-3)


def test_it_takes_all_that_a_scene_learns() -> None:
    """A scene that learns everything: sensors that are corrected, grids of colours, a lidar with an opacity of its own."""
    config = tiny_config()
    config = replace(config, model=replace(config.model, calibrate=True, bilateral_grid=[3, 2, 2], lidar_opacity=True))
    fused, plain = tiny_state(config), tiny_state(config)
    step(build_stages(OPTIONS, base_stages("native", torch.device("cpu"))), fused)
    step(base_stages("native", torch.device("cpu")), plain)
    before = tiny_state(config).scene.parameters()
    for name, value in plain.scene.parameters().items():
        torch.testing.assert_close(fused.scene.parameters()[name], value, rtol=1e-5, atol=1e-7, msg=name)
    moved = {name for name, value in fused.scene.parameters().items() if not torch.equal(value, before[name])}
    poses = {"rig_rotations", "camera_translations"}
    assert moved >= {"means", "exposure", "exposure_drift", "vignetting", "bilateral"} | poses


@pytest.mark.parametrize("options", [{}, OPTIONS], ids=["without", "with"])
def test_a_checkpoint_goes_on_with_it_and_without(options: dict, tmp_path: Path) -> None:
    """Training with the option is saved, and resumed by either."""
    state, path = tiny_state(), tmp_path / "checkpoint.pt"
    stages = build_stages(OPTIONS, base_stages("native", torch.device("cpu")))
    for state.step in range(3):
        step(stages, state)
    counters = {"step": 3, "seconds": 1.0}
    save_checkpoint(path, state.scene, state.optimizer, state.generator, state.config, counters, [])
    kept = load_checkpoint(path, "cpu")["optimizer"]["state"]
    assert all(list(entry) == ["step", "exp_avg", "exp_avg_sq"] for entry in kept.values())
    config = tiny_config()
    resumed = make_state(replace(config, train=replace(config.train, resume=str(path))), tiny_capture(), state.device)
    again = build_stages(options, base_stages("native", torch.device("cpu")))
    state.step = 3
    step(stages, state)
    step(again, resumed)
    theirs = moments_of(state)
    for name, value in moments_of(resumed).items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-3, atol=1e-3)
    assert float(moments_of(resumed)["sky step"]) == 4


def test_a_list_without_capacity_skips_the_update() -> None:
    state = tiny_state()
    state.failed = torch.ones(())
    before = {name: value.detach().clone() for name, value in state.scene.parameters().items()}
    stages = build_stages(OPTIONS, base_stages("native", torch.device("cpu")))
    stages.update.learn(stages, state, stages.feed.fetch(stages, state))
    assert all(torch.equal(before[name], value) for name, value in state.scene.parameters().items())
    assert set(Gaussians.trained()) < set(before)


# ---- its benchmark

SMALL = ["--device", "cpu", "--gaussians", "50", "--seen", "0.5", "--rounds", "2", "--warmup", "1", "--copy-mib", "1"]


def test_the_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert bench_fused_adam.main([*SMALL, "--out", str(out)]) == 0
    rows = {row["version"]: row for row in json.loads(out.read_text())["rows"]}
    assert list(rows) == ["torch", "dense", "touched"]
    assert rows["dense"]["least_bytes"] == 50 * 61 * 28
    assert 50 * (61 * 4 + 4 * 24) < rows["touched"]["least_bytes"] < rows["dense"]["least_bytes"]
    assert "50 Gaussians, 50 % seen" in capsys.readouterr().out


def test_the_benchmark_does_not_time_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    right = bench_fused_adam.call_of
    monkeypatch.setattr(bench_fused_adam, "call_of", lambda v, u: (lambda: None) if v == "dense" else right(v, u))
    assert bench_fused_adam.main([*SMALL, "--out", str(tmp_path / "out.json")]) == 1
    report = json.loads((tmp_path / "out.json").read_text())
    assert list(report["disagreements"]) == ["dense, 50 Gaussians, 50 % seen"]
    assert {row["version"] for row in report["rows"]} == {"torch", "touched"}
