# SPDX-License-Identifier: Apache-2.0
"""The backward epilogue of all views of a step (nurec_lite/native/backward_epilogue.py, kernels/raster_warps/backward), which the CUDA
drivers alone have: its gradients are those of one view after another, and those of the plain torch reference in double precision. Steps
of a training: tests/opt/test_fused_project.py."""

import logging
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
import torch
from look_scenes import SENSORS, View, scene_for, views_of
from operators import check_schema
from parity import DEVICES, Case, aimed, cast_view, rounding, run
from parity import random_weights as weights_of
from splat_scenes import F64
from test_batched_views import _turned_away, assert_learned_alike, listed_by_warp_tiles, moved
from test_parity_render import SUMS
from together_scenes import LOOP, Learned, Render, learn, stages_for
from torch import Tensor
from warp_tile_scenes import driven

from nurec_lite.native import backward_epilogue
from nurec_lite.native.deferred_backward import DeferredGaussians, grad_accum_floats
from nurec_lite.native.operators.shared import packed_view
from nurec_lite.native.rank1_sh import DeferredShGrad
from nurec_lite.opt.all import fused_activate
from nurec_lite.opt.all.fused_project import OnePass
from nurec_lite.opt.lab.batch import launch_views
from nurec_lite.scene.scene import Scene
from nurec_lite.splat import render
from nurec_lite.splat.view_row import NUMBERS
from nurec_lite.splat.views import CameraView
from nurec_lite.training.stages import Stages

VIEWS: dict[str, tuple[str, ...]] = {  # of a step
    "image": ("still camera",),
    "rolling image": ("moving camera",),
    "sweep": ("lidar",),
    "image and sweep": ("still camera", "lidar"),
    "two images and two sweeps": ("moving camera", "lidar", "moving camera", "lidar"),
}


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return driven(request.param)


# ---- against one view after another


def scene_of(views: list[View], sensors: tuple[str, ...], n: int, device: torch.device, **options: Any) -> Scene:
    """A scene that all views see; it lies around the sweep, if there is one."""
    return scene_for(views[sensors.index("lidar") if "lidar" in sensors else 0], n, device, **options)


FORWARD = torch.tensor([[0.0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]])  # of a camera, in a lidar's axes


def views_for(sensors: tuple[str, ...], device: torch.device) -> list[View]:
    """Views of different times; the third has no actors. If there is a sweep, cameras look ahead of it."""
    views = [views_of(sensor, len(sensors), device)[k] for k, sensor in enumerate(sensors)]
    return [looking(view, FORWARD) if "lidar" in sensors and isinstance(view, CameraView) else view for view in views]


def looking(view: View, T: Tensor) -> View:
    start, end = (T_world @ T.to(T_world) for T_world in (view.T_world_sensor_start, view.T_world_sensor_end))
    return replace(view, T_world_sensor_start=start, T_world_sensor_end=end, row=None)


def with_activation(stages: Stages, stored: bool) -> Stages:
    """Whether by fused_activate."""
    return fused_activate.apply(stages) if stored else stages


def by_one_pass(
    stages: Stages, stored: bool, scene: Scene, views: list[View], *weights: Any, by: Render = LOOP, **how: Any
) -> Learned:
    """`stored`: after fused_activate. `by`: one view after another, or all in one launch."""
    stages = with_activation(stages, stored)
    one = OnePass(stages.render.collect, stored)  # type: ignore[arg-type]
    with one.learning():
        own = stages.planned("fused_project", deferred_backward=True).wrap(gather=one.gather)
        return learn(by, own, scene, views, *weights, **how)


def compare(scene: Scene, views: list[View], stages: Stages, **how: Any) -> Learned:
    for stored in (False, True):
        expected = learn(LOOP, with_activation(stages, stored), scene, views, **how)
        found = by_one_pass(stages, stored, scene, views, **how)
        assert_learned_alike(found, expected)
    return found


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("with_pose_delta", [False, True])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("sensor", SENSORS)
def test_views_of_one_launch(sensor: str, n: int, with_pose_delta: bool, stored: bool, device: torch.device) -> None:
    """One view, too: its gradients go through the same epilogue."""
    views = views_of(sensor, n, device)
    scene, stages = with_own_opacities(scene_for(views[0], 200, device)), stages_for(device)
    expected = by_one_pass(stages, stored, scene, views, with_pose_delta=with_pose_delta)
    assert_learned_alike(
        by_one_pass(stages, stored, scene, views, by=launch_views, with_pose_delta=with_pose_delta), expected
    )


