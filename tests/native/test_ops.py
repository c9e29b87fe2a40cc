# SPDX-License-Identifier: Apache-2.0
"""The operators torch.ops.nurec_lite.*: that torch's own checks accept them, and that wrong input raises an exception, never more."""

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from operators import Arguments, check_schema, names_of, packed
from operators import call as called
from operators import operator as operator_of
from parity import DEVICES, SHARED, aimed, in_parts, plan_of
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
from torch import Tensor

from nurec_lite.native import ops
from nurec_lite.native import stages as native
from nurec_lite.native.operators.rays import pixels
from nurec_lite.native.operators.shared import _NO_CELLS, gaussian_args, lidar_directions, ray_and_list_args
from nurec_lite.splat.view_row import FIELDS, view_row
from nurec_lite.splat.views import LidarView

REFUSALS = (ValueError, TypeError, RuntimeError)
CALLS = (
    "rays camera",
    "rays lidar",
    "project camera",
    "project lidar",
    "project camera all",
    "project lidar all",
    "tile_camera",
    "tile_lidar",
    "tile_camera capacity",
    "tile_lidar capacity",
    "render camera",
    "render lidar",
    "render_backward camera",
    "render_backward lidar",
    "count_pairs camera",
    "count_pairs lidar",
)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    ops.load()
    monkeypatch.setenv("NUREC_LITE_CHECK", "1")  # CUDA looks at numbers only then
    return torch.device(request.param)


PLAIN = ("delays", "targets")  # of a ray, without a gradient


def operator(call: str) -> Any:
    return operator_of(call.split()[0])


def given(call: str, args: Arguments) -> tuple[Any, ...]:
    return packed(call.split()[0], args)


