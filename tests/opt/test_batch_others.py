# SPDX-License-Identifier: Apache-2.0
"""The option `batch` with one launch for all views of a step, and other influences on a step: branches on streams of their own, recordings,
sweeps in some steps alone, images of several sizes. Results equal those of the loop, without streams and graphs."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from launch_steps import (
    NEEDED,
    WITHOUT_WAITING,
    assert_ended_alike,
    assert_learned_alike,
    counted,
    learned,
    stages_with,
    state_for,
)
from parity import DEVICES
from recorder_standin import install
from stepping import no_sync_of, steps
from tiny_capture import Loaded
from warp_tile_scenes import driven

from nurec_lite.base.options import option_module, parameters_of
from nurec_lite.opt.all.cuda_graph import CudaGraph
from nurec_lite.opt.lab.batch import OneLaunch
from nurec_lite.training.shots import ShotPlan
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState

SEVERAL = {"images": 4, "sweeps": 2}
ROOM = 4096  # of each view: more than any needs
FUSED = tuple(f"fused_{name}" for name in ("ssim", "sky", "colour", "activate", "range", "harmonics"))
RENDERING = ("project", "tile", "render_camera", "render_lidar")


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return driven(request.param)


def behind(stages: Stages, *names: str) -> Stages:
    """The stages with these options behind them."""
    for name in names:
        stages = option_module(name).apply(stages, **parameters_of(name))
    return stages


def as_it_is(plan: ShotPlan) -> ShotPlan:
    return plan


def seldom(plan: ShotPlan) -> ShotPlan:
    """A sweep in every second step alone."""
    return replace(plan, sweeps_every=2)


def uneven(plan: ShotPlan) -> ShotPlan:
    """The second camera's images are narrower."""
    capture = plan.capture
    one, two = capture.cameras
    images = tuple(
        replace(frame, load=Loaded(frame.load()[:, :-3].contiguous())) if frame.sensor == two.name else frame
        for frame in capture.images
    )
    cameras = one, replace(two, width=two.width - 3)
    return replace(plan, capture=replace(capture, cameras=cameras, images=images))


Planned = Callable[[ShotPlan], ShotPlan]
PLANS = pytest.mark.parametrize("planned", [as_it_is, seldom, uneven], ids=lambda planned: planned.__name__)


def planned_state(stages: Stages, device: torch.device, planned: Planned, calibrate: bool = False) -> TrainState:
    state = state_for(stages, device, calibrate)
    state.plan = planned(state.plan)
    return state


def learned_twice(
    device: torch.device, planned: Planned, others: tuple[str, ...] = (), number: int = 4, **own: Any
) -> tuple[Any, Any, Counter[str]]:
    """A step in one launch with other options, a step by the loop without, and the launch's calls of the loop's stages."""
    together, calls = counted(behind(stages_with(device, NEEDED, **own), *others), *RENDERING)
    loop = stages_with(device, NEEDED, one_launch=False, **own)
    one, other = (learned(s, planned_state(s, device, planned, calibrate=True), number) for s in (together, loop))
    return one, other, calls


@pytest.mark.parametrize("number", [4, 5], ids=["with sweeps", "without"])
def test_sweeps_in_fewer_steps_than_images(number: int, device: torch.device) -> None:
    found, expected, calls = learned_twice(device, seldom, number=number, **SEVERAL)
    assert_learned_alike(found, expected, device)
    assert not calls and ("range" in found[0]) == (number == 4)


@pytest.mark.parametrize(("images", "alone"), [(2, 2), (3, 1), (4, 0)])
def test_images_of_two_sizes(images: int, alone: int, device: torch.device) -> None:
    """Those of one size go together; one that is alone goes by itself."""
    found, expected, calls = learned_twice(device, uneven, images=images)
    assert_learned_alike(found, expected, device)
    assert calls["render_camera"] == alone


def test_images_of_two_sizes_come_back_in_their_order(device: torch.device) -> None:
    stages = stages_with(device, NEEDED, images=4)
    state = planned_state(stages, device, uneven)
    views = stages.feed.fetch(stages, state).views
    found: Any = stages.render.render_all(
        stages, state.scene, views, stages.render.gather(stages, state.scene, views).gaussians
    )
    widths = [view.camera.width for view in views if hasattr(view, "camera")]
    assert isinstance(stages.render.render_all, OneLaunch) and len(set(widths)) == 2
    assert [image.colour.shape[1] for image, _ in found[:4]] == widths


@PLANS
def test_branches_on_streams_of_their_own(planned: Planned, device: torch.device) -> None:
    """A launch lies within a branch: that of images, or that of sweeps."""
    found, expected, calls = learned_twice(device, planned, ("side_streams",), **SEVERAL)
    assert_learned_alike(found, expected, device)
    assert not calls


@pytest.mark.parametrize("calibrate", [False, True])
def test_nothing_of_all_hinders_it(calibrate: bool, device: torch.device) -> None:
    """All other options have kernels of their own."""
    names = (*WITHOUT_WAITING, *FUSED)
    together, calls = counted(behind(stages_with(device, names, **SEVERAL), "side_streams"), *RENDERING)
    loop = stages_with(device, names, one_launch=False, **SEVERAL)
    found, expected = (learned(s, state_for(s, device, calibrate)) for s in (together, loop))
    assert_learned_alike(found, expected, device)
    assert not calls


@PLANS
@pytest.mark.parametrize("streams", [(), ("side_streams",)], ids=["in one row", "beside one another"])
def test_a_graph_is_recorded_of_it(
    streams: tuple[str, ...], planned: Planned, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU the recorder is a stand-in, which does the work again."""
    if device.type == "cpu":
        install(monkeypatch)
    loop = stages_with(device, WITHOUT_WAITING, one_launch=False, **SEVERAL)
    graphed = behind(stages_with(device, WITHOUT_WAITING, **SEVERAL), *streams, "cuda_graph")
    states = [planned_state(stages, device, planned) for stages in (loop, graphed)]
    try:
        for stages, state in zip((loop, graphed), states, strict=True):
            monkeypatch.setattr(no_sync_of(stages).capacities, "of", lambda view: ROOM)
            steps(stages, state, 12)
        assert (
            isinstance(graphed.update.learn, CudaGraph)
            and graphed.update.learn.launched >= 4
            and not graphed.update.learn._off
        )
    finally:
        graphed.close()
    assert no_sync_of(graphed).redone == 0
    assert_ended_alike(*reversed(states))


@pytest.mark.parametrize("streams", [(), ("side_streams",)], ids=["in one row", "beside one another"])
def test_of_corrected_sensors_too(
    streams: tuple[str, ...], device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Capacities are as they are learned, so some may be too small."""
    if device.type == "cpu":
        install(monkeypatch)
    stages = behind(stages_with(device, WITHOUT_WAITING, images=2, sweeps=2), *streams, "cuda_graph")
    state = state_for(stages, device, calibrate=True, rays=0)
    try:
        steps(stages, state, 12)
        assert (
            isinstance(stages.update.learn, CudaGraph)
            and stages.update.learn.launched >= 5
            and not stages.update.learn._off
        )
        assert all(value.isfinite().all() for value in state.scene.parameters().values())
    finally:
        stages.close()
