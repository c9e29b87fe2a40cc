# SPDX-License-Identifier: Apache-2.0
"""The operator render_views (kernels/raster_warps/views), which the CUDA drivers alone have: torch's own checks, its requirements, and
the refusal of wrong input. Its images: tests/native/test_inference.py."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from look_scenes import SENSORS, scene_for, views_of
from operators import check_schema
from parity import DEVICES
from torch import Tensor
from warp_tile_scenes import driven

from nurec_lite.native.inference import BatchedRenderer
from nurec_lite.native.operators.render_views import SceneArrays, SensorRays
from nurec_lite.splat.view_row import NUMBERS


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return driven(request.param)


def call_of(sensor: str, device: torch.device, n: int = 20, views: int = 2) -> dict[str, Any]:
    """The call by the names of the operator's arguments and of its tensors."""
    made = views_of(sensor, views, device, width=9, height=7)
    scene, kept = scene_for(made[0], n, device, actors=0.4 if n else 0.0), {}

    def blended(gaussians: Any, rows: Tensor, rays: Any, *rest: Any) -> Any:
        names = "size", "columns", "moving", "lenses"
        kept.update(gaussians._asdict() | {"views": rows} | rays._asdict() | dict(zip(names, rest[:4], strict=True)))
        raise StopIteration

    own = BatchedRenderer()
    own._blended = blended  # type: ignore[method-assign]
    with pytest.raises(StopIteration):
        own(SimpleNamespace(render=SimpleNamespace(correct=lambda view, known: view)), scene, made)
    return {k: v.detach() if isinstance(v, Tensor) else v for k, v in kept.items()} | {"part": 0, "capacity": [-1, -1]}


def packed(args: dict[str, Any]) -> tuple[Any, ...]:
    groups = [[args[name] for name in group._fields] for group in (SceneArrays, SensorRays)]
    return (
        groups[0],
        args["views"],
        groups[1],
        *(args[k] for k in ("size", "columns", "moving", "lenses", "part", "capacity")),
    )


@pytest.mark.parametrize("n", [0, 20])
@pytest.mark.parametrize("sensor", SENSORS)
def test_torch_s_own_checks(sensor: str, n: int, device: torch.device) -> None:
    for capacity in ([-1, -1], [2 * n, 500]):
        check_schema(
            torch.ops.nurec_lite.render_views.default, packed(call_of(sensor, device, n) | {"capacity": capacity})
        )


def test_gradients_are_refused(device: torch.device) -> None:
    args = call_of("lidar", device)
    args["opacities"].requires_grad_()
    out = torch.ops.nurec_lite.render_views(*packed(args))[0]
    with pytest.raises(RuntimeError, match="render_views keeps nothing for gradients"):
        out.sum().backward()


def test_what_is_needed(device: torch.device) -> None:
    args = call_of("lidar", device, 60)
    needed = torch.ops.nurec_lite.render_views(*packed(args))[-1]
    assert 0 < int(needed[0]) <= 120 and int(needed[1]) > int(needed[0])
    full = torch.ops.nurec_lite.render_views(*packed(args | {"capacity": (needed + 3).tolist()}))
    assert full[-1].equal(needed)
    short = torch.ops.nurec_lite.render_views(*packed(args | {"capacity": [int(needed[0]), 5]}))
    assert int(short[-1][1]) > 5


TENSORS = (*SceneArrays._fields, "views", *SensorRays._fields)


@pytest.mark.parametrize("sensor", ["still camera", "lidar"])
def test_wrong_tensors_are_refused(sensor: str, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUREC_LITE_CHECK", "1")
    args = call_of(sensor, device)
    unused = ("edges", "begins") if "camera" in sensor else ()
    for name in (name for name in TENSORS if name not in unused):
        tensor = args[name]
        whole = not tensor.is_floating_point()
        for wrong, words in (
            (tensor[None], f"{name} has shape"),
            (tensor.to(torch.int32 if whole else torch.float64), f"{name} is "),
        ):
            with pytest.raises((ValueError, TypeError), match=words):
                torch.ops.nurec_lite.render_views(*packed(args | {name: wrong}))
        if tensor.numel() > 1:
            with pytest.raises(ValueError, match=f"{name} is not contiguous"):
                strided = torch.stack([tensor, tensor], dim=-1)[..., 0]
                torch.ops.nurec_lite.render_views(*packed(args | {name: strided}))
        if not whole:
            bad = tensor.clone()
            bad[-1] = torch.nan
            with pytest.raises(ValueError, match=f"{name} holds nan in row"):
                torch.ops.nurec_lite.render_views(*packed(args | {name: bad}))


def wrong_arguments() -> dict[str, tuple[str, dict[str, Any]]]:
    zeros = torch.zeros
    return {
        "segment is -1, but must be 0 to": ("lidar", {"part": -1}),
        "capacity is -2, but must be 0 to": ("lidar", {"capacity": [-1, -2]}),
        "capacity has 1 numbers, but must have 2": ("lidar", {"capacity": [5]}),
        "columns is 0": ("lidar", {"columns": 0}),
        "size has 3 numbers, but must have 4 or none": ("still camera", {"size": [9, 7, 8]}),
        "size is 0": ("still camera", {"size": [0, 7, 8, 4]}),
        "size says warp tiles of 16 pixels, but they have 32": ("still camera", {"size": [9, 7, 4, 4]}),
        "directions has 63 rows, but an image has 72": ("still camera", {"size": [9, 8, 8, 4]}),
        "fractions has shape": ("lidar", {"fractions": zeros(3)}),
        "sh_rest has 5 coefficients": ("still camera", {"sh_rest": zeros(20, 5, 3)}),
        "rows of views is 0": ("lidar", {"views": zeros(0, NUMBERS)}),
        "means has shape": ("lidar", {"views": zeros(3, NUMBERS)}),
        "begins falls in row": ("lidar", {"begins": torch.tensor([0, 500, 400])}),
        "begins holds 9999": ("lidar", {"begins": torch.tensor([0, 5, 9999])}),
        "edges falls in row 2": ("lidar", {"edges": torch.tensor([0.1, 0.2, 0.15])}),
        "lenses are about cameras, but these are views of a lidar": ("lidar", {"lenses": True}),
        "scales holds -1.* above 0": ("lidar", {"scales": -torch.ones(20, 3)}),
    }


@pytest.mark.parametrize("words", wrong_arguments())
def test_wrong_arguments_are_refused(words: str, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUREC_LITE_CHECK", "1")
    sensor, changes = wrong_arguments()[words]
    changes = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in changes.items()}
    with pytest.raises(ValueError, match=words):
        torch.ops.nurec_lite.render_views(*packed(call_of(sensor, device) | changes))


def test_too_many_bands_are_refused(device: torch.device) -> None:
    """They are the highest bits of a key."""
    args = call_of("lidar", device)
    edges = torch.linspace(-1, 1, 2048, device=device)
    with pytest.raises(ValueError, match="4098 bands of all sweeps, but must be at most 4096: give fewer views"):
        torch.ops.nurec_lite.render_views(*packed(args | {"edges": edges}))


@pytest.mark.parametrize(("group", "n"), [(0, 12), (2, 4)])
def test_lists_that_lack_a_tensor(group: int, n: int, device: torch.device) -> None:
    given = list(packed(call_of("lidar", device)))
    given[group] = given[group][1:]
    with pytest.raises(ValueError, match=f"has {n - 1} tensors, but must have {n}"):
        torch.ops.nurec_lite.render_views(*given)
