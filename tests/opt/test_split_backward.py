# SPDX-License-Identifier: Apache-2.0
"""The option `split_backward`: a field of the plan, and gradients that are those of the shared kernel.

tests/native/test_parity_render.py compares every instance with the reference; there a camera's distance and poses have gradients. Here are
the kernels without them, which a training step runs.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from emulation import EMULATED
from operators import call, check_schema, packed
from parity import DEVICES, INSTANCES, SHARED, aimed, drivers_of, in_parts, plan_of, relative
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

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import parameters_of
from nurec_lite.native import ops
from nurec_lite.native import stages as native
from nurec_lite.native.operators.shared import gaussian_args, packed_view, ray_and_list_args
from nurec_lite.native.plan import CPU_PLAN, CUDA_PLAN, BackwardPlan
from nurec_lite.splat.tiles import PairList
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.step import step
from scripts.sanitize import MANY_TILES, filled_up

NAMES = ("split_backward", "launch_bounds", "shared_memory")
SPLIT = {"split_backward": parameters_of("split_backward")}
OWN = [pytest.param(plan, id=name) for plan, name in INSTANCES.items() if plan.split]
SPLIT_PLAN, ALL = BackwardPlan(True, False, False), BackwardPlan(True, True, True)
Values = dict[str, Tensor]  # by the names of single tensors
VIEWS = ("still camera", "moving camera", "lidar")
GRADIENTS = ("still_means", "still_quats", "means", "quats", "velocities", "scales", "opacities", "features")


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    ops.load()
    return torch.device(request.param)


def inputs(sensor: str, device: torch.device, n: int = 300) -> Values:
    """Inputs of the operator render, less `moving` and the plan: a third of the Gaussians stands still."""
    view: Any
    if sensor == "lidar":
        view = aimed(make_lidar_view(make_lidar(12, 64), LIDAR_MOTION))
        g = make_gaussians(around(n, 3, 8), speed=2.0, scales=(0.1, 0.8))
    else:
        view = make_camera_view(37, 29, 30.0, *(("top_to_bottom", CAMERA_MOTION) if "moving" in sensor else ()))
        g = make_gaussians(in_frustum(view, n, 3, 8), speed=2.0, scales=(0.1, 0.8))
    g, view = to_float32(g), view_float32(view)
    parts = in_parts(g, n // 3)
    pairs = replace(native.tile(native.project(parts, view), view, plan=plan_of(device)), visible=None)
    of_rays, lists = ray_and_list_args(view.rays(), pairs)
    features = g.lidar if sensor == "lidar" else torch.rand(n, 3)
    values = {**gaussian_args(parts)._asdict(), "features": features, **of_rays._asdict(), **lists._asdict()}
    values |= {"view": packed_view(view)}
    return {k: v.to(device) for k, v in values.items()}


def blended(values: Values, moving: bool, plan: BackwardPlan) -> dict[str, Tensor]:
    out = call("render", values | {"moving": moving, **plan._asdict()})
    return {k: v for k, v in zip(("out", "distance", "transmittance"), out, strict=False)}


def backward(
    values: Values,
    moving: bool,
    plan: BackwardPlan,
    outputs: dict[str, Tensor],
    d_outputs: dict[str, Tensor | None],
    with_rays: bool = False,
) -> list[Tensor]:
    d = {f"d_{k}": v for k, v in d_outputs.items()}
    rest = {"moving": moving, **plan._asdict(), "ray_gradients": with_rays}
    return call("render_backward", values | outputs | d | rest)


def gradients(
    values: Values, moving: bool, plan: BackwardPlan, with_distance: bool, with_rays: bool = False
) -> list[Tensor]:
    """Gradients by the operator itself, with the same weights for any instance."""
    outputs = blended(values, moving, plan)
    generator = torch.Generator().manual_seed(3)
    given: dict[str, Tensor | None] = {
        k: torch.randn(x.shape, generator=generator).to(x.device) for k, x in outputs.items()
    }
    given["distance"] = given["distance"] / 6 if with_distance else None  # type: ignore[operator]
    return backward(values, moving, plan, outputs, given, with_rays)


@cache
def by_shared(
    sensor: str, device: torch.device, n: int = 300, with_distance: bool = False, with_rays: bool = False
) -> tuple[Values, list[Tensor]]:
    """Inputs, and the gradients of the shared kernel, which every instance is compared with; nobody may write into them."""
    torch.manual_seed(0)
    values = inputs(sensor, device, n)
    return values, gradients(values, sensor != "still camera", SHARED, with_distance, with_rays)


def assert_same(found: list[Tensor], expected: list[Tensor], device: torch.device) -> None:
    for a, b in zip(found, expected, strict=True):
        if drivers_of(device) == "cpu":
            assert torch.equal(a, b)
        else:
            assert relative(a.cpu(), b.cpu()) < 3e-5


# ---- the plan


def test_the_option_sets_a_field_of_the_plan() -> None:
    stages = build_stages(SPLIT, replace(base_stages("native", torch.device("cpu")), device="cuda"))
    assert stages.changes.claims == {"plan.split_backward": "split_backward"}
    assert stages.plan is not None and stages.plan.split_backward and stages.plan.backward == SPLIT_PLAN
    assert {
        f.keywords["plan"] for f in (stages.render.tile, stages.render.render_camera, stages.render.render_lidar)
    } == {stages.plan}  # type: ignore[attr-defined]
    assert CPU_PLAN.backward == CUDA_PLAN.backward == SHARED


def test_it_needs_compiled_kernels() -> None:
    with pytest.raises(
        OptionError, match="'split_backward' cannot run here: it changes compiled kernels; use ops=native"
    ):
        build_stages(SPLIT, reference_stages())


@pytest.mark.parametrize(
    "names",
    [NAMES[:1], NAMES[:2], [NAMES[0], NAMES[2]]],
)
def test_on_a_cpu_they_could_do_nothing_and_are_refused(names: list[str]) -> None:
    with pytest.raises(OptionError, match=r"cannot run here: it changes kernels of the GPU alone; use device=cuda"):
        build_stages({name: parameters_of(name) for name in names}, base_stages("native", torch.device("cpu")))


# ---- the kernels


@pytest.mark.parametrize("plan", OWN)
@pytest.mark.parametrize("with_distance", [False, True], ids=["colour", "distance"])
@pytest.mark.parametrize("sensor", VIEWS)
def test_gradients_are_those_of_the_shared_kernel(
    sensor: str, with_distance: bool, plan: BackwardPlan, device: torch.device
) -> None:
    values, expected = by_shared(sensor, device, with_distance=with_distance)
    found = gradients(values, sensor != "still camera", plan, with_distance)
    names = {name for name, x in zip(GRADIENTS, expected, strict=True) if x.any()}
    assert names == set(GRADIENTS) - ({"velocities"} if sensor == "still camera" else set())
    assert_same(found, expected, device)


@pytest.mark.parametrize("plan", OWN)
@pytest.mark.parametrize("sensor", VIEWS)
def test_gradients_of_rays(sensor: str, plan: BackwardPlan, device: torch.device) -> None:
    """A view that stands still may be called as one that does; its origins have gradients all the same."""
    values, expected = by_shared(sensor, device, with_rays=True)
    found = gradients(values, sensor != "still camera", plan, False, True)
    assert found[9].any() and found[8].any()
    assert_same(found, expected, device)


@pytest.mark.parametrize("n", [0, 1, 31, 33])
@pytest.mark.parametrize("plan", OWN)
@pytest.mark.parametrize("sensor", VIEWS)
def test_few_gaussians(sensor: str, plan: BackwardPlan, n: int, device: torch.device) -> None:
    values, expected = by_shared(sensor, device, n)
    found = gradients(values, sensor != "still camera", plan, False)
    assert_same(found, expected, device)


def with_tiles(values: Values, tiles: int) -> Values:
    """The values with that many tiles: an image of MANY_TILES has an instance of its own."""
    pairs = filled_up(PairList(*(values[k] for k in ("rays", "offsets", "gaussians"))), tiles)
    return values | {"rays": pairs.rays, "offsets": pairs.offsets, "gaussians": pairs.gaussians}


@pytest.mark.parametrize("plan", OWN)
@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("sensor", VIEWS)
def test_many_tiles(sensor: str, missing: int, plan: BackwardPlan, device: torch.device) -> None:
    values, expected = by_shared(sensor, device)
    found = gradients(with_tiles(values, MANY_TILES - missing), sensor != "still camera", plan, False)
    assert_same(found, expected, device)


@cache
def in_one_tile(sensor: str, many: bool, entries: int, device: torch.device) -> tuple[Values, list[Tensor]]:
    """Inputs as of `by_shared`, with a list of so many faint Gaussians: no ray ends before the list does."""
    torch.manual_seed(0)
    values = inputs(sensor, device, 600)
    values["opacities"] = 0.02 * values["opacities"]
    slots = torch.full((1, 256), -1, device=device)
    slots[0, :37] = torch.randperm(len(values["directions"]))[:37].to(device)
    values |= {"rays": slots, "offsets": torch.tensor([0, entries], device=device)}
    values |= {"gaussians": torch.arange(entries, device=device)}
    values = with_tiles(values, MANY_TILES) if many else values
    return values, gradients(values, True, SHARED, False)


@pytest.mark.parametrize("entries", [0, 1, 127, 128, 129, 256, 257, 600])
@pytest.mark.parametrize("plan", OWN)
@pytest.mark.parametrize("sensor, many", [("still camera", False), ("still camera", True), ("lidar", False)])
def test_lists_of_any_length(sensor: str, many: bool, plan: BackwardPlan, entries: int, device: torch.device) -> None:
    """About the numbers of rows that are staged at a time."""
    values, expected = in_one_tile(sensor, many, entries, device)
    found = gradients(values, True, plan, False)
    assert bool(expected[7].any()) == (entries > 1)  # the first one is not seen
    assert_same(found, expected, device)


@pytest.mark.parametrize("plan", [SHARED, ALL])
def test_no_gradient_of_the_distance_is_one_of_zeros(plan: BackwardPlan, device: torch.device) -> None:
    for sensor in VIEWS:
        values = inputs(sensor, device, 40)
        outputs = blended(values, True, plan)
        d_outputs = {k: torch.randn_like(x) for k, x in outputs.items()}
        zeros = torch.zeros_like(outputs["distance"])
        found = [backward(values, True, plan, outputs, d_outputs | {"distance": d}) for d in (None, zeros)]
        assert_same(found[0], found[1], device)


# ---- the operator


@pytest.mark.parametrize("plan", [BackwardPlan(False, *two) for two in ((True, False), (False, True), (True, True))])
def test_instances_that_are_none(plan: BackwardPlan, device: torch.device) -> None:
    values = inputs("lidar", device, 5)
    with pytest.raises(
        ValueError, match="launch_bounds and half_staging are about the kernels of split, which is false"
    ):
        blended(values, True, plan)
    outputs = blended(values, True, SHARED)
    with pytest.raises(ValueError, match="which is false"):
        backward(values, True, plan, outputs, dict(outputs))


@pytest.mark.parametrize("plan", OWN)
def test_torch_s_own_checks(plan: BackwardPlan, device: torch.device) -> None:
    values = inputs("moving camera", device, 20)
    learned = values.keys() - {"delays", "targets", "view"}
    values = {k: v.requires_grad_(v.is_floating_point() and k in learned) for k, v in values.items()}
    check_schema(torch.ops.nurec_lite.render.default, packed("render", values | {"moving": True, **plan._asdict()}))


def test_autograd_passes_on_that_nothing_depends_on_the_distance(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, seen = inputs("still camera", device, 20), []
    features = values["features"].requires_grad_()
    out = blended(values, False, SPLIT_PLAN)
    operator = torch.ops.nurec_lite.render_backward

    def noted(*args: Any) -> Any:
        seen.append(args[8])  # d_distance
        return operator(*args)

    monkeypatch.setattr(torch.ops.nurec_lite, "render_backward", noted)
    (one,) = torch.autograd.grad(out["out"].sum(), features, retain_graph=True)
    (two,) = torch.autograd.grad((out["out"].sum(), out["distance"].sum()), features, retain_graph=True)
    (none,) = torch.autograd.grad(out["distance"].sum(), features)
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
        stages = build_stages(options, replace(base_stages("native", torch.device("cpu")), device="cuda"))
        for state.step in range(2):
            step(stages, state)
        trained.append(state.scene.parameters())
    assert all(torch.equal(trained[0][name], value) for name, value in trained[1].items())
