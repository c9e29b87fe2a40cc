# SPDX-License-Identifier: Apache-2.0
"""The operator render_views_train and its backward pass (kernels/raster_warps/views/train.h), which the CUDA drivers alone have: torch's
checks, and that wrong input is refused. Its images and gradients: tests/native/test_batched_views.py."""

from typing import Any

import pytest
import torch
from look_scenes import SENSORS, scene_for, views_of
from operators import check_schema
from parity import DEVICES
from together_scenes import by_other_cameras, one_launch, stages_for
from torch import Tensor
from warp_tile_scenes import driven

from nurec_lite.native import batched_views
from nurec_lite.native.operators.render_views import NodeRotations, SavedViews, SceneArrays, SensorRays
from nurec_lite.native.operators.shared import Outputs
from nurec_lite.splat.view_row import NUMBERS

LAST = ("targets", "size", "columns", "moving", "lenses", "length", "capacity", "depth_bits")


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return driven(request.param)


def call_of(sensor: str, device: torch.device, n: int = 20, cameras: int = 1) -> dict[str, Any]:
    """The call by the names of the operator's arguments and of its tensors."""
    views = views_of(sensor, 2, device, width=9, height=7)
    views = by_other_cameras(views) if cameras > 1 else views
    stages, kept = stages_for(device), {}
    scene = scene_for(views[0], n, device, actors=0.4 if n else 0.0)

    def called(scene: Any, nodes: Any, launch: Any, _: Any) -> Any:
        r = launch
        kept.update(scene._asdict() | nodes._asdict() | r.rays._asdict() | {"views": r.views})
        last = r.targets, r.size, r.columns, r.moving, r.lenses, r.segment_entries, r.capacity, r.depth_bits
        kept.update(zip(LAST, last, strict=True))
        raise StopIteration

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batched_views, "render_views", called)
        for _ in range(2):  # once more, as then it is known which Gaussians stand still
            gaussians = stages.render.gather(stages, scene, views).gaussians
        with pytest.raises(StopIteration):
            one_launch(stages, scene, views, gaussians)
    return {k: v.detach() if isinstance(v, Tensor) else v for k, v in kept.items()}


def packed(args: dict[str, Any]) -> tuple[Any, ...]:
    scene, rays = ([args[name] for name in group._fields] for group in (SceneArrays, SensorRays))
    return scene, args["views"], rays, *(args[k] for k in LAST)


def call(args: dict[str, Any]) -> Any:
    return torch.ops.nurec_lite.render_views_train(*packed(args))


def backward_of(args: dict[str, Any], of_features: bool = False) -> dict[str, Any]:
    """The call of the backward operator."""
    out, distance, transmittance, _, _, *kept = call(args)
    outputs = Outputs(out, distance, transmittance)
    more = dict(zip(SavedViews._fields, kept, strict=True)) | outputs._asdict()
    given = {"d_out": out, "d_distance": distance, "d_transmittance": transmittance, "of_features": of_features}
    own = {"world": more.pop("directions"), "kept_gaussians": more.pop("gaussians")}
    return args | more | own | given


def packed_backward(args: dict[str, Any]) -> tuple[Any, ...]:
    scene, views, _, targets, _, _, moving, _, length, *_ = packed(args)
    own = {"directions": "world", "gaussians": "kept_gaussians"}
    kept = [args[own.get(name, name)] for name in SavedViews._fields]
    given = [args[k] for k in ("d_out", "d_distance", "d_transmittance", "of_features")]
    return scene, views, targets, moving, length, kept, [args[k] for k in Outputs._fields], *given


def packed_colours(args: dict[str, Any], grad_accum: Tensor) -> tuple[Any, ...]:
    nodes = [args[name] for name in NodeRotations._fields]
    return packed(args)[0], nodes, args["views"], grad_accum