@pytest.mark.parametrize("n", [1, 2])
def test_harmonics_of_images_in_a_launch_are_products(n: int, device: torch.device) -> None:
    """They lie where the step expects them; the placements get the colours' gradients, too."""
    views, deferred, step = views_of("still camera", n, device), DeferredShGrad(), ExitStack()
    scene = scene_for(views[0], 200, device)
    expected = by_one_pass(stages_for(device, fused_colour=True), True, scene, views)

    def in_step(stages: Stages, scene: Scene, *rest: Any) -> Any:
        step.enter_context(deferred.expect(scene.gaussians.sh0, scene.gaussians.sh_rest, views=n))
        return launch_views(stages, scene, *rest)

    with step:
        found = by_one_pass(stages_for(device, fused_colour=True, rank1_sh=deferred), True, scene, views, by=in_step)
        left = deferred.pop()
    assert left is not None and len(left.colours) == n and not found.gradients["sh_rest"].any()
    left.write()
    written = dict(zip(("sh0", "sh_rest"), (p.grad for p in left.harmonics), strict=True))
    assert_learned_alike(replace(found, gradients=found.gradients | written), expected)


def with_own_opacities(scene: Scene) -> Scene:
    """The lidar's."""
    g = scene.gaussians
    own = torch.randn(len(g), 1, generator=torch.Generator().manual_seed(5)).to(g.means)
    return replace(scene, gaussians=replace(g, lidar_logits=torch.cat([g.lidar_logits[:, :2], own], dim=1)))


@pytest.mark.parametrize("own", [False, True], ids=["", "own opacities"])
@pytest.mark.parametrize("n", [1, 33, 300])
@pytest.mark.parametrize("sensors", VIEWS)
def test_gradients(sensors: str, n: int, own: bool, device: torch.device) -> None:
    """Sizes about those of a block, some of actors."""
    views = views_for(VIEWS[sensors], device)
    scene = scene_of(views, VIEWS[sensors], n, device)
    found = compare(with_own_opacities(scene) if own else scene, views, stages_for(device))
    if n > 100:
        assert found.gradients["means"].any() and found.gradients["track_translations"].any()
        assert bool(found.gradients["lidar_logits"].any()) == any("lidar" in s for s in VIEWS[sensors])


@pytest.mark.parametrize("actors", [0.0, 1.0])
@pytest.mark.parametrize("sensors", ["image and sweep", "two images and two sweeps"])
def test_nothing_moves_or_everything(sensors: str, actors: float, device: torch.device) -> None:
    views = views_for(VIEWS[sensors], device)
    compare(scene_of(views, VIEWS[sensors], 100, device, actors=actors), views, stages_for(device))


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("sensors", VIEWS)
def test_sensors_whose_poses_are_corrected(sensors: str, own: bool, device: torch.device) -> None:
    views = views_for(VIEWS[sensors], device)
    scene = scene_of(views, VIEWS[sensors], 300, device)
    found = compare(with_own_opacities(scene) if own else scene, views, stages_for(device), with_pose_delta=True)
    assert all(bool(found.gradients[f"pose delta {k}"].any()) for k in range(len(views)))


@pytest.mark.parametrize("with_pose_delta", [False, True])
@pytest.mark.parametrize("sensors", VIEWS)
def test_no_gaussians(sensors: str, with_pose_delta: bool, device: torch.device) -> None:
    views = views_for(VIEWS[sensors], device)
    scene = scene_for(views[0], 0, device, actors=0.0)
    compare(scene, views, stages_for(device), with_pose_delta=with_pose_delta)
    compare(with_own_opacities(scene), views, stages_for(device))


def test_views_that_see_nothing(device: torch.device) -> None:
    """The first of three; and both of two."""
    cameras, sweeps = views_of("still camera", 2, device), views_of("lidar", 2, device)
    cameras = [looking(view, FORWARD) for view in cameras]
    away = [_turned_away(view) for view in cameras]
    scene = scene_for(sweeps[0], 100, device)
    found = compare(scene, [away[0], cameras[1], sweeps[1]], stages_for(device))
    assert not found.values[0]["opacity"].any() and found.gradients["means"].any()
    found = compare(scene, away, stages_for(device))
    assert not found.gradients["means"].any() and found.gradients["sky"].any()


def test_without_a_gradient_of_the_distance_and_with_other_colours(device: torch.device) -> None:
    """A training does it so."""
    views = views_for(VIEWS["image and sweep"], device)
    scene = scene_of(views, VIEWS["image and sweep"], 200, device)
    compare(scene, views, stages_for(device, fused_colour=True, fused_sky=True), distance=False)
    compare(scene, views, stages_for(device, fused_colour=True, fused_sky=True))


