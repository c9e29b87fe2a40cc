# SPDX-License-Identifier: Apache-2.0
"""The option `fused_sky`: images over the sky and their gradients are those of the plain one, which is asked in float64."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from operators import check_schema
from splat_scenes import (
    CAMERA_MOTION,
    in_frustum,
    make_camera_view,
    make_gaussians,
    make_sky,
    to_float32,
    view_float32,
)
from tiny_capture import tiny_config, tiny_state
from torch import Tensor
from torch.nn import functional as F

from benchmarks.opt import bench_fused_sky
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.native import ops
from nurec_lite.native import stages as native
from nurec_lite.native.operators.over_sky import over_sky as fused_over_sky
from nurec_lite.native.plan import CPU_PLAN, CUDA_PLAN
from nurec_lite.native.torch_fallbacks import TorchFallbacks, torch_fallbacks
from nurec_lite.scene import sky as plain
from nurec_lite.training.stages import Stages
from nurec_lite.training.step import step

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
OPTIONS = {"fused_sky": parameters_of("fused_sky")}
RAYS = (0, 1, 31, 32, 33, 255, 257, 1025)
MAPS = ((1, 1), (1, 2), (2, 1), (5, 7), (128, 256))
Scene = tuple[Tensor, Tensor, Tensor, Tensor]  # features [R, 3], transmittance [R], map [3, H, W], directions [R, 3]


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def scattered(n: int) -> Tensor:
    return F.normalize(torch.randn(n, 3), dim=-1)


def neighbours(n: int) -> Tensor:
    """Directions of an image, 40 pixels a row, that looks over the seam of the map and up to the pole."""
    k = torch.arange(n)
    azimuth, elevation = math.pi + 0.02 * (k % 40 - 20), 1.5 - 0.02 * (k // 40)
    flat = elevation.cos()
    return torch.stack([azimuth.cos() * flat, azimuth.sin() * flat, elevation.sin()], dim=-1)


def one(n: int) -> Tensor:
    return torch.tensor([0.6, 0.48, 0.64]).expand(n, 3).contiguous()


def special(n: int) -> Tensor:
    """The axes with poles, the seam from either side, and the neighbours of a pole."""
    seam = [[-1.0, 0.0, 0.0], [-1.0, -0.0, 0.0], [-0.8, 1e-8, 0.6], [-0.8, -1e-8, -0.6]]
    poles = [[0.0, 0.0, 1.0], [-0.0, -0.0, -1.0], [1e-6, 0.0, 1.0], [0.0, -1e-20, -1.0]]
    level = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, -1.0, 0.0]]
    return torch.tensor(seam + poles + level).repeat(-(-n // 11), 1)[:n].contiguous()


def scene_of(directions: Tensor, size: tuple[int, int], device: str = "cpu") -> Scene:
    """A fifth of the rays see nothing but sky, a fifth none of it."""
    n = len(directions)
    transmittance = (1.6 * torch.rand(n) - 0.3).clamp(0, 1)
    scene = torch.rand(n, 3), transmittance, 2 * torch.randn(3, *size), directions
    return tuple(tensor.to(device) for tensor in scene)  # type: ignore[return-value]


def exact(scene: Scene) -> Scene:
    return tuple(tensor.double() for tensor in scene)  # type: ignore[return-value]


fused = partial(fused_over_sky, fallback=plain.over_sky)


def with_gradients(over: Callable[..., Tensor], scene: Scene, d_image: Tensor) -> list[Tensor]:
    """The image, and gradients of features, transmittance and map."""
    leaves = [tensor.clone().requires_grad_() for tensor in scene[:3]]
    image = over(*leaves, scene[3])
    return [image.detach(), *torch.autograd.grad(image, leaves, d_image.to(image.dtype))]


def assert_close(found: list[Tensor], expected: list[Tensor], part: float = 3e-5) -> None:
    """Compares relative to the largest number of each tensor."""
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape and a.dtype == torch.float32
        if a.numel():
            assert float((a.double() - b).abs().max()) <= part * float(b.abs().max())


def assert_as_plain(scene: Scene, d_image: Tensor) -> None:
    assert_close(with_gradients(fused, scene, d_image), with_gradients(plain.over_sky, exact(scene), d_image))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", MAPS, ids=str)
@pytest.mark.parametrize("n", RAYS)
@pytest.mark.parametrize("directions", [scattered, neighbours, one, special])
def test_values_and_gradients(directions: Callable[[int], Tensor], n: int, size: tuple[int, int], device: str) -> None:
    assert_as_plain(scene_of(directions(n), size, device), torch.randn(n, 3, device=device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("directions", [neighbours, one])
def test_many_rays(directions: Callable[[int], Tensor], device: str) -> None:
    """There are as many as a CPU adds up in slices."""
    scene = scene_of(directions(20001), (16, 32), device)
    assert_as_plain(scene, torch.rand(20001, 3, device=device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("passed", [0.0, 1.0])
def test_rays_that_see_no_sky_and_nothing_else(passed: float, device: str) -> None:
    features, transmittance, sky, directions = scene_of(neighbours(200), (5, 7), device)
    scene = features, torch.full_like(transmittance, passed), sky, directions
    assert_as_plain(scene, torch.randn(200, 3, device=device))
    if not passed:
        found = with_gradients(fused, scene, torch.randn(200, 3, device=device))
        assert torch.equal(found[0], features) and not found[3].any()


@pytest.mark.parametrize("device", DEVICES)
def test_rays_without_a_gradient_and_some_with_one(device: str) -> None:
    """Whole warps, single lanes, and single channels."""
    scene, d_image = scene_of(neighbours(200), (64, 128), device), torch.randn(200, 3, device=device)
    d_image[:70], d_image[100::3], d_image[101::3, 1:] = 0, 0, 0
    assert_as_plain(scene, d_image)
    assert not with_gradients(fused, scene, torch.zeros_like(d_image))[3].any()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("channel", range(3))
def test_a_gradient_of_one_channel(channel: int, device: str) -> None:
    d_image = torch.zeros(90, 3, device=device)
    d_image[:, channel] = torch.randn(90)
    assert_as_plain(scene_of(neighbours(90), (5, 7), device), d_image)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_come_as_they_are(device: str) -> None:
    """Without memory of their own, or with strides."""
    scene = scene_of(neighbours(90), (5, 7), device)
    for d_image in (torch.ones((), device=device).expand(90, 3), torch.randn(90, 6, device=device)[:, ::2]):
        assert_as_plain(scene, d_image)


@pytest.mark.parametrize("device", DEVICES)
def test_tensors_with_strides(device: str) -> None:
    features, transmittance, sky, directions = scene_of(neighbours(90), (5, 7), device)
    d_image = torch.randn(90, 3, device=device)
    strided = (
        torch.stack([features, features], -1)[..., 0], torch.stack([transmittance, transmittance], -1)[..., 0],
        sky.movedim(0, -1).contiguous().movedim(-1, 0), directions.T.contiguous().T,
    )  # fmt: skip
    found, expected = (with_gradients(fused, s, d_image) for s in (strided, (features, transmittance, sky, directions)))
    assert_close(found, expected, 1e-6)  # on CUDA sums have another order each time


@pytest.mark.parametrize("device", DEVICES)
def test_only_what_is_asked_for(device: str) -> None:
    scene, d_image = scene_of(neighbours(90), (5, 7), device), torch.randn(90, 3, device=device)
    whole = with_gradients(fused, scene, d_image)
    for k in range(3):
        given = [tensor.clone().requires_grad_(j == k) for j, tensor in enumerate(scene)]
        (alone,) = torch.autograd.grad(fused(*given), given[k], d_image)
        assert_close([alone], [whole[1 + k].double()], 1e-6)


def test_twice_the_same_bits_on_a_cpu() -> None:
    scene, d_image = scene_of(neighbours(20001), (16, 32)), torch.randn(20001, 3)
    for a, b in zip(*(with_gradients(fused, scene, d_image) for _ in range(2)), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [(1, 1), (3, 2)])
def test_directions_that_are_none_touch_nothing_outside_of_the_map(size: tuple[int, int], device: str) -> None:
    """Directions are not finite, huge or tiny; the map lies between numbers of somebody else."""
    odd = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 3e38, -1e-40])
    features, transmittance, sky, directions = scene_of(torch.cartesian_prod(odd, odd, odd), size, device)
    around = torch.full((sky.numel() + 128,), math.nan, device=device)
    around[64:-64] = sky.flatten()
    inside = around[64:-64].view_as(sky)
    image = fused(features, transmittance, inside, directions)
    low, high = features.amin(), features.amax() + 1
    assert ((image >= low) & (image <= high)).all()


# ---- the operator


@pytest.mark.parametrize("device", DEVICES)
def test_the_operators_are_whole_ones(device: str) -> None:
    """Schema, fake kernel and gradient agree, also for torch.compile."""
    scene, d_image = scene_of(neighbours(33), (5, 7), device), torch.randn(33, 3, device=device)
    leaves = [tensor.clone().requires_grad_() for tensor in scene[:3]]
    check_schema(torch.ops.nurec_lite.over_sky.default, (*leaves, scene[3]))
    args = (*scene[1:], d_image)
    check_schema(torch.ops.nurec_lite.over_sky_backward.default, args)


def test_no_second_derivative() -> None:
    features, transmittance, sky, directions = scene_of(scattered(9), (5, 7))
    sky.requires_grad_()
    (first,) = torch.autograd.grad(fused(features, transmittance, sky, directions).sum(), sky, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        first.sum().backward()


def test_a_gradient_of_directions_is_refused_and_not_zero() -> None:
    *rest, directions = scene_of(scattered(9), (5, 7))
    with pytest.raises(RuntimeError, match="gives directions no gradient"):
        torch.ops.nurec_lite.over_sky(*rest, directions.requires_grad_()).sum().backward()


def wrong(**changed: Tensor) -> Scene:
    known = {"features": (5, 3), "transmittance": (5,), "sky": (3, 4, 8), "directions": (5, 3)}
    return tuple(changed.get(name, torch.zeros(shape)) for name, shape in known.items())  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        (wrong(features=torch.zeros(4, 3)), ValueError, "features has shape"),
        (wrong(features=torch.zeros(5, 2)), ValueError, "features has shape"),
        (wrong(transmittance=torch.zeros(5, 1)), ValueError, "transmittance has shape"),
        (wrong(sky=torch.zeros(4, 4, 8)), ValueError, "sky has shape"),
        (wrong(sky=torch.zeros(3, 0, 8)), ValueError, "height of sky is 0"),
        (wrong(sky=torch.zeros(3, 4, 0)), ValueError, "width of sky is 0"),
        (wrong(directions=torch.zeros(6, 3)), ValueError, "directions has shape"),
        (wrong(directions=torch.zeros(3, 5).T), ValueError, "directions is not contiguous"),
        (wrong(features=torch.zeros(5, 3).double()), TypeError, "features is Double, but must be Float"),
        (wrong(sky=torch.zeros(3, 4, 8).half()), TypeError, "sky is Half, but must be Float"),
    ],
)
def test_what_does_not_fit_is_refused(given: Scene, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        torch.ops.nurec_lite.over_sky(*given)


def test_a_gradient_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="d_image has shape"):
        torch.ops.nurec_lite.over_sky_backward(*wrong()[1:], torch.zeros(4, 3))


# ---- in training


def stages_with(options: dict[str, Any]) -> Stages:
    return build_stages(options, base_stages("native", torch.device("cpu")))


def test_the_option_sets_the_plan() -> None:
    found = stages_with(OPTIONS)
    assert found.changes.claims == {"plan.fused_sky": "fused_sky"} and found.plan == replace(CPU_PLAN, fused_sky=True)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_plan_chooses_the_sky(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directions with a gradient get it as without the option."""
    fallback = torch_fallbacks(compiled).over_sky
    assert (fallback is plain.over_sky) is not compiled
    called: list[str] = []
    monkeypatch.setattr(
        native, "torch_fallbacks", lambda by: TorchFallbacks(print, lambda *_: called.append(f"torch {by}"))
    )  # type: ignore[arg-type]
    monkeypatch.setattr(native, "over_sky", lambda *args: called.append("fused") or args[4]())
    for fused in (False, True):
        plan = replace(CUDA_PLAN, compile_rest=compiled, fused_sky=fused)
        native.composite(*[torch.zeros(1)] * 4, plan)
    assert called == [f"torch {compiled}", "fused", f"torch {compiled}"]


