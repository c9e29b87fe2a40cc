# SPDX-License-Identifier: Apache-2.0
"""The option `split_backward`: a field of the plan, and gradients that are those of the shared kernel.

tests/native/test_parity_render.py compares every instance with the reference; there a camera's distance and poses have gradients. Here are
the kernels without them, which a training step runs.
"""

from typing import Any

import pytest
import torch
from emulation import EMULATED
from parity import DEVICES, INSTANCES, drivers_of, in_parts, plan_of, relative
from splat_scenes import (
    CAMERA_MOTION,
    LIDAR_MOTION,
    around,
    in_frustum,
    make_camera_view,
    make_gaussians,
    make_lidar,
    make_lidar_view,
    to_float32,
    view_float32,
)
from tiny_capture import tiny_state
from torch import Tensor
from torch.library import opcheck

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import parameters_of
from nurec_lite.native import ops
from nurec_lite.native import stages as native
from nurec_lite.native.plan import CPU_PLAN, CUDA_PLAN
from nurec_lite.splat.tiles import PairList
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.step import step
from scripts.sanitize import MANY_TILES, filled_up

NAMES = ("split_backward", "launch_bounds", "shared_memory")
SPLIT = {"split_backward": parameters_of("split_backward")}
OWN = [pytest.param(n, id=name) for n, name in INSTANCES.items() if n]
VIEWS = ("still camera", "moving camera", "lidar")
GRADIENTS = ("still_means", "still_quats", "means", "quats", "velocities", "scales", "opacities", "features")


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    ops.load()
    return torch.device(request.param)


