# SPDX-License-Identifier: Apache-2.0
"""The option `batch` with one launch for all views of a step (nurec_lite/native/together.py), as a training runs it: beside the loop, with
rooms for lists, and recorded. Drivers of CUDA alone have it, so that on a CPU these are the emulated ones; when it stands aside runs
everywhere."""

import json
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from bundle_scenes import driven
from parity import DEVICES
from recorder_standin import install
from stepping import cramped, no_sync_of, steps
from tiny_capture import tiny_capture, tiny_config, tiny_state
from torch import Tensor

from benchmarks.opt import bench_batch
from nurec_lite.backends import base_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.capture.pack import write_pack
from nurec_lite.config import DensityConfig
from nurec_lite.native.bind import native_stages
from nurec_lite.native.plan import CUDA_PLAN
from nurec_lite.opt.batch import OneLaunch
from nurec_lite.opt.cuda_graph import CudaGraph
from nurec_lite.training.checkpoint import scene_to
from nurec_lite.training.optim import make_optimizer
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState

NEEDED = ("fused_interp", "collect_once", "warp_cull")
WITHOUT_WAITING = ("fused_interp", "collect_once", "no_sync", "warp_cull", "tile_cull", "balanced_tiles", "fused_adam")


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return driven(request.param)


def stages_with(device: torch.device, names: tuple[str, ...], **own: Any) -> Stages:
    """In this order, the option last, as on a machine with a GPU."""
    base = replace(base_stages("native", device), device="cuda", plan=CUDA_PLAN, bind=native_stages)
    stages = replace(base, **native_stages(CUDA_PLAN))
    for name in (*names, "batch"):
        values = parameters_of(name) | (own if name == "batch" else {})
        values |= {"part": 64} if name == "balanced_tiles" else {}
        stages = import_module(f"nurec_lite.opt.{name}").apply(stages, **values)
    return stages


def state_for(stages: Stages, device: torch.device, calibrate: bool = False, rays: int = 128) -> TrainState:
    config = tiny_config(density=DensityConfig(every=1000))
    config.model.calibrate = calibrate
    config = replace(config, train=replace(config.train, lidar_rays=rays))
    state = tiny_state(config)
    state.plan = stages.frames(state.plan)
    if device.type == "cpu":
        return state
    scene, generator = scene_to(state.scene, device), torch.Generator(device).manual_seed(config.seed)
    return TrainState(state.plan, config, scene, make_optimizer(scene, config.lr), generator, device)


def learned(stages: Stages, state: TrainState) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Loss terms of one step, and its gradients."""
    found: dict[str, Tensor] = {}

    def optimize(state: TrainState) -> None:
        found.update({name: p.grad.clone() for name, p in state.scene.parameters().items() if p.grad is not None})

    stages = replace(stages, optimize=optimize)
    state.step = 3
    result = stages.learn(stages, state, stages.feed(stages, state))
    return {name: float(term) for name, term in result.terms.items()}, found


def counted(stages: Stages, *names: str) -> tuple[Stages, Counter[str]]:
    calls: Counter[str] = Counter()

    def around(name: str) -> Callable[[Callable], Callable]:
        return lambda inner: lambda *args: (calls.update([name]), inner(*args))[1]

    replaced = {name: around(name)(getattr(stages, name)) for name in names}
    return replace(stages, **replaced), calls


@pytest.mark.parametrize("calibrate", [False, True])
@pytest.mark.parametrize(("images", "sweeps"), [(2, 1), (4, 2), (1, 2)])
def test_a_step_learns_what_the_loop_does(images: int, sweeps: int, calibrate: bool, device: torch.device) -> None:
    """Both cameras of moments, rolling shutters, actors, and corrected sensors."""
    own = {"images": images, "sweeps": sweeps}
    found, expected = (
        learned(stages, state_for(stages, device, calibrate))
        for stages in (stages_with(device, NEEDED, one_launch=one, **own) for one in (True, False))
    )
    assert found[0] == pytest.approx(expected[0], rel=1e-3 if device.type == "cuda" else 2e-5, abs=1e-6)
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        share = 1e-2 if device.type == "cuda" else 3e-5
        off = float((found[1][name] - gradient).double().norm())
        assert off <= share * float(gradient.double().norm()) + 1e-9, f"{name}: {off}"


def test_no_view_goes_through_the_stages_of_one(device: torch.device) -> None:
    names = ("project", "tile", "render_camera", "render_lidar")
    for one_launch in (True, False):
        stages, calls = counted(stages_with(device, NEEDED, images=2, sweeps=2, one_launch=one_launch), *names)
        learned(stages, state_for(stages, device))
        each = {"project": 4, "tile": 4, "render_camera": 2, "render_lidar": 2}
        assert calls == ({} if one_launch else each)


@pytest.mark.parametrize("images", [2, 4])
def test_steps_that_wait_for_nothing(images: int, device: torch.device) -> None:
    """Rooms are of sensors, as those of the loop, and hold nearly as much; a step whose lists lacked room is done again."""
    runs = {}
    for name, one_launch in (("together", True), ("loop", False), ("cramped", True)):
        stages = stages_with(device, WITHOUT_WAITING, images=images, sweeps=2, one_launch=one_launch)
        state = state_for(stages, device)
        steps(cramped(stages, {3}) if name == "cramped" else stages, state, 6)
        runs[name] = state, no_sync_of(stages)
    assert runs["cramped"][1].redone >= 1 and runs["together"][1].redone == 0
    rooms = {name: option.rooms._needed for name, (_, option) in runs.items()}
    assert rooms["together"].keys() == rooms["loop"].keys()
    for kind, lengths in rooms["loop"].items():
        assert max(rooms["together"][kind]) == pytest.approx(max(lengths), rel=0.05, abs=10)
    for name in ("loop", "cramped"):
        for key, value in runs[name][0].scene.parameters().items():
            mine = runs["together"][0].scene.parameters()[key]
            assert float((mine - value).detach().norm()) <= 0.02 * float(value.detach().norm()) + 1e-3, (
                f"{key} of {name}"
            )


def test_a_graph_is_recorded_of_it(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU the recorder is a stand-in, which finds what cannot be recorded."""
    if device.type == "cpu":
        install(monkeypatch)
    stages = stages_with(device, (*WITHOUT_WAITING,), images=2, sweeps=2)
    stages = import_module("nurec_lite.opt.cuda_graph").apply(stages)
    state = state_for(stages, device, calibrate=True, rays=0)
    try:
        steps(stages, state, 12)
        assert isinstance(stages.learn, CudaGraph) and stages.learn.launched >= 5 and not stages.learn._off
        assert all(value.isfinite().all() for value in state.scene.parameters().values())
    finally:
        stages.close()