def test_a_second_rendering_goes_the_plain_way(device: torch.device) -> None:
    """They are the same Gaussians: a grad slot is used once."""
    views = views_for(VIEWS["image and sweep"], device)

    def twice(*given: Any) -> Any:
        first, second = LOOP(*given), LOOP(*given)
        halves = [
            type(a)(**{k: None if v is None else (v + vars(b)[k]) / 2 for k, v in vars(a).items()})
            for (a, _), (b, _) in zip(first, second, strict=True)
        ]
        return tuple((half, listed) for half, (_, listed) in zip(halves, first, strict=True))

    scene, stages = scene_of(views, VIEWS["image and sweep"], 150, device), stages_for(device)
    expected = learn(LOOP, stages, scene, views)
    one = OnePass(stages.render.collect, False)  # type: ignore[arg-type]
    with one.learning():
        own = stages.planned("fused_project", deferred_backward=True).wrap(gather=one.gather)
        assert_learned_alike(learn(twice, own, scene, views), expected)


# ---- against the reference


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("sensors", ["rolling image", "sweep", "image and sweep"])
def test_the_reference_in_double_precision(sensors: str, stored: bool, device: torch.device) -> None:
    """Within the limits of tests/native/test_parity_render.py; the gradient is the sum over views. Rays that decide within rounding weigh
    nothing."""
    views: list[Any] = views_for(VIEWS[sensors], torch.device("cpu"))
    views = [aimed(view) if "lidar" in kind else view for kind, view in zip(VIEWS[sensors], views, strict=True)]
    scene = scene_of(views, VIEWS[sensors], 150, torch.device("cpu"))
    weights, expected, slope = [], [], 0.0
    for k, view in enumerate(views):
        case = Case(scene, view)
        projection, pairs = listed_by_warp_tiles(case, device)
        limits = rounding(case, projection, pairs)
        shares = {name: w * limits.clear.view(-1, *[1] * (w.dim() - 1)) for name, w in weights_of(view, 9.0, k).items()}
        weights.append(shares)
        expected.append(run(render, case, pairs, shares, F64, torch.device("cpu"), learn_poses=False))
        slope = max(slope, limits.slope)
    there = [cast_view(view, torch.float32, device) for view in views]
    found = by_one_pass(stages_for(device), stored, moved(scene, device), there, weights)
    for name, gradient in found.gradients.items():
        each = [one.gradients[name] for one in expected if name in one.gradients]
        total = torch.stack(each).sum(0)
        off = float((gradient.cpu().double() - total).norm())
        share = (5 if name in SUMS else 1) * (1e-4 + slope)
        assert off <= share * float(total.norm()), f"gradient of {name}: {off}"


# ---- where each view goes the plain way


def test_outside_of_a_step_gradients_are_written_as_ever(device: torch.device) -> None:
    views, base = views_of("lidar", 2, device), stages_for(device)
    one = OnePass(base.render.collect, False)  # type: ignore[arg-type]
    stages = base.planned("fused_project", deferred_backward=True).wrap(gather=one.gather)
    scene = scene_for(views[0], 50, device)
    gathered = stages.render.gather(stages, scene, views)
    assert not any(isinstance(g, DeferredGaussians) for g in gathered.gaussians)
    assert_learned_alike(learn(LOOP, stages, scene, views), learn(LOOP, base, scene, views))


