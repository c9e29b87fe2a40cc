# SPDX-License-Identifier: Apache-2.0
"""The option `fused_colour`: colours as an eye sees them, and their gradients, are those of the plain way, which is asked in float64."""

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from operators import call as called
from operators import check_schema
from splat_scenes import in_frustum, make_camera_view, make_gaussians, to_float32, view_float32
from tiny_capture import tiny_state
from torch import Tensor
from torch.nn import functional as F

from benchmarks.opt import bench_fused_colour
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import parameters_of
from nurec_lite.native import ops
from nurec_lite.native import stages as native
from nurec_lite.native.operators.view_colour import view_colour
from nurec_lite.native.plan import CPU_PLAN, CUDA_PLAN
from nurec_lite.scene.gaussians import SplitGaussians
from nurec_lite.splat import render
from nurec_lite.splat.render import local_directions
from nurec_lite.training.stages import Stages
from nurec_lite.training.step import step

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
OPTIONS = {name: parameters_of(name) for name in ("fused_interp", "fused_colour")}
WITHOUT = {"fused_interp": parameters_of("fused_interp")}
SIZES = (
    (0, 0),
    (1, 0),
    (0, 1),
    (31, 2),
    (128, 129),
    (300, 0),
    (0, 700),
    (257, 5000),
)  # that stand still, and that move
LEAVES = ("still_means", "means", "rotations", "sh0", "sh_rest")
EYE = torch.tensor([0.3, -0.2, 1.5])


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def scene_of(still: int, moving: int, bands: int = 16, nodes: int = 5) -> SplitGaussians:
    """Nodes as they come in a store, each in one run, one of them empty; or here and there, which no store has."""
    n, generator = still + moving, torch.Generator().manual_seed(still + moving)

    def made(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    node = torch.randint(nodes - 1, (moving,), generator=generator)
    return SplitGaussians(
        still_means=20 * made(still, 3), still_quats=made(still, 4), means=20 * made(moving, 3), quats=made(moving, 4),
        velocities=made(moving, 3), rotations=F.normalize(made(nodes, 4), dim=-1), nodes=node.sort().values if moving % 2 else node,
        scales=made(n, 3), opacities=made(n), sh0=made(n, 1, 3), sh_rest=made(n, bands - 1, 3), lidar=made(n, 2),
    )  # fmt: skip


def on(g: SplitGaussians, device: str, dtype: torch.dtype = torch.float32) -> SplitGaussians:
    values = {k: v.to(device, dtype if v.is_floating_point() else None) for k, v in vars(g).items()}
    return replace(g, **values)


def with_gradients(colour: Any, g: SplitGaussians, eye: Tensor, d_colour: Tensor) -> tuple[Tensor, list[Tensor]]:
    leaves = {name: getattr(g, name).clone().requires_grad_() for name in LEAVES}
    found = colour(replace(g, **leaves), eye)
    grads = torch.autograd.grad(found, list(leaves.values()), d_colour, allow_unused=True, materialize_grads=True)
    return found.detach().cpu().double(), [grad.cpu().double() for grad in grads]


def plain(g: SplitGaussians, eye: Tensor) -> Tensor:
    return render.view_colour(g, eye)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bands", [1, 4, 9, 16])
@pytest.mark.parametrize(("still", "moving"), SIZES, ids=str)
def test_colours_and_gradients(still: int, moving: int, bands: int, device: str) -> None:
    g, d_colour = scene_of(still, moving, bands), torch.randn(still + moving, 3)
    d_colour[::3] = 0  # no image sees these
    colour, grads = with_gradients(view_colour, on(g, device), EYE.to(device), d_colour.to(device))
    expected, wanted = with_gradients(plain, on(g, "cpu", torch.float64), EYE.double(), d_colour.double())
    torch.testing.assert_close(colour, expected, atol=4e-6, rtol=1e-5)
    for name, a, b in zip(LEAVES, grads, wanted, strict=True):
        torch.testing.assert_close(
            a, b, atol=3e-5 * max(1.0, float(b.abs().max()) if b.numel() else 0), rtol=1e-4, msg=name
        )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bands", [1, 16])
@pytest.mark.parametrize("share", [0, 0.3, 1])
def test_what_nobody_sees_is_not_read(share: float, bands: int, device: str) -> None:
    """Its harmonics may be anything."""
    g, d_colour = scene_of(150, 99, bands), torch.randn(249, 3)
    seen = torch.rand(249) < share
    d_colour[~seen] = 0
    expected, wanted = with_gradients(view_colour, on(g, device), EYE.to(device), d_colour.to(device))
    g.sh0[~seen], g.sh_rest[~seen] = math.nan, math.nan
    some = partial(view_colour, seen=seen.byte().to(device))
    found, grads = with_gradients(some, on(g, device), EYE.to(device), d_colour.to(device))
    assert found[seen].equal(expected[seen]) and not found[~seen].any()
    if device != "cpu":  # whose backward pass reads all
        for a, b in zip(grads, wanted, strict=True):
            torch.testing.assert_close(a, b)  # rotations add up in any order


@pytest.mark.parametrize("device", DEVICES)
def test_a_gaussian_at_the_eye_has_a_colour_and_finite_gradients(device: str) -> None:
    g = scene_of(3, 3)
    g = replace(g, still_means=EYE.expand(3, 3).clone(), means=EYE.expand(3, 3).clone())
    colour, grads = with_gradients(view_colour, on(g, device), EYE.to(device), torch.ones(6, 3, device=device))
    expected, _ = with_gradients(
        plain, on(g, "cpu", torch.float64), EYE.double(), torch.ones(6, 3, dtype=torch.float64)
    )
    torch.testing.assert_close(colour, expected)
    assert all(bool(grad.isfinite().all()) for grad in grads)


def test_an_eye_that_learns_goes_the_plain_way() -> None:
    g, eye = scene_of(5, 5), EYE.clone().requires_grad_()
    own = partial(native.colours_of, plan=replace(CPU_PLAN, fused_colour=True))
    own(g, eye).sum().backward()
    assert eye.grad is not None and bool(eye.grad.abs().sum() > 0)
    world = g.whole()
    torch.testing.assert_close(own(world, EYE), own(g, EYE))
    with pytest.raises(RuntimeError, match="view_colour gives the eye no gradient"):
        view_colour(g, eye).sum().backward()


# ---- the option


def stages_of(options: dict[str, dict], device: str = "cpu") -> Stages:
    return build_stages(options, base_stages("native", torch.device(device)))


def test_it_sets_the_plan_and_needs_fused_interp(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = stages_of(OPTIONS)
    assert stages.plan is not None and stages.plan.fused_colour
    monkeypatch.setattr(native, "view_colour", lambda *_: "fused")
    g = scene_of(1, 1)
    assert native.colours_of(g, EYE, None, replace(CPU_PLAN, fused_colour=True)) == "fused"
    assert isinstance(native.colours_of(g, EYE, None, CPU_PLAN), Tensor)
    assert not CUDA_PLAN.fused_colour
    with pytest.raises(OptionError, match="requires 'fused_interp'"):
        stages_of({"fused_colour": {}})
    with pytest.raises(OptionError, match="option 'fused_colour' cannot run here"):
        build_stages(OPTIONS, base_stages("reference", torch.device("cpu")))


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_is_that_without_it(device: str) -> None:
    found = []
    for options in (OPTIONS, WITHOUT):
        state, stages = tiny_state(), stages_of(options)
        grads: dict[str, Tensor] = {}

        def keep(state: Any, grads: dict[str, Tensor] = grads) -> None:
            for group in state.optimizer.param_groups:
                p = group["params"][0]
                grads[group["name"]] = torch.zeros_like(p) if p.grad is None else p.grad.clone()

        result = step(stages.replaced(optimize=keep), state)
        found.append((result.terms, grads))
    for name, term in found[1][0].items():
        torch.testing.assert_close(found[0][0][name], term, rtol=1e-5, atol=1e-6)
    for name, grad in found[1][1].items():
        assert float((found[0][1][name] - grad).norm()) <= 1e-3 * float(grad.norm()) + 1e-12, name


def test_local_directions_are_what_it_goes_by() -> None:
    """Directions of Gaussians that a camera sees, through the whole renderer."""
    view = make_camera_view(9, 7, 8.0)
    g = to_float32(make_gaussians(in_frustum(view, 20, 3, 8)))
    view = view_float32(view)
    parted = SplitGaussians(
        still_means=g.means[:7], still_quats=g.quats[:7], means=g.means[7:], quats=g.quats[7:], velocities=g.velocities[7:],
        rotations=g.frames[7:], nodes=torch.arange(13), scales=g.scales, opacities=g.opacities,
        sh0=g.sh[:, :1].contiguous(), sh_rest=g.sh[:, 1:].contiguous(), lidar=g.lidar,
    )  # fmt: skip
    directions = local_directions(parted, view.eye())
    assert directions.shape == (20, 3)
    pairs = native.tile(native.project(parted, view), view)
    images = [
        native.render_camera(parted, view, pairs, torch.zeros(3, 4, 8), replace(CPU_PLAN, fused_colour=c))
        for c in (True, False)
    ]
    torch.testing.assert_close(images[0].colour, images[1].colour)


# ---- the operator


def given(device: str = "cpu", **changes: Any) -> dict[str, Any]:
    g = scene_of(4, 3, bands=4)
    found = {
        "still_means": g.still_means, "means": g.means, "rotations": g.rotations, "node": g.nodes,
        "sh": g.sh0, "rest": g.sh_rest, "eye": EYE, "seen": torch.ones(7, dtype=torch.uint8), "blocks": None,
    }  # fmt: skip
    return {k: v if v is None else v.to(device) for k, v in (found | changes).items()}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("apart", [True, False])
def test_torch_s_own_checks(apart: bool, device: str) -> None:
    args = given(device)
    if not apart:
        args |= {"sh": torch.cat([args["sh"], args["rest"]], dim=1), "rest": None}
    placements = [args[k].requires_grad_(k != "node") for k in ("still_means", "means", "rotations", "node")]
    bands = [None if args[k] is None else args[k].requires_grad_() for k in ("sh", "rest")]
    check_schema(torch.ops.nurec_lite.view_colour.default, (placements, *bands, args["eye"], args["seen"], None))
    detached = [t.detach() for t in placements], *(None if t is None else t.detach() for t in bands)
    d_colour = torch.randn(7, 3, device=device)
    check_schema(torch.ops.nurec_lite.view_colour_backward.default, (*detached, args["eye"], d_colour))


WRONG = {
    "means has shape": {"means": torch.randn(3, 4)},
    "rotations has shape": {"rotations": torch.randn(5, 3)},
    "node has shape": {"node": torch.zeros(2, dtype=torch.int64)},
    "node holds 5": {"node": torch.tensor([0, 5, 0])},
    "sh has shape": {"sh": torch.randn(6, 1, 3)},
    "rest has shape": {"rest": torch.randn(7, 3, 4)},
    "sh has 3 coefficients": {"rest": torch.randn(7, 2, 3)},
    "eye has shape": {"eye": torch.randn(4)},
    "seen has shape": {"seen": torch.ones(6, dtype=torch.uint8)},
    "eye is Double": {"eye": EYE.double()},
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_arrays_are_refused(words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        called("view_colour", given(**WRONG[words]))


# ---- its benchmark

SMALL = ["--device", "cpu", "--sizes", "500x30", "--rounds", "2", "--warmup", "1", "--copy-mib", "1"]


def test_the_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert bench_fused_colour.main([*SMALL, "--out", str(out)]) == 0
    report = json.loads(out.read_text())
    assert {(row["version"], row["on"]) for row in report["rows"]} == {
        (version, f"500x30 {what}") for version in ("plain", "fused") for what in ("forward", "and backward")
    }
    assert bench_fused_colour.least_bytes("500x30", "forward") == 500 * 4 * (3 + 48 + 3) + 150 * 8
    assert "fused" in capsys.readouterr().out


def test_the_benchmark_does_not_time_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong = lambda g, eye: 1.01 * native.colours_of(g, eye)  # noqa: E731
    monkeypatch.setitem(bench_fused_colour.VERSIONS, "plain", wrong)
    assert bench_fused_colour.main([*SMALL, "--out", str(tmp_path / "out.json")]) == 1
    report = json.loads((tmp_path / "out.json").read_text())
    assert list(report["disagreements"]) == ["plain, 500x30"]


@pytest.mark.parametrize("size", ["12", "0x3", "9x101", "axb"])
def test_sizes_that_are_none(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench_fused_colour.main([*SMALL[:3], size])
    assert ended.value.code == 2
    assert f"'{size}' " in capsys.readouterr().err