@pytest.mark.parametrize("n", [0, 20])
@pytest.mark.parametrize("sensor", SENSORS)
def test_torch_s_own_checks(sensor: str, n: int, device: torch.device) -> None:
    """Outputs that a part or a row does not need are not written, so that those of two calls need not be equal."""
    is_camera = sensor != "lidar"
    for capacity in (-1, 500):
        args = call_of(sensor, device, n, cameras=2 if is_camera else 1) | {"capacity": capacity}
        check_schema(torch.ops.nurec_lite.render_views_train.default, packed(args))
    for of_features in (False, True) if is_camera else (False,):
        back = packed_backward(backward_of(args, of_features))
        check_schema(torch.ops.nurec_lite.render_views_accumulate.default, back)
    if is_camera:
        grad_accum, d_features = torch.ops.nurec_lite.render_views_accumulate(*back)
        assert d_features.shape == (2, n, 3) and bool(d_features.any()) == (n > 0)
        colours = packed_colours(args, grad_accum)
        check_schema(torch.ops.nurec_lite.render_views_colour_backward.default, colours)


TENSORS = (*SceneArrays._fields, "views", *SensorRays._fields, "targets")


@pytest.mark.parametrize("sensor", ["still camera", "lidar"])
def test_wrong_tensors_are_refused(sensor: str, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUREC_LITE_CHECK", "1")
    args = call_of(sensor, device)
    unused = ("edges", "begins") if "camera" in sensor else ()
    for name in (name for name in TENSORS if name not in unused):
        whole = not args[name].is_floating_point()
        for wrong, words in (
            (args[name][None], f"{name} has shape"),
            (args[name].to(torch.int32 if whole else torch.float64), f"{name} is "),
        ):
            with pytest.raises((ValueError, TypeError), match=words):
                call(args | {name: wrong})


@pytest.mark.parametrize("name", [*SavedViews._fields, *Outputs._fields, "d_out", "d_distance", "d_transmittance"])
def test_wrong_tensors_of_the_backward_pass(name: str, device: torch.device) -> None:
    args = backward_of(call_of("lidar", device))
    key = {"directions": "world", "gaussians": "kept_gaussians"}.get(name, name)
    with pytest.raises((ValueError, IndexError), match=f"{name} has|Dimension"):
        torch.ops.nurec_lite.render_views_accumulate(
            *packed_backward(args | {key: args[key].flatten()[None, None, :3]})
        )


def wrong_arguments() -> dict[str, tuple[str, dict[str, Any]]]:
    zeros = torch.zeros
    return {
        "length is 0, but must be 1 to": ("lidar", {"length": 0}),
        "capacity is -2, but must be": ("lidar", {"capacity": -2}),
        "directions has 64 rows, but an image has 63": ("still camera", {"directions": zeros(64, 3)}),
        "targets has 126 rows, but a camera's rays have none": ("still camera", {"targets": zeros(126, 2)}),
        "targets has shape": ("lidar", {"targets": zeros(5, 2)}),
        "rows of views is 0": ("lidar", {"views": zeros(0, NUMBERS)}),
    }


@pytest.mark.parametrize("words", wrong_arguments())
def test_wrong_arguments_are_refused(words: str, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUREC_LITE_CHECK", "1")
    sensor, changes = wrong_arguments()[words]
    args = call_of(sensor, device)
    changes = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in changes.items()}
    with pytest.raises(ValueError, match=words):
        call(args | changes)


@pytest.mark.parametrize(("group", "n"), [(0, 12), (2, 4)])
def test_lists_that_lack_a_tensor(group: int, n: int, device: torch.device) -> None:
    given = list(packed(call_of("lidar", device)))
    given[group] = given[group][1:]
    with pytest.raises(ValueError, match=f"has {n - 1} tensors, but must have {n}"):
        torch.ops.nurec_lite.render_views_train(*given)


def test_wrong_arguments_of_colours(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUREC_LITE_CHECK", "1")
    args = backward_of(call_of("still camera", device))
    grad_accum, _ = torch.ops.nurec_lite.render_views_accumulate(*packed_backward(args))
    wrong = {
        "rotations has shape": {"rotations": torch.zeros(3, 2, 4, device=device)},
        "node holds 99": {"node": torch.full_like(args["node"], 99)},
    }
    for words, changes in wrong.items():
        with pytest.raises(ValueError, match=words):
            torch.ops.nurec_lite.render_views_colour_backward(*packed_colours(args | changes, grad_accum))
    with pytest.raises(ValueError, match="grad_accum has shape"):
        torch.ops.nurec_lite.render_views_colour_backward(*packed_colours(args, grad_accum[:1]))
