# SPDX-License-Identifier: Apache-2.0
"""The option `batch` with one launch for all views of a step (nurec_lite/native/batched_views.py), as a training runs it: beside the
loop, and with capacities for lists. Drivers of CUDA alone have it, so that on a CPU these are the emulated ones; when it stands aside runs
everywhere."""

import json
import logging
from importlib import import_module
from pathlib import Path

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
from stepping import cramped, no_sync_of, steps
from tiny_capture import tiny_capture
from warp_tile_scenes import driven

from benchmarks.opt import bench_batch
from nurec_lite.backends import base_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.capture.pack import write_pack


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return driven(request.param)


@pytest.mark.parametrize("calibrate", [False, True])
@pytest.mark.parametrize(("images", "sweeps"), [(2, 1), (4, 2), (1, 2)])
def test_a_step_learns_what_the_loop_does(images: int, sweeps: int, calibrate: bool, device: torch.device) -> None:
    """Both cameras of moments, rolling shutters, actors, and corrected sensors."""
    own = {"images": images, "sweeps": sweeps}
    found, expected = (
        learned(stages, state_for(stages, device, calibrate))
        for stages in (stages_with(device, NEEDED, one_launch=one, **own) for one in (True, False))
    )
    assert_learned_alike(found, expected, device)


def test_no_view_goes_through_the_stages_of_one(device: torch.device) -> None:
    names = ("project", "tile", "render_camera", "render_lidar")
    for one_launch in (True, False):
        stages, calls = counted(stages_with(device, NEEDED, images=2, sweeps=2, one_launch=one_launch), *names)
        learned(stages, state_for(stages, device))
        each = {"project": 4, "tile": 4, "render_camera": 2, "render_lidar": 2}
        assert calls == ({} if one_launch else each)


@pytest.mark.parametrize("images", [2, 4])
def test_steps_that_wait_for_nothing(images: int, device: torch.device) -> None:
    """CapacityTracker are of sensors, as those of the loop, and hold nearly as much; a step whose lists lacked capacity is done again."""
    runs = {}
    for name, one_launch in (("together", True), ("loop", False), ("cramped", True)):
        stages = stages_with(device, WITHOUT_WAITING, images=images, sweeps=2, one_launch=one_launch)
        state = state_for(stages, device)
        steps(cramped(stages, {3}) if name == "cramped" else stages, state, 6)
        runs[name] = state, no_sync_of(stages)
    assert runs["cramped"][1].redone >= 1 and runs["together"][1].redone == 0
    capacities = {name: option.capacities._needed for name, (_, option) in runs.items()}
    assert capacities["together"].keys() == capacities["loop"].keys()
    for kind, lengths in capacities["loop"].items():
        assert max(capacities["together"][kind]) == pytest.approx(max(lengths), rel=0.05, abs=10)
    for name in ("loop", "cramped"):
        assert_ended_alike(runs["together"][0], runs[name][0])


# ---- when it stands aside


def test_a_cpu_renders_one_view_after_another() -> None:
    stages = import_module("nurec_lite.opt.lab.batch").apply(
        base_stages("native", torch.device("cpu")), **parameters_of("batch")
    )
    assert "render_all" not in stages.changes.wrapped


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
    result = [record.message for record in caplog.records if "one after another" in record.message]
    assert len(result) == 1 and words in result[0] and calls["render_camera"] == 6


def test_stages_that_another_option_changes_are_called(device: torch.device) -> None:
    stages = stages_with(device, NEEDED, images=2).wrap(render_camera=lambda inner: inner)
    stages, calls = counted(stages, "render_camera")
    learned(stages, state_for(stages, device, rays=0))
    assert calls == {"render_camera": 2}


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