def rendered(options: dict[str, Any], learned: bool) -> tuple[Tensor, list[Tensor]]:
    """An image of a few Gaussians, and gradients of the map and of the pose."""
    torch.manual_seed(0)
    view = make_camera_view(31, 17, 12.0, "top_to_bottom", CAMERA_MOTION)
    gaussians, sky = to_float32(make_gaussians(in_frustum(view, 15, 3, 8))), make_sky().float().requires_grad_()
    view, stages = view_float32(view), stages_with(options)
    pose = view.T_world_sensor_start.clone().requires_grad_(learned)
    view = replace(view, T_world_sensor_start=pose)
    pairs = stages.render.tile(stages.render.project(gaussians, view), view)
    image = stages.render.render_camera(gaussians, view, pairs, sky).colour
    weights = torch.linspace(-1, 1, image.numel()).view_as(image)
    wanted = (sky, pose) if learned else (sky,)
    return image.detach(), list(torch.autograd.grad((weights * image).sum(), wanted))


@pytest.mark.parametrize("learned", [False, True])
def test_an_image_is_the_plain_one(learned: bool) -> None:
    """With a pose that is learned to the bit, by the plain sky, and else closely."""
    (image, gradients), (expected, of_plain) = rendered(OPTIONS, learned), rendered({}, learned)
    tolerance = {"atol": 0, "rtol": 0} if learned else {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(image, expected, **tolerance)
    torch.testing.assert_close(gradients, of_plain, **tolerance)


def test_steps_are_those_without_it() -> None:
    """Three, before anything is relocated."""
    found = []
    for options in (OPTIONS, {}):
        state, stages = tiny_state(tiny_config()), stages_with(options)
        for state.step in range(3):
            terms = step(stages, state).terms
        found.append((float(terms["image"]), state.scene.parameters()))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-4)
    for name, value in found[0][1].items():
        torch.testing.assert_close(value, found[1][1][name], rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
def test_a_graph_of_it_is_replayed() -> None:
    """Forward and backward are captured once, and take the tensors of their launch."""
    scene = scene_of(neighbours(1000), (16, 32), "cuda")
    d_image = torch.randn(1000, 3, device="cuda")
    leaves = [tensor.requires_grad_() for tensor in scene[:3]]
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        torch.autograd.grad(fused(*leaves, scene[3]), leaves, d_image)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        image = fused(*leaves, scene[3])
        gradients = torch.autograd.grad(image, leaves, d_image)
    other = scene_of(scattered(1000), (16, 32), "cuda")
    with torch.no_grad():
        for tensor, value in zip(scene, other, strict=True):
            tensor.copy_(value)
    for _ in range(2):  # the map's gradient begins at zero each time
        graph.replay()
    assert_close([image.detach(), *gradients], with_gradients(plain.over_sky, exact(other), d_image))


# ---- its benchmark

SMALL = ["--device", "cpu", "--sizes", "40x30", "--rounds", "2", "--warmup", "1", "--copy-mib", "1"]


def test_the_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert bench_fused_sky.main([*SMALL, "--out", str(out)]) == 0
    report = json.loads(out.read_text())
    assert {(row["version"], row["on"]) for row in report["rows"]} == {
        (version, f"40x30 {what}") for version in ("plain", "fused") for what in ("forward", "and backward")
    }
    assert bench_fused_sky.least_bytes("40x30", "and backward") == 4 * 40 * 30 * 18
    assert "fused" in capsys.readouterr().out


def test_the_benchmark_does_not_time_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(bench_fused_sky.VERSIONS, "plain", lambda *scene: 1.01 * plain.over_sky(*scene))
    assert bench_fused_sky.main([*SMALL, "--out", str(tmp_path / "out.json")]) == 1
    report = json.loads((tmp_path / "out.json").read_text())
    assert list(report["disagreements"]) == ["plain, 40x30"]
    assert {row["version"] for row in report["rows"]} == {"fused"}
