# SPDX-License-Identifier: Apache-2.0
"""The option `fused_activate`: activations, regularisers, and their gradients are those of plain torch, which is asked in float64.
Noise: test_fused_activate_noise.py. Copies: test_fused_activate_part.py."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from stored_gaussians import STORED, gaussians_of, on, opacities_of
from test_fused_activate_noise import plain_noise
from tiny_capture import tiny_state
from torch import Tensor

from benchmarks.opt import bench_fused_activate
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.config import LossWeights
from nurec_lite.native import ops
from nurec_lite.opt.all import fused_activate
from nurec_lite.scene.gaussians import Gaussians, activate
from nurec_lite.training.losses import backward, regularisers
from nurec_lite.training.stages import Stages
from nurec_lite.training.step import step

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
OPTIONS = {name: parameters_of(name) for name in ("fused_interp", "collect_once", "fused_activate")}
WITHOUT = {name: OPTIONS[name] for name in ("fused_interp", "collect_once")}
SIZES = (0, 1, 31, 33, 256, 257, 1025, 5001)  # a block has 256 Gaussians, one of the regularisers 1024
VALUES = ("quats", "scales", "opacities", "lidar", "lidar_opacities")
Activate = Callable[[Gaussians], dict[str, Tensor]]


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def given_to(g: Gaussians) -> dict[str, Tensor]:
    """Gradients of the values; some are 0."""
    values = activate(g)
    wanted = VALUES if values["lidar_opacities"] is not values["opacities"] else VALUES[:-1]
    seen = torch.rand(len(g)) < 0.7
    return {k: torch.randn_like(values[k]) * seen.view(-1, *[1] * (values[k].dim() - 1)) for k in wanted}


def differentiated(
    by: Activate, g: Gaussians, given: dict[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor | None]]:
    """All values, and gradients of the stored numbers, from those of some values."""
    leaves = {k: getattr(g, k).detach().requires_grad_() for k in STORED}
    values = by(replace(g, **leaves))
    found = torch.autograd.grad(
        [values[k] for k in given], list(leaves.values()), list(given.values()), allow_unused=True
    )
    return {k: values[k].detach() for k in VALUES}, dict(zip(STORED, found, strict=True))


# ---- activation


def assert_gradients(g: Gaussians, given: dict[str, Tensor], found: dict[str, Tensor | None]) -> None:
    """Every number agrees to some units in the last place of the product that makes it: the given gradient divided by the quaternion's
    length (two parts of it cancel), times the scale, times at most 1/4."""
    _, truth = differentiated(activate, on(g, "cpu", torch.float64), {k: d.double() for k, d in given.items()})
    for name in STORED:
        a, b = found[name], truth[name]
        assert (a is None) == (b is None), name
        if a is None or b is None:
            continue
        size = torch.ones_like(b)
        if name == "quats":
            size = (given["quats"].norm(dim=1) / g.quats.norm(dim=1).clamp(min=1e-12))[:, None].double()
        if name == "log_scales":
            size = b.abs()
        assert a.shape == b.shape and bool(((a.cpu().double() - b).abs() <= 2e-6 * size + 1e-30).all()), name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("n", SIZES)
def test_values_and_gradients(n: int, columns: int, device: str) -> None:
    g = gaussians_of(n, columns)
    given = given_to(g)
    found, grads = differentiated(fused_activate.activate, on(g, device), {k: d.to(device) for k, d in given.items()})
    truth = activate(on(g, "cpu", torch.float64))
    for name in VALUES:  # an exponential is off by two units in the last place
        torch.testing.assert_close(found[name].cpu().double(), truth[name], rtol=4e-7, atol=1e-7 * (name != "scales"))
    assert_gradients(g, given, grads)


@pytest.mark.parametrize("device", DEVICES)
def test_a_quaternion_without_length_is_what_torch_makes_of_it(device: str) -> None:
    g = gaussians_of(40)
    given = {"quats": torch.randn(40, 4)}
    odd = slice(1, 3)
    truth, wanted = differentiated(activate, g, given)
    values, grads = differentiated(fused_activate.activate, on(g, device), {"quats": given["quats"].to(device)})
    torch.testing.assert_close(values["quats"][odd].cpu(), truth["quats"][odd])
    assert grads["quats"] is not None and wanted["quats"] is not None
    torch.testing.assert_close(grads["quats"][odd].cpu(), wanted["quats"][odd])
    assert float(grads["quats"][1].abs().max()) > 1e11


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "asked",
    [("quats",), ("scales",), ("opacities",), ("lidar",), ("lidar_opacities",), ("scales", "opacities"), VALUES[:-1]],
)
@pytest.mark.parametrize("n", [0, 33, 300])
def test_what_nothing_depends_on_has_no_gradient(asked: tuple[str, ...], n: int, device: str) -> None:
    """With a gradient of zeros Adam would go on with its momentum."""
    g = gaussians_of(n)
    given = {k: d for k, d in given_to(g).items() if k in asked}
    _, grads = differentiated(fused_activate.activate, on(g, device), {k: d.to(device) for k, d in given.items()})
    assert_gradients(g, given, grads)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_and_quaternions_that_lie_anyhow(device: str) -> None:
    """Transposed, the same number for all, or beginning in the middle of a vector."""
    g = gaussians_of(257)
    quats = torch.cat([torch.zeros(1), g.quats.flatten()]).to(device)[1:].view(257, 4)
    moved = replace(on(g, device), quats=quats)
    given = {
        "quats": torch.randn(4, 257).T, "scales": torch.randn(1).expand(257, 3), "opacities": torch.randn(514)[::2],
        "lidar": torch.randn(257, 4)[:, 1:3], "lidar_opacities": torch.randn(1).expand(257),
    }  # fmt: skip
    _, grads = differentiated(fused_activate.activate, moved, {k: d.to(device) for k, d in given.items()})
    assert_gradients(g, given, grads)
    odd = torch.randn(4 * 257 + 1)[1:].view(257, 4)
    _, grads = differentiated(fused_activate.activate, moved, {"quats": odd.to(device)})
    assert_gradients(g, {"quats": odd}, grads)


def test_a_lidar_without_opacities_sees_the_camera_s() -> None:
    g = gaussians_of(5, 2)
    values = fused_activate.activate(g)
    assert values["lidar_opacities"] is values["opacities"]
    assert values["means"] is g.means and list(values) == list(activate(g))
    assert fused_activate.activate(gaussians_of(5, 3))["lidar_opacities"] is not values["opacities"]


# ---- regularisers


def terms_of(
    by: Callable[..., dict[str, Tensor]], own: bool, values: tuple[Tensor, ...], weights: dict[str, float]
) -> tuple[dict[str, Tensor], list[Tensor | None]]:
    """Terms, and gradients of the weighted sum of some."""
    camera, lidar, scales = (v.detach().requires_grad_() for v in values)
    terms = by(camera, lidar if own else camera, scales)
    loss = torch.stack([weight * terms[name] for name, weight in weights.items()]).sum()
    leaves = (camera, lidar, scales) if own else (camera, scales)
    return {k: t.detach() for k, t in terms.items()}, list(torch.autograd.grad(loss, leaves, allow_unused=True))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("n", [1, 31, 33, 1024, 1025, 5001, 300_000])
def test_terms_and_gradients(n: int, own: bool, device: str) -> None:
    """Means are as near to those of float64 as torch's are, or to one unit in the last place."""
    values, weights = opacities_of(n), {"opacity": 0.3, "scale": 0.7} | ({"tie": 0.2} if own else {})
    exact = tuple(v.double() for v in values)
    truth, wanted = terms_of(regularisers, own, exact, weights)
    plain, _ = terms_of(regularisers, own, values, weights)
    found, grads = terms_of(fused_activate.regularisers, own, tuple(v.to(device) for v in values), weights)
    assert list(found) == list(truth)
    for name, term in truth.items():
        limit = max(abs(float(plain[name] - term)), 1.2e-7 * float(term))
        assert abs(float(found[name]) - float(term)) <= limit, name
    apart = torch.ones(n, dtype=torch.bool)
    if own:  # where the tie's slope is a number between -1 and 1, as many digits are lost as opacities differ by
        apart = (exact[0] - exact[1]).abs() > 0.012
    for a, b in zip(grads, wanted, strict=True):
        assert a is not None and b is not None and a.shape == b.shape
        torch.testing.assert_close(a.cpu().double()[apart], b[apart], rtol=1e-6, atol=1e-12)
        torch.testing.assert_close(a.cpu().double(), b, rtol=1e-4, atol=1e-5 / n)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "weights", [{"opacity": 1.0}, {"scale": 1.0}, {"tie": 1.0}, {"scale": 1.0, "tie": 0.5}], ids=str
)
def test_gradients_of_some_terms(weights: dict[str, float], device: str) -> None:
    values = opacities_of(77)
    _, wanted = terms_of(regularisers, True, values, weights)
    _, grads = terms_of(fused_activate.regularisers, True, tuple(v.to(device) for v in values), weights)
    for a, b in zip(grads, wanted, strict=True):
        assert (a is None or not a.any()) if b is None else a is not None
        if a is not None and b is not None:
            torch.testing.assert_close(a.cpu(), b, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("device", DEVICES)
def test_the_same_means_every_time_and_none_of_nothing(device: str) -> None:
    values = tuple(v.to(device) for v in opacities_of(40_000))
    first, second = (fused_activate.regularisers(*values) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    nothing = [v[:0].requires_grad_() for v in values]
    terms = fused_activate.regularisers(*nothing)
    assert all(bool(t.isnan()) for t in terms.values())  # as torch's means
    sum(terms.values(), torch.zeros((), device=device)).backward()
    assert all(v.grad is not None and v.grad.shape == v.shape for v in nothing)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [31, 1000, 34199])
def test_equal_weights_of_tie_and_opacity_leave_the_lesser_exactly_where_it_is(n: int, device: str) -> None:
    """The plain ones do so (tests/training/test_losses.py): Adam would make a step of the rounding error."""
    camera, lidar = (torch.randn(n, device=device).requires_grad_() for _ in range(2))
    opacities = torch.sigmoid(camera), torch.sigmoid(lidar)
    terms = fused_activate.regularisers(*opacities, torch.ones(n, 3, device=device))
    backward(terms, LossWeights(opacity=0.01, tie=0.01))
    apart = (opacities[0] - opacities[1]).abs() > 0.011
    for logits, lesser in ((camera, camera < lidar), (lidar, lidar < camera)):
        assert logits.grad is not None and not logits.grad[lesser & apart].any()
        assert bool((logits.grad[~lesser & apart] > 0).all())


# ---- the option


def stages_of(options: dict[str, dict], device: str = "cpu") -> Stages:
    return build_stages(options, base_stages("native", torch.device(device)))


def test_it_takes_four_stages() -> None:
    stages = stages_of({"fused_activate": {}})
    assert {name for name, by in stages.changes.claims.items() if by == "fused_activate"} == {
        "activate",
        "regularisers",
        "noise",
        "mcmc_split",
    }
    build_stages({"fused_activate": {}}, base_stages("reference", torch.device("cpu")))  # with kernels of its own


def test_compile_leaves_its_stages_alone() -> None:
    both, alone = stages_of({"fused_activate": {}, "compile": {}}), stages_of({"fused_activate": {}})
    assert (both.render.activate, both.update.noise) == (alone.render.activate, alone.update.noise)
    assert both.changes.claims["plan.compile_rest"] == "compile"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("opacity", [True, False])
def test_a_step_is_that_without_it(opacity: bool, device: str) -> None:
    """With and without opacities of the lidar's own."""
    found = []
    for options in (OPTIONS, WITHOUT):
        state, stages = tiny_state(), stages_of(options, device="cpu")
        if not opacity:
            logits = state.scene.gaussians.lidar_logits
            state.scene.gaussians.lidar_logits = logits.detach()[:, :2].clone().requires_grad_()
        grads: dict[str, Tensor] = {}

        def keep(state: Any, grads: dict[str, Tensor] = grads) -> None:
            for name in STORED:
                p = getattr(state.scene.gaussians, name)
                grads[name] = torch.zeros_like(p) if p.grad is None else p.grad.clone()

        drawn = {} if options is OPTIONS else {"noise": plain_noise}  # as the option draws
        result = step(stages.replaced(optimize=keep, density=lambda stages, state: None, **drawn), state)
        found.append((result.terms, grads, state.scene.gaussians.means.detach()))
    assert list(found[0][0]) == list(found[1][0]) and ("tie" in found[0][0]) == opacity
    for name, term in found[1][0].items():
        torch.testing.assert_close(found[0][0][name], term, rtol=1e-5, atol=1e-6)
    for name, grad in found[1][1].items():
        assert float((found[0][1][name] - grad).norm()) <= 1e-3 * float(grad.norm()) + 1e-12, name
    torch.testing.assert_close(found[0][2], found[1][2], rtol=1e-5, atol=1e-6)


# ---- its benchmark

SMALL = ["--device", "cpu", "--sizes", "301x3", "33x2", "--rounds", "2", "--warmup", "1", "--copy-mib", "1"]


def test_the_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert bench_fused_activate.main([*SMALL, "--out", str(out)]) == 0
    report = json.loads(out.read_text())
    whats = ("forward", "and backward", "regularisers", "noise", "part")
    assert {(row["version"], row["on"]) for row in report["rows"]} == {
        (version, f"{size} {what}") for version in ("plain", "fused") for size in ("301x3", "33x2") for what in whats
    }
    assert bench_fused_activate.least_bytes("10x3", "forward") == 10 * 4 * (11 + 11)
    assert bench_fused_activate.least_bytes("10x2", "regularisers") == 10 * 4 * 4
    assert bench_fused_activate.least_bytes("10x3", "part") == 10 * (4 * (2 + 2 + 1) + 8)
    assert "fused" in capsys.readouterr().out


def test_the_benchmark_does_not_time_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fused = bench_fused_activate.VERSIONS["fused"]
    wrong = replace(fused, activate=lambda g: {k: 1.01 * v for k, v in fused.activate(g).items()})
    monkeypatch.setitem(bench_fused_activate.VERSIONS, "fused", wrong)
    assert bench_fused_activate.main([*SMALL, "--out", str(tmp_path / "out.json")]) == 1
    report = json.loads((tmp_path / "out.json").read_text())
    assert list(report["disagreements"]) == ["fused, 301x3", "fused, 33x2"]


@pytest.mark.parametrize("size", ["12", "0x3", "9x4", "axb"])
def test_sizes_that_are_none(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench_fused_activate.main([*SMALL[:3], size])
    assert ended.value.code == 2
    assert f"'{size}' " in capsys.readouterr().err