def test_what_hinders_is_said_once(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    views = views_of("still camera", 2, device)
    start = views[0].T_world_sensor_start.clone().requires_grad_()
    assert backward_epilogue.unsupported_reason(views) is None
    assert "gradients of rays" in str(
        backward_epilogue.unsupported_reason([replace(views[0], T_world_sensor_start=start)])
    )
    monkeypatch.setattr(backward_epilogue, "MAX_VIEWS", 1)
    stages, scene = stages_for(device), scene_for(views[0], 60, device)
    with caplog.at_level(logging.INFO, "nurec_lite"):
        compare(scene, views, stages)
    result = [r.message for r in caplog.records if "a step has 2 views, more than 1" in r.message]
    assert len(result) == 2  # once an object


# ---- the operators


def arguments_of(
    device: torch.device, n: int, stored: bool, own: bool, with_pose_delta: bool, moving: int | None = None
) -> tuple[Any, ...]:
    """Arguments of an image and a sweep; half of the Gaussians move, or as many as `moving` says."""
    seed = torch.Generator().manual_seed(n)
    made = lambda *shape: torch.rand(shape, generator=seed).to(device)  # noqa: E731
    a = n // 2 if moving is None else moving
    result = made(2, grad_accum_floats(n))
    result.view(torch.uint8)[:, 64 * n :] = 1
    rows = [packed_view(views_of(sensor, 1, device)[0]) for sensor in ("still camera", "lidar")]
    scene = [made(n, 3), made(n, 4), made(n, 3) + 0.1, made(n), made(n if own else 0), made(n, 2)]
    scene.append(made(n if stored else 0, 4))
    moved = [made(2, a, 3), made(2, a, 4), made(2, a, 3), made(2, 3, 4)]
    given = [made(n - a, 3), made(n - a, 4), made(1), made(n), made(n) if own else None, made(2 * n)]
    given_moved = [*(t[0] for t in moved[:3]), *4 * [None], made(3, 4)]
    asked = [True, True, True, True, own and not stored, True]
    columns = (3 if own else 2) if stored else 0
    kinds = [False, True], [False, True], [with_pose_delta, with_pose_delta]
    return scene, moved, rows, [one.clone() for one in result], *kinds, given, given_moved, asked, columns, False


@pytest.mark.parametrize("n", [0, 20])
def test_rotations_get_what_views_give_of_them(n: int, device: torch.device) -> None:
    """Views that give nothing add zeros; the operator also takes no Gaussians."""
    args = arguments_of(device, n, True, True, False)
    *_, found = torch.ops.nurec_lite.gaussian_backward(*args)[1]
    assert not found[0].any() and found[1].equal(args[8][7])


@pytest.mark.parametrize("with_pose_delta", [False, True])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("n", [0, 20])
def test_torch_s_own_checks(n: int, stored: bool, own: bool, with_pose_delta: bool, device: torch.device) -> None:
    """Rows of moving Gaussians are not written, so that outputs of two calls need not be equal."""
    args = arguments_of(device, n, stored, own, with_pose_delta)
    check_schema(torch.ops.nurec_lite.gaussian_backward.default, args)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("moving", [0.0, 0.3, 1.0])
def test_regularisers_of_seen_gaussians_alone(moving: float, stored: bool, own: bool, device: torch.device) -> None:
    """Blocks of 256: of the first no Gaussian has a gradient, of the second one has it, of the third every other one is seen. Moving
    Gaussians begin in a block of standing ones."""
    n, a = 900, int(900 * moving)
    *args, _ = arguments_of(device, n, stored, own, True, a)
    seen = torch.zeros(n, dtype=torch.uint8, device=device)
    seen[512::2] = 1
    for one in args[3]:
        one.view(torch.uint8)[64 * n : 65 * n] = seen
    without = seen == 0
    without[300] = False
    args[7] = [None if not n - a else args[7][0].masked_fill(without[: n - a, None], 0), None, *args[7][2:]]
    args[8] = [None if t is None else t.masked_fill(without[n - a :, None], 0) for t in args[8][:3]] + args[8][3:]
    (plain, moved, poses), found = (torch.ops.nurec_lite.gaussian_backward(*args, only) for only in (False, True))
    for k in (2, 3, 4, 5):
        rows = without.view(-1, *[1] * (plain[k].dim() - 1)) if len(plain[k]) else without[:0]
        torch.testing.assert_close(found[0][k], plain[k].masked_fill(rows, 0), rtol=0, atol=0)
        assert not len(plain[k]) or plain[k][:256].any()
    for k in (0, 1):
        torch.testing.assert_close(found[0][k][: n - a], plain[k][: n - a], rtol=0, atol=0)
    torch.testing.assert_close(found[1], moved, rtol=0, atol=0)
    torch.testing.assert_close(found[2], poses, rtol=0, atol=0)


WRONG: dict[str, dict[int, Any]] = {
    "a row of views has shape": {2: [torch.zeros(NUMBERS), torch.zeros(NUMBERS - 1)]},
    "grad_accum has shape": {3: [torch.zeros(7), None]},
    "there are 2 views, but grad_accum, by_lidar": {4: [True]},
    "upstream has 3 tensors": {7: [None, None, None]},
    "upstream scales has 5 numbers": {7: [None, None, torch.zeros(5), *3 * [None]]},
    "upstream_moved has 4 tensors, but must have 4 of each of 2 views": {8: 4 * [None]},
    "upstream rotations has shape": {8: [*3 * [None], torch.zeros(2, 4), *4 * [None]]},
    "columns is 0, but must be 3": {10: 0},
    "asked has 2 values": {9: [True, True]},
}


@pytest.mark.parametrize("words", WRONG)
def test_what_does_not_fit_is_refused(words: str, device: torch.device) -> None:
    args = list(arguments_of(device, 20, True, True, False))
    for place, value in WRONG[words].items():
        args[place] = [v.to(device) if isinstance(v, Tensor) else v for v in value] if place in (2, 3, 7, 8) else value
    with pytest.raises(ValueError, match=words):
        torch.ops.nurec_lite.gaussian_backward(*args)


def test_rows_that_begin_in_the_middle_of_a_vector_are_refused(device: torch.device) -> None:
    args = list(arguments_of(device, 20, True, True, False))
    args[3] = [torch.zeros(1 + grad_accum_floats(20), device=device)[1:], None]
    with pytest.raises(ValueError, match="grad_accum begins in the middle"):
        torch.ops.nurec_lite.gaussian_backward(*args)