# ---- when it stands aside


def test_a_cpu_renders_one_view_after_another() -> None:
    stages = import_module("nurec_lite.opt.batch").apply(
        base_stages("native", torch.device("cpu")), **parameters_of("batch")
    )
    assert "render_all" not in stages.wrapped


@pytest.mark.parametrize(
    ("names", "words"),
    [(("fused_interp", "collect_once"), "needs the option warp_cull"), (("warp_cull",), "fused_interp and collect_once"),
     (("warp_cull", "fused_interp"), "fused_interp and collect_once")],
)  # fmt: skip
def test_why_it_stands_aside_is_said_once(
    names: tuple[str, ...], words: str, device: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    stages, calls = counted(stages_with(device, names, images=2), "render_camera")
    state = state_for(stages, device, rays=0)
    with caplog.at_level(logging.INFO, "nurec_lite"):
        for _ in range(3):
            learned(stages, state)
    told = [record.message for record in caplog.records if "one after another" in record.message]
    assert len(told) == 1 and words in told[0] and calls["render_camera"] == 6


def test_stages_that_another_option_changes_are_called(device: torch.device) -> None:
    stages = stages_with(device, NEEDED, images=2).wrap(render_camera=lambda inner: inner)
    stages, calls = counted(stages, "render_camera")
    learned(stages, state_for(stages, device, rays=0))
    assert calls == {"render_camera": 2}


def test_images_of_two_sizes_are_rendered_apart(device: torch.device) -> None:
    """Two of one size together, and the third by itself."""
    capture = tiny_capture()
    stages, calls = counted(stages_with(device, NEEDED, images=3), "render_camera")
    state = state_for(stages, device, rays=0)
    shots = stages.feed(stages, state)
    small = replace(capture.cameras[0], width=capture.cameras[0].width - 3)
    odd = replace(shots.images[1], view=replace(shots.images[1].view, camera=small, row=None))
    views = shots.images[0].view, odd.view, shots.images[2].view
    found: Any = stages.render_all(stages, state.scene, views, stages.gather(stages, state.scene, views).gaussians)
    assert [image.colour.shape[1] for image, _ in found] == [view.camera.width for view in views]
    assert calls == {"render_camera": 1} and isinstance(stages.render_all, OneLaunch)


# ---- its benchmark


def test_its_turns_of_one_launch_and_the_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a CPU both are the loop."""
    write_pack(tiny_capture(), tmp_path / "tiny.pack")
    tiny = ["model.points=300", "model.actor_points=40", "model.raised_points=100", "model.far_points=80", "device=cpu"]
    bench_batch.main(
        ["data=pack", f"data.root={tmp_path}/tiny.pack", *tiny, "model.sky_height=8", "density.cap=600", "train.lidar_rays=128",
         "--images", "--seen", "0", "--turns", "3", "--turn-images", "2", "3", "--window", "2", "--warmup", "1",
         "--out", str(tmp_path / "out.json")]
    )  # fmt: skip
    report = json.loads((tmp_path / "out.json").read_text())
    assert list(report["turns"]) == ["2", "3"] and report["runs"] == {}
    for found in report["turns"].values():
        assert {name: len(ms) for name, ms in found["windows"].items()} == {"one launch": 3, "one after another": 3}
        assert found["ratio"]["median"] > 0
    assert "the loop takes" in capsys.readouterr().out