def arguments(call: str, device: torch.device, n: int = 20) -> Arguments:
    """A call that works: n Gaussians, a third of them still, that a camera of 9x7 pixels or a lidar of 384 rays sees."""
    if "lidar" in call:
        view: Any = aimed(make_lidar_view(make_lidar(12, 32), LIDAR_MOTION))
        g = make_gaussians(around(n, 3, 8), speed=2.0)
    else:
        view = make_camera_view(9, 7, 8.0, "top_to_bottom", CAMERA_MOTION)
        g = make_gaussians(in_frustum(view, n, 3, 8), speed=2.0)
    g, view, plan = to_float32(g), view_float32(view), plan_of(device)
    cells = view.lidar.cells(plan.cell_beams, plan.cell_steps) if isinstance(view, LidarView) else _NO_CELLS
    parts, lidar = in_parts(g, n // 3), isinstance(view, LidarView)
    projection = native.project(parts, view)
    pairs = native.tile(projection, view, plan=plan)
    rays, features = view.rays(), g.lidar if lidar else torch.rand(n, 3)
    pool = {
        **gaussian_args(parts)._asdict(), "features": features, **ray_and_list_args(rays, pairs)[0]._asdict(),
        "view": view_row(view), "moving": True,
        "rays": pairs.rays, "offsets": pairs.offsets, "gaussians": pairs.gaussians, "visible": pairs.visible, **SHARED._asdict(),
        "is_camera": not lidar, "sensor": int(not lidar), "edges": cells.edges, "columns": cells.columns, "all": call.endswith("all"),
        "depth_bits": 24 if call.endswith("all") else 32, "shapes": False, "occupied": None, "in_place": False, "with_origins": True,
        "indices": projection.index, "low": projection.low, "high": projection.high,
        "width": 9, "height": 7, "tile": plan.tile, "max_rays": plan.cell_rays, "capacity": 50 if "capacity" in call else -1,
    }  # fmt: skip
    name = call.split()[0]
    if name == "render_backward":
        out = called("render", pool)[:3]
        outputs = ("out", "distance", "transmittance")
        pool |= {k: v for k, v in zip(outputs, out, strict=True)} | {"ray_gradients": True}
        pool |= {f"d_{k}": torch.randn_like(v) for k, v in zip(outputs, out, strict=True)}
    if name == "project":
        pool |= {"features": None, "blocks": None}
    if name in ("rays", "project", "tile_lidar"):  # directions in the sensor's frame
        pool["directions"] = lidar_directions(view)
    if name == "rays":
        local = (pool["directions"], view.fractions) if lidar else pixels(view)
        pool |= {k: v for k, v in zip(("directions", "fractions"), local, strict=True)}
    found = {k: pool[k] for k in names_of(name)}
    return {k: v.to(device) if isinstance(v, Tensor) else v for k, v in found.items()}


def of_camera(args: Arguments) -> bool:
    return bool(args.get("is_camera") or args.get("sensor"))


def tensors_of(args: Arguments) -> Iterator[tuple[str, Tensor]]:
    """Those that the operator looks at: a camera's project has no use for the grid of a lidar, and its rays have no targets."""
    unused = ("directions", "edges") if of_camera(args) else ()
    tensors = ((k, v) for k, v in args.items() if isinstance(v, Tensor) and k not in unused)
    return ((k, v) for k, v in tensors if k != "targets" or len(v))


def refused(call: str, args: Arguments, *words: str) -> None:
    with pytest.raises(REFUSALS) as caught:
        operator(call)(*given(call, args))
    for word in words:
        assert word in str(caught.value), f"no '{word}' in: {caught.value}"


# ---- torch's own checks


@pytest.mark.parametrize("call", CALLS)
def test_torch_s_own_checks(call: str, device: torch.device) -> None:
    args = arguments(call, device)
    if call.startswith("render "):
        args |= {k: v.requires_grad_() for k, v in tensors_of(args) if v.is_floating_point() and k not in PLAIN}
    check_schema(operator(call), given(call, args))


@pytest.mark.parametrize("call", CALLS)
def test_torch_s_own_checks_without_gaussians(call: str, device: torch.device) -> None:
    check_schema(operator(call), given(call, arguments(call, device, 0)))


@pytest.mark.parametrize("call", ["render_backward camera", "render_backward lidar"])
def test_torch_s_own_checks_without_gradients_of_rays(call: str, device: torch.device) -> None:
    check_schema(operator(call), given(call, arguments(call, device) | {"ray_gradients": False}))


# ---- gradients as autograd sees them


def test_the_median_carries_no_gradient(device: torch.device) -> None:
    args = arguments("render lidar", device)
    out = called("render", args | {"means": args["means"].requires_grad_()})
    assert [x.requires_grad for x in out] == [True, True, True, False]


def test_one_input_alone_may_want_a_gradient(device: torch.device) -> None:
    for name in ("features", "opacities", "directions"):
        args = arguments("render camera", device)
        args[name].requires_grad_()
        out = called("render", args)
        (gradient,) = torch.autograd.grad(out[0].sum(), args[name])
        assert gradient.shape == args[name].shape and gradient.any()


def test_second_derivatives_are_an_error_and_not_zero(device: torch.device) -> None:
    args = arguments("render camera", device)
    out = called("render", args | {"means": args["means"].requires_grad_()})
    (first,) = torch.autograd.grad(out[0].sum(), args["means"], create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(first.sum(), args["means"])


def test_a_loss_that_is_not_a_number_is_named_in_the_backward_pass(device: torch.device) -> None:
    args = arguments("render camera", device)
    out = called("render", args | {"means": args["means"].requires_grad_()})
    with pytest.raises(ValueError, match="d_out holds nan in row"):
        (out[0] * math.nan).sum().backward()


# ---- wrong input


@pytest.mark.parametrize("call", CALLS)
def test_wrong_shapes(call: str, device: torch.device) -> None:
    args = arguments(call, device)
    for name, tensor in tensors_of(args):
        refused(call, args | {name: tensor[None]}, name, "shape", "must have")
        if tensor.dim() == 2 and name not in ("rays", "features", "out", "d_out"):
            refused(call, args | {name: tensor[:, 1:].contiguous()}, name, "shape", "must have")
        sizes = ("still_means", "means", "directions", "indices", "gaussians", "edges", "rays")
        if name not in sizes:  # those give them
            refused(call, args | {name: tensor[1:].contiguous()}, name, "shape", "must have")


@pytest.mark.parametrize("call", CALLS)
def test_wrong_dtypes(call: str, device: torch.device) -> None:
    args = arguments(call, device)
    for name, tensor in tensors_of(args):
        wrong = torch.float64 if tensor.is_floating_point() else torch.int32
        right = {torch.float32: "Float", torch.int64: "Long", torch.uint8: "Byte"}[tensor.dtype]
        refused(call, args | {name: tensor.to(wrong)}, name, "must be " + right)
        refused(call, args | {name: tensor.bool()}, name, "must be " + right)


@pytest.mark.parametrize("call", CALLS)
def test_tensors_that_are_not_contiguous(call: str, device: torch.device) -> None:
    args = arguments(call, device)
    for name, tensor in tensors_of(args):
        if tensor.numel() == 1:  # a lidar of one band has one edge: contiguous however it is strided
            continue
        strided = torch.stack([tensor, tensor], dim=-1)[..., 0]
        assert not strided.is_contiguous()
        refused(call, args | {name: strided}, name, "not contiguous")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("call", CALLS)
def test_numbers_that_are_not_finite(call: str, bad: float, device: torch.device) -> None:
    args = arguments(call, device)
    for name, tensor in tensors_of(args):
        if tensor.is_floating_point():
            wrong = tensor.clone()
            wrong[-1] = bad
            refused(call, args | {name: wrong}, f"{name} holds {bad} in row {len(tensor) - 1}", "must be finite")


@pytest.mark.gpu
@pytest.mark.parametrize("call", CALLS)
def test_tensors_on_another_device(call: str) -> None:
    ops.load()
    args = arguments(call, torch.device("cuda"))
    for name, tensor in tensors_of(args):
        refused(call, args | {name: tensor.cpu()})


@pytest.mark.gpu
def test_cuda_looks_at_numbers_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    ops.load()
    args = arguments("render camera", torch.device("cuda"))
    args["opacities"][0] = math.nan
    monkeypatch.delenv("NUREC_LITE_CHECK", raising=False)
    called("render", args)
    monkeypatch.setenv("NUREC_LITE_CHECK", "1")
    refused("render camera", args, "opacities")


@pytest.mark.parametrize("scale", [0.0, -0.1])
def test_scales_that_are_not_positive(scale: float, device: torch.device) -> None:
    for call in ("project camera", "render lidar", "render_backward camera"):
        args = arguments(call, device)
        args["scales"][3, 1] = scale
        refused(call, args, "scales holds", "in row 3", "above 0")


@pytest.mark.parametrize("columns", [0, 1, 4])
@pytest.mark.parametrize("call", ["render camera", "render_backward camera"])
def test_features_are_two_or_three(call: str, columns: int, device: torch.device) -> None:
    args = arguments(call, device)
    args["features"] = torch.rand(20, columns, device=device)
    refused(call, args, f"features has {columns} columns", "3 (a camera's colour) or 2 (a lidar's")


@pytest.mark.parametrize("call", ["render camera", "render lidar", "render_backward camera", "render_backward lidar"])
@pytest.mark.parametrize(
    "what", ["offset falls", "offset beyond", "offset below", "member", "no member", "ray", "no ray"]
)
def test_lists_that_point_nowhere(call: str, what: str, device: torch.device) -> None:
    args = arguments(call, device)
    n, r, entries = len(args["scales"]), len(args["directions"]), len(args["gaussians"])
    middle = len(args["offsets"]) // 2
    name, place, value = {
        "offset falls": ("offsets", middle, 0),
        "offset beyond": ("offsets", -1, entries + 1),
        "offset below": ("offsets", 0, -1),
        "member": ("gaussians", entries // 2, n),
        "no member": ("gaussians", -1, -1),
        "ray": ("rays", (-1, 0), r),
        "no ray": ("rays", (0, 0), -2),
    }[what]
    args[name] = args[name].clone()
    args[name][place] = value
    if what == "offset falls":
        args[name][middle - 1] = 1
    refused(call, args, name, "ascend" if what == "offset falls" else "must be at least")


@pytest.mark.parametrize("size", [0, -1, -(2**62), 2**40, 2**62])
def test_sizes_that_are_none(size: int, device: torch.device) -> None:
    for call, names in (
        ("tile_camera", ("width", "height", "tile")),
        ("tile_lidar", ("columns", "max_rays")),
        ("project lidar", ("columns",)),
    ):
        args = arguments(call, device)
        for name in names:
            refused(call, args | {name: size}, f"{name} is {size}", "must be 1 to")


def test_edges_of_cells_that_fall(device: torch.device) -> None:
    for call in ("tile_lidar", "project lidar"):
        args = arguments(call, device)
        refused(call, args | {"edges": torch.tensor([0.1, 0.2, 0.15], device=device)}, "edges falls in row 2")


@pytest.mark.parametrize("call", ["project camera", "project lidar"])
def test_a_view_of_the_other_sensor(call: str, device: torch.device) -> None:
    args = arguments(call, device)
    refused(call, args | {"sensor": 1 - args["sensor"]}, f"view is of a {call.split()[1]}, but is_camera")


@pytest.mark.parametrize("call", CALLS)
def test_lists_that_lack_a_tensor(call: str, device: torch.device) -> None:
    args = arguments(call, device)
    values = list(given(call, args))
    for k, value in enumerate(values):
        unsafe_operations = operator(call)._schema.arguments[k].name != "grid" or not of_camera(args)
        if isinstance(value, list) and value and unsafe_operations:
            with pytest.raises(ValueError, match=rf" has {len(value) - 1} tensors, but must have {len(value)}: "):
                operator(call)(*values[:k], value[1:], *values[k + 1 :])


@pytest.mark.parametrize("call", ["project camera", "render lidar", "render_backward camera"])
def test_a_centre_is_subtracted_from_means(call: str, device: torch.device) -> None:
    args = arguments(call, device)
    centre = torch.tensor(
        [0.5, -0.25, 2.0], device=device
    )  # powers of two: the means are the same to the last bit, or nearly
    moved = args | {k: args[k] + centre for k in ("still_means", "means")} | {"view": with_centre(args["view"], centre)}
    alone = {k: v - centre if k in ("still_means", "means") else v for k, v in moved.items()}
    alone["view"] = with_centre(args["view"], torch.zeros_like(centre))
    for a, b in zip(called(call.split()[0], moved), called(call.split()[0], alone), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5 * max(float(b.abs().max()), 1e-3) if b.numel() else 0)


def with_centre(view: Tensor, centre: Tensor) -> Tensor:
    view = view.clone()
    view[FIELDS["centre"]] = centre
    return view


def test_a_wrong_type_is_an_error(device: torch.device) -> None:
    args = arguments("tile_camera", device)
    refused("tile_camera", args | {"width": 9.5})
    refused("tile_camera", args | {"low": None})


# ---- empty input


def empty_lists(device: torch.device, tiles: int, rays: int) -> Arguments:
    """No entry, and no ray in any tile."""
    return {
        "rays": torch.full((tiles, rays), -1, device=device),
        "offsets": torch.zeros(tiles + 1, dtype=torch.int64, device=device),
        "gaussians": torch.zeros(0, dtype=torch.int64, device=device),
    }


@pytest.mark.parametrize("tiles", [(0, 0), (0, 16), (3, 0), (3, 16)], ids=str)
@pytest.mark.parametrize("n", [0, 20])
@pytest.mark.parametrize("r", [0, 5])
def test_lists_without_rays_or_gaussians(n: int, r: int, tiles: tuple[int, int], device: torch.device) -> None:
    args = arguments("render camera", device, n) | empty_lists(device, *tiles)
    args |= {k: args[k][:r].contiguous().requires_grad_(k != "delays") for k in ("origins", "directions", "delays")}
    features = args["features"].requires_grad_()
    out = called("render", args)
    assert [x.shape for x in out] == [(r, 3), (r,), (r,), (r,)]
    assert (out[2] == 1).all() and not any(x.any() for x in (out[0], out[1], out[3]))
    sums = torch.stack([x.sum() for x in out]).sum()
    gradients = torch.autograd.grad(sums, (features, args["origins"], args["directions"]))
    assert not any(x.any() for x in gradients)


def test_a_list_may_name_rays_that_no_gaussian_is_listed_for(device: torch.device) -> None:
    args = arguments("render camera", device)
    args |= {"offsets": torch.zeros_like(args["offsets"]), "gaussians": args["gaussians"][:0]}
    out = called("render", args)
    assert (out[2] == 1).all() and not out[0].any()


# ---- numbers that are finite and absurd


@pytest.mark.parametrize("call", CALLS)
def test_absurd_numbers_never_crash(call: str, device: torch.device) -> None:
    """A few entries of one or two tensors become huge, tiny or zero. The result is tensors or an exception."""
    rng, args = random.Random(5), arguments(call, device)
    names = [k for k, v in tensors_of(args) if v.is_floating_point()]
    for _ in range(60):
        changed = dict(args)
        for name in rng.sample(names, rng.choice([1, 1, 2])):
            changed[name] = args[name].clone()
            flat = changed[name].view(-1)
            value = rng.choice([3e38, -3e38, 1e20, -1e20, 1e-40, -1e-40, 0.0, -0.0, 1e-20, 7.0])
            flat[torch.tensor([rng.randrange(len(flat)) for _ in range(rng.choice([1, 3, len(flat)]))])] = value
        try:
            found = called(call.split()[0], changed)
        except REFUSALS:
            continue
        assert all(isinstance(x, Tensor) for x in found)


# ---- loading


def test_loading_twice_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ops.load()
    monkeypatch.setattr(ops, "library", None)
    monkeypatch.setattr(ops, "built", None)
    ops.load()
    ops.load_built()


def test_a_library_that_is_there_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checksum and that of its sources take 0.1 s of a start."""
    ops.load()
    looked: list[str] = []
    path = ops.library("")

    def built(architecture: str) -> Path:
        looked.append(architecture)
        return path

    for name in ("built", "library"):
        monkeypatch.setattr(ops, name, built)
    monkeypatch.setattr(ops, "_registered", [])
    monkeypatch.setattr(ops, "OPERATORS", ())
    ops.load_built()
    ops.load()
    assert looked == [ops._architecture()]


def test_numbers_too_small_to_be_normal_survive_loading() -> None:
    """A library linked with -ffast-math would flush them to zero in the whole process."""
    ops.load()
    assert torch.tensor(1e-40).mul(0.5).item() > 0 and 1e-310 * 0.5 > 0


@pytest.mark.parametrize("columns", [2, 3])
def test_rays_that_stand_still_need_no_origins(columns: int, device: torch.device) -> None:
    """moving=False is a short cut, not another result."""
    args = arguments("render camera", device)
    args["features"] = torch.rand(20, columns, device=device)
    args |= {k: torch.zeros_like(args[k]) for k in ("origins", "delays")}
    found = [called("render", args | {"moving": m}) for m in (False, True)]
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)


def test_a_camera_s_rays_have_no_targets(device: torch.device) -> None:
    args = arguments("render camera", device)
    args["targets"] = torch.ones(len(args["delays"]), 2, device=device)
    refused("render camera", args, "targets has 63 rows, but a camera's rays have none")