def inputs(sensor: str, device: torch.device, n: int = 300) -> list[Any]:
    """Of the operator render, less `moving` and `backward`: a third of the Gaussians stands still."""
    view: Any
    if sensor == "lidar":
        view = make_lidar_view(make_lidar(12, 64), LIDAR_MOTION)
        g = make_gaussians(around(n, 3, 8), speed=2.0, scales=(0.1, 0.8))
    else:
        view = make_camera_view(37, 29, 30.0, *(("top_to_bottom", CAMERA_MOTION) if "moving" in sensor else ()))
        g = make_gaussians(in_frustum(view, n, 3, 8), speed=2.0, scales=(0.1, 0.8))
    g, view = to_float32(g), view_float32(view)
    parts = in_parts(g, n // 3)
    pairs = native.tile(native.project(parts, view), view, plan=plan_of(device))
    rays, features = view.rays(), g.lidar if sensor == "lidar" else torch.rand(n, 3)
    placed = list(native.placed(parts))
    for k in (0, 2):  # means, as the operators take them without a centre
        placed[k] = placed[k] - view.centre()
    values = [*placed, features, rays.origins, rays.directions, rays.delays]
    values += [pairs.rays, pairs.offsets, pairs.gaussians]
    return [v.to(device) for v in values]


def gradients(
    values: list[Any], moving: bool, backward: int, with_distance: bool, with_rays: bool = False
) -> list[Tensor]:
    """By the operator itself, of the same weights whatever the instance."""
    out = torch.ops.nurec_lite.render(*values, moving, backward)[:3]
    generator = torch.Generator().manual_seed(3)
    d_out = [torch.randn(x.shape, generator=generator).to(x.device) for x in out]
    given = [d_out[0], d_out[1] / 6 if with_distance else None, d_out[2]]
    found = torch.ops.nurec_lite.render_backward(*values, moving, *out, *given, with_rays, backward)
    return list(found[: 10 if with_rays else 8])


def assert_same(found: list[Tensor], expected: list[Tensor], device: torch.device) -> None:
    for a, b in zip(found, expected, strict=True):
        if drivers_of(device) == "cpu":
            assert torch.equal(a, b)
        else:
            assert relative(a.cpu(), b.cpu()) < 3e-5


# ---- the plan


def test_the_option_sets_a_field_of_the_plan() -> None:
    stages = build_stages(SPLIT, base_stages("native", torch.device("cpu")))
    assert stages.claims == {"plan.split_backward": "split_backward"}
    assert stages.plan is not None and stages.plan.split_backward and stages.plan.backward == 1
    assert {f.keywords["plan"] for f in (stages.tile, stages.render_camera, stages.render_lidar)} == {stages.plan}  # type: ignore[attr-defined]
    assert CPU_PLAN.backward == CUDA_PLAN.backward == 0


def test_it_needs_compiled_kernels() -> None:
    with pytest.raises(
        OptionError, match="'split_backward' cannot run here: it changes compiled kernels; use ops=native"
    ):
        build_stages(SPLIT, reference_stages())


# ---- the kernels


@pytest.mark.parametrize("backward", OWN)
@pytest.mark.parametrize("with_distance", [False, True], ids=["colour", "distance"])
@pytest.mark.parametrize("sensor", VIEWS)
def test_gradients_are_those_of_the_shared_kernel(
    sensor: str, with_distance: bool, backward: int, device: torch.device
) -> None:
    values, moving = inputs(sensor, device), sensor != "still camera"
    found, expected = (gradients(values, moving, b, with_distance) for b in (backward, 0))
    names = {name for name, x in zip(GRADIENTS, expected, strict=True) if x.any()}
    assert names == set(GRADIENTS) - ({"velocities"} if sensor == "still camera" else set())
    assert_same(found, expected, device)


@pytest.mark.parametrize("backward", OWN)
@pytest.mark.parametrize("sensor", VIEWS)
def test_gradients_of_rays(sensor: str, backward: int, device: torch.device) -> None:
    """A view that stands still may be called as one that does; its origins have gradients all the same."""
    values = inputs(sensor, device)
    found, expected = (gradients(values, sensor != "still camera", b, False, True) for b in (backward, 0))
    assert found[9].any() and found[8].any()
    assert_same(found, expected, device)


@pytest.mark.parametrize("n", [0, 1, 31, 33])
@pytest.mark.parametrize("backward", OWN)
@pytest.mark.parametrize("sensor", VIEWS)
def test_few_gaussians(sensor: str, backward: int, n: int, device: torch.device) -> None:
    values = inputs(sensor, device, n)
    found, expected = (gradients(values, sensor != "still camera", b, False) for b in (backward, 0))
    assert_same(found, expected, device)


def with_tiles(values: list[Any], tiles: int) -> list[Any]:
    """So many: an image of MANY_TILES has an instance of its own."""
    pairs = filled_up(PairList(*values[11:]), tiles)
    return [*values[:11], pairs.rays, pairs.offsets, pairs.gaussians]


@pytest.mark.parametrize("backward", OWN)
@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("sensor", VIEWS)
def test_many_tiles(sensor: str, missing: int, backward: int, device: torch.device) -> None:
    values = inputs(sensor, device)
    expected = gradients(values, sensor != "still camera", 0, False)
    found = gradients(with_tiles(values, MANY_TILES - missing), sensor != "still camera", backward, False)
    assert_same(found, expected, device)


@pytest.mark.parametrize("entries", [0, 1, 127, 128, 129, 256, 257, 600])
@pytest.mark.parametrize("backward", OWN)
@pytest.mark.parametrize("sensor, many", [("still camera", False), ("still camera", True), ("lidar", False)])
def test_lists_of_any_length(sensor: str, many: bool, backward: int, entries: int, device: torch.device) -> None:
    """About the numbers of rows that are staged at a time: faint Gaussians, so that no ray ends before the list does."""
    values = inputs(sensor, device, 600)
    values[6] = 0.02 * values[6]
    slots = torch.full((1, 256), -1, device=device)
    slots[0, :37] = torch.randperm(values[9].shape[0])[:37].to(device)
    values[11:] = [slots, torch.tensor([0, entries], device=device), torch.arange(entries, device=device)]
    values = with_tiles(values, MANY_TILES) if many else values
    found, expected = (gradients(values, True, b, False) for b in (backward, 0))
    assert bool(expected[7].any()) == (entries > 1)  # the first one is not seen
    assert_same(found, expected, device)


@pytest.mark.parametrize("backward", [0, 7])
def test_no_gradient_of_the_distance_is_one_of_zeros(backward: int, device: torch.device) -> None:
    for sensor in VIEWS:
        values = inputs(sensor, device, 40)
        out = torch.ops.nurec_lite.render(*values, True, backward)[:3]
        d_out = [torch.randn_like(out[0]), torch.zeros_like(out[1]), torch.randn_like(out[2])]
        found = [
            torch.ops.nurec_lite.render_backward(*values, True, *out, d_out[0], d, d_out[2], False, backward)
            for d in (None, d_out[1])
        ]
        assert_same(found[0][:8], found[1][:8], device)


# ---- the operator


@pytest.mark.parametrize("backward", [-1, 2, 4, 6, 8, 9])
def test_instances_that_are_none(backward: int, device: torch.device) -> None:
    values = inputs("lidar", device, 5)
    with pytest.raises(ValueError, match=f"backward is {backward}, but must be 0 or one of 1, 3, 5 and 7"):
        torch.ops.nurec_lite.render(*values, True, backward)
    out = torch.ops.nurec_lite.render(*values, True, 0)[:3]
    with pytest.raises(ValueError, match="must be 0 or one of"):
        torch.ops.nurec_lite.render_backward(*values, True, *out, *out, False, backward)


@pytest.mark.parametrize("backward", OWN)
def test_torch_s_own_checks(backward: int, device: torch.device) -> None:
    values = inputs("moving camera", device, 20)
    values = [v.requires_grad_() if v.is_floating_point() and k != 10 else v for k, v in enumerate(values)]
    opcheck(torch.ops.nurec_lite.render.default, (*values, True, backward))


def test_autograd_passes_on_that_nothing_depends_on_the_distance(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, seen = inputs("still camera", device, 20), []
    values[7].requires_grad_()
    out = torch.ops.nurec_lite.render(*values, False, 1)
    operator = torch.ops.nurec_lite.render_backward

    def noted(*args: Any) -> Any:
        seen.append(args[19])
        return operator(*args)

    monkeypatch.setattr(torch.ops.nurec_lite, "render_backward", noted)
    (one,) = torch.autograd.grad(out[0].sum(), values[7], retain_graph=True)
    (two,) = torch.autograd.grad((out[0].sum(), out[1].sum()), values[7], retain_graph=True)
    (none,) = torch.autograd.grad(out[1].sum(), values[7])
    assert seen[0] is None and isinstance(seen[1], Tensor) and isinstance(seen[2], Tensor)
    torch.testing.assert_close(one, two)
    assert not none.any() and one.any()


# ---- training


@pytest.mark.skipif(EMULATED, reason="is about the CPU's own kernels, which know one way")
@pytest.mark.parametrize("names", [NAMES[:1], NAMES[:2], NAMES], ids=len)
def test_training_on_a_cpu_is_bitwise_the_baseline_s(names: tuple[str, ...]) -> None:
    trained = []
    for options in ({}, {name: parameters_of(name) for name in names}):
        state = tiny_state()
        stages = build_stages(options, base_stages("native", torch.device("cpu")))
        for state.step in range(2):
            step(stages, state)
        trained.append(state.scene.parameters())
    assert all(torch.equal(trained[0][name], value) for name, value in trained[1].items())
