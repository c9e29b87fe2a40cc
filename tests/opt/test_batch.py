# SPDX-License-Identifier: Apache-2.0
"""The option `batch`: several images a step, those of one moment first, none again before all have come; the loss is their mean, rates
follow their number, and all other options work as before."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
from recorder_standin import install
from same_shots import assert_same
from stepping import assert_close, cramped, no_sync_of, steps
from tiny_capture import tiny_capture, tiny_config, tiny_state
from torch import Tensor

from benchmarks.opt import bench_batch
from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import option_module, parameters_of
from nurec_lite.bounds import BoundError, check_options
from nurec_lite.capture.pack import read_pack, write_pack
from nurec_lite.capture.types import Capture, make_split
from nurec_lite.config import DensityConfig
from nurec_lite.opt.all.cuda_graph import CudaGraph
from nurec_lite.training import unseen
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.broken import seen
from nurec_lite.training.loop import train
from nurec_lite.training.shots import ShotPlan, Shots
from nurec_lite.training.stages import Stages
from nurec_lite.training.start import make_state
from nurec_lite.training.state import TrainState

CPU = torch.device("cpu")
PLAN = ShotPlan(tiny_capture(), seed=3, lidar_rays=128)
PLAIN = DensityConfig(every=1000)


def own(images: int = 2, sweeps: int = 1, scale_rates: bool = True, one_launch: bool = True) -> dict[str, Any]:
    return {"batch": {"images": images, "sweeps": sweeps, "scale_rates": scale_rates, "one_launch": one_launch}}


def planned(images: int, sweeps: int = 1, plan: ShotPlan = PLAN) -> ShotPlan:
    return build_stages(own(images, sweeps)).feed.frames(plan)


def state_of(stages: Stages, rays: int = 128, density: DensityConfig = PLAIN) -> TrainState:
    config = tiny_config(density=density)
    state = tiny_state(replace(config, train=replace(config.train, lidar_rays=rays)))
    state.plan = stages.feed.frames(state.plan)
    return state


def moments(capture: Capture, images: tuple[int, ...]) -> list[int]:
    return [capture.images[i].index for i in images]


# Which frames


def test_it_swaps_one_field_and_stands_around_the_rates() -> None:
    stages = build_stages(own())
    assert stages.changes.claims == {"frames": "batch"} and stages.changes.wrapped == {"schedule"}
    assert build_stages(own(scale_rates=False)).feed.schedule is reference_stages().feed.schedule


def test_one_image_and_one_sweep_are_the_baseline_s() -> None:
    for step in range(40):
        assert_same(planned(1).load(step), PLAN.load(step))


def test_the_cameras_of_a_moment_come_together_in_one_order() -> None:
    """A step of both is then of one size, whichever was drawn first."""
    for step in range(24):
        images, _ = planned(2).chosen(step)
        assert len(set(moments(PLAN.capture, images))) == 1
        assert [PLAN.capture.images[i].sensor for i in images] == [c.name for c in PLAN.capture.cameras]


def test_the_next_moment_is_that_of_the_next_frame_of_the_plan() -> None:
    """Two moments a step: those that the baseline's order names first."""
    order = [PLAN.chosen(step)[0][0] for step in range(16)]
    left = dict.fromkeys(moments(PLAN.capture, tuple(order)))
    for step in range(4):
        images, _ = planned(4).chosen(step)
        assert list(dict.fromkeys(moments(PLAN.capture, images))) == list(left)[:2]
        left = dict.fromkeys(list(left)[2:])


def test_frames_depend_on_seed_and_step_alone() -> None:
    asked = (5, 0, 33, 1000, 5)
    again = [planned(3, 2, replace(PLAN)).load(step) for step in reversed(asked)]
    for step, shots in zip(asked, reversed(again), strict=True):
        assert_same(planned(3, 2).load(step), shots)
    assert [planned(3).chosen(s) for s in range(5)] != [
        planned(3, plan=replace(PLAN, seed=4)).chosen(s) for s in range(5)
    ]


def test_sweeps_of_a_step_are_others_and_so_are_their_rays() -> None:
    one, two = planned(1, 2).load(5).sweeps
    assert one.index != two.index
    again = PLAN.sweep(two.index, 10)  # as the first of the two is drawn
    assert again.sweep.ranges.shape != two.sweep.ranges.shape or not torch.equal(again.sweep.ranges, two.sweep.ranges)


@pytest.mark.parametrize("case", ["one camera", "one image", "one sweep", "no sweeps", "no rays"])
def test_captures_with_less(case: str) -> None:
    capture, rays = tiny_capture(), 0 if case == "no rays" else 128
    if case == "one camera":
        images = tuple(f for f in capture.images if f.sensor == capture.cameras[0].name)
        capture = replace(capture, cameras=capture.cameras[:1], images=images).with_split("interp")
    if case == "no sweeps":
        capture = replace(capture, lidars=(), sweeps=()).with_split("interp")
    split = make_split(capture, "interp")
    if case == "one image":
        split = replace(split, train_images=split.train_images[3:4])
    if case == "one sweep":
        split = replace(split, train_sweeps=split.train_sweeps[3:4])
    plan = planned(4, 2, ShotPlan(replace(capture, split=split), 3, rays))
    for step in range(9):
        shots = plan.load(step)
        assert len(shots.images) == (1 if case == "one image" else 4)
        assert len(shots.sweeps) == {"one sweep": 1, "no sweeps": 0, "no rays": 0}.get(case, 2)
        assert {shot.index for shot in shots.images} <= set(split.train_images)


def test_a_broken_run_names_all_frames_of_a_step() -> None:
    images, sweeps = planned(2, 2).chosen(7)
    assert [frame["index"] for frame in seen(planned(2, 2), 7)] == [*images, *sweeps]


# Learning


def gradients(stages: Stages, shots: Shots) -> dict[str, Tensor]:
    state, found = state_of(stages), {}

    def optimize(state: TrainState) -> None:
        found.update({name: p.grad.clone() for name, p in state.scene.parameters().items() if p.grad is not None})

    replaced = stages.replaced(optimize=optimize)
    replaced.update.learn(replaced, state, shots)
    return found


@pytest.mark.parametrize("images", [2, 3])
def test_the_gradient_is_the_mean_of_those_of_single_images(images: int) -> None:
    """All steps have the same sweep; regularisers count once."""
    stages = base_stages("native", CPU)
    together = planned(images).load(4)
    alone = [gradients(stages, replace(together, images=(shot,))) for shot in together.images]
    found = gradients(stages, together)
    assert found.keys() == alone[0].keys()
    for name, gradient in found.items():
        expected = torch.stack([one[name] for one in alone]).mean(0)
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-7, msg=lambda m, name=name: f"{name}: {m}")


def test_what_needs_no_view_is_done_once() -> None:
    calls: Counter[str] = Counter()

    def counted(name: str) -> Callable[[Callable], Callable]:
        def around(inner: Callable) -> Callable:
            return lambda *args: (calls.update([name]), inner(*args))[1]

        return around

    once = ("activate", "collect", "interpolate", "regularisers", "terms", "optimize", "noise", "schedule")
    each = ("project", "tile", "render_camera", "image_loss")
    stages = build_stages({"collect_once": {}} | own(3), base_stages("native", CPU))
    stages = stages.wrap(**{name: counted(name) for name in (*once, *each)})
    steps(stages, state_of(stages, rays=0), 1)
    assert calls == dict.fromkeys(once, 1) | dict.fromkeys(each, 3)


# Rates


@pytest.mark.parametrize("images", [1, 2, 4])
def test_rates_rise_by_the_root_and_memory_is_as_many_images(images: int) -> None:
    plain, stages = reference_stages(), build_stages(own(images))
    state, other = state_of(stages), state_of(plain)
    for state.progress in (0.0, 0.5, 0.5, 1.0):
        other.progress = state.progress
        stages.feed.schedule(stages, state)
        plain.feed.schedule(plain, other)
        assert state.lr_and_noise is not None and other.lr_and_noise is not None
        for mine, theirs in zip(state.optimizer.param_groups, other.optimizer.param_groups, strict=True):
            assert mine["lr"] == pytest.approx(sqrt(images) * theirs["lr"], rel=1e-9)
            assert mine["betas"] == pytest.approx((0.9**images, 0.999**images), rel=1e-12)
        torch.testing.assert_close(state.lr_and_noise[:-1], sqrt(images) * other.lr_and_noise[:-1])
        assert state.lr_and_noise[-1] == pytest.approx(float(other.lr_and_noise[-1]), rel=1e-6)  # noise stays
        assert state.config == other.config
    with unseen.every_drive_is_long():
        stages.feed.schedule(stages, state)
    assert state.optimizer.param_groups[0]["betas"] == pytest.approx((0.9**images, 0.995**images), rel=1e-12)


def test_rates_are_for_the_images_that_there_are() -> None:
    stages = build_stages(own(1000))
    state = state_of(stages)
    stages.feed.schedule(stages, state)
    first = state.optimizer.param_groups[0]
    assert first["lr"] == pytest.approx(4 * state.config.lr.means)  # of 16 images


def test_rates_may_stay_what_they_are() -> None:
    stages = build_stages(own(4, scale_rates=False))
    state = state_of(stages)
    stages.feed.schedule(stages, state)
    assert state.optimizer.param_groups[0]["lr"] == state.config.lr.means
    assert state.optimizer.param_groups[0]["betas"] == (0.9, 0.999)


@pytest.mark.parametrize("at", [1, 5])
def test_a_run_that_goes_on_is_bitwise_a_whole_one(tmp_path: Path, at: int) -> None:
    """Through relocations; betas are the option's again, not the checkpoint's."""

    def run(name: str, until: int = 9, resume: Path | None = None) -> TrainState:
        def stopping(inner: Callable) -> Callable:
            return lambda stages, state: inner(stages, state) if state.step < until else 1 / 0

        config = tiny_config(steps=9)
        config.train = replace(config.train, resume=resume and str(resume))
        stages = build_stages(own(3)).wrap(fetch=stopping)
        state = make_state(config, tiny_capture(), CPU, frames=stages.feed.frames)
        train(stages, state, tmp_path / name)
        return state

    whole = run("whole.pt")
    with pytest.raises(ZeroDivisionError):
        run("cut.pt", until=at)
    resumed = run("cut.pt", resume=tmp_path / "cut.pt")
    assert_close(resumed, whole)
    assert resumed.optimizer.param_groups[0]["betas"] == (0.9**3, 0.999**3)


# Beside others


def test_numbers_below_one_are_refused() -> None:
    for values, name in ((own(0), "images"), (own(2, 0), "sweeps")):
        with pytest.raises(OptionError, match=f"option 'batch': {name} is 0, but must be at least 1"):
            build_stages(values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"images": 0}, "opt.batch.images is 0, but must lie between 1 and 64"),
        ({"images": 2.5}, "opt.batch.images is 2.5, but must be a whole number"),
        ({"sweeps": -1}, "opt.batch.sweeps is -1, but must lie between 1 and 64"),
        ({"scale_rates": 2}, "opt.batch.scale_rates is 2, but must be true or false"),
        ({"one_launch": 0.5}, "opt.batch.one_launch is 0.5, but must be true or false"),
    ],
)
def test_the_command_line_s_values_have_ranges(values: dict[str, Any], words: str) -> None:
    with pytest.raises(BoundError, match=words):
        check_options({"batch": values})


def test_an_unknown_parameter_is_reported() -> None:
    with pytest.raises(OptionError, match="its parameters are images, sweeps, scale_rates, one_launch"):
        build_stages({"batch": parameters_of("batch") | {"size": 2}})


# Beside others

ALONE = "workers resident pinned prefetch fused_interp collect_once fused_adam fused_ssim fused_sky fused_range"
SETS = [
    *((name,) for name in ALONE.split()), ("workers", "pinned", "prefetch", "resident"), ("fused_interp", "no_sync"),
    (
        "workers", "resident", "fused_interp", "collect_once", "no_sync", "fused_adam", "fused_ssim", "fused_sky",
        "fused_range",
    ),
]  # fmt: skip


def stages_with(names: tuple[str, ...], images: int = 3, sweeps: int = 2) -> Stages:
    """Stages with the options in this order; options that are refused on a CPU, because they do nothing there, are taken, too."""
    stages = base_stages("native", CPU)
    for name in names:
        values = own(images, sweeps)[name] if name == "batch" else parameters_of(name)
        stages = option_module(name).apply(stages, **values)
    return stages


@pytest.mark.parametrize("names", SETS, ids=" ".join)
@pytest.mark.parametrize("first", [True, False], ids=["batch first", "batch last"])
def test_with_others_training_is_that_of_the_option_alone(names: tuple[str, ...], first: bool) -> None:
    alone = trained(("batch",))
    found = trained(("batch", *names) if first else (*names, "batch"))
    if set(names) <= {"workers", "resident", "pinned", "prefetch"}:
        assert_close(found[0], alone[0])
    for mine, other in zip(found[1], alone[1], strict=True):  # in the states Adam makes whole steps of rounding errors
        assert mine == pytest.approx(other, rel=2e-3, abs=1e-5)


def trained(names: tuple[str, ...]) -> tuple[TrainState, list[dict[str, float]]]:
    """After four steps, and the terms of their losses."""
    stages, terms = stages_with(names), []
    state = state_of(stages)
    try:
        for _ in range(4):
            result = stages.update.try_step(stages, state, stages.feed.fetch(stages, state))
            terms.append({name: float(term) for name, term in result.terms.items()})
            state.step += 1
        stages.update.synchronize(stages, state)
    finally:
        stages.close()
    return state, terms


def test_loader_processes_and_the_store_get_the_same_shots(tmp_path: Path) -> None:
    write_pack(tiny_capture(), tmp_path / "tiny.pack")
    plan = planned(3, 2, ShotPlan(read_pack(tmp_path / "tiny.pack").with_split("interp"), 3, 128))
    for names in (("workers", "batch"), ("batch", "resident")):
        stages = stages_with(names)
        for step in (*range(12), 100, 7):
            shots = stages.feed.fetch(stages, replace(tiny_state(), plan=plan, step=step))
            assert_same(shots, plan.load(step))
        stages.close()


@pytest.mark.parametrize("images", [2, 4])
def test_a_list_without_capacity_in_a_step_of_several_images(images: int) -> None:
    """Four images are two of each camera: capacities are by sensor."""
    names = ("fused_interp", "no_sync", "batch")
    plain, overflown = (state_of(stages_with(names, images)) for _ in "ab")
    steps(stages_with(names, images), plain, 6)
    stages = cramped(stages_with(names, images), {3})
    steps(stages, overflown, 6)
    assert no_sync_of(stages).redone >= 1
    assert_close(plain, overflown)


def test_a_graph_is_recorded_once_for_both_cameras_of_any_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    below = ("fused_interp", "collect_once", "no_sync", "fused_adam", "batch")
    plain, graphed = (state_of(stages_with(below, 2, 1), rays=0) for _ in "ab")
    steps(stages_with(below, 2, 1), plain, 10)
    stages = stages_with((*below, "cuda_graph"), 2, 1)
    steps(stages, graphed, 10)
    assert (
        isinstance(stages.update.learn, CudaGraph)
        and stages.update.learn.recorded <= 2
        and stages.update.learn.launched >= 5
    )
    assert_close(plain, graphed)


@pytest.mark.gpu
@pytest.mark.parametrize("images", [2, 3])
def test_on_a_gpu_with_all_others(images: int) -> None:
    from omegaconf import OmegaConf

    from nurec_lite.base.paths import resource

    device = torch.device("cuda")
    everything_else = OmegaConf.load(resource("conf/opt/all.yaml"))["all"]["cuda"]
    values = {name: parameters_of(name) for name in everything_else} | own(images)
    stages = build_stages(values, base_stages("native", device))
    config = replace(tiny_config(), device="cuda")
    try:
        state = make_state(config, tiny_capture(), device, frames=stages.feed.frames)
        steps(stages, state, 24)
        assert isinstance(stages.update.learn, CudaGraph) and stages.update.learn.launched
        assert all(value.isfinite().all() for value in state.scene.parameters().values())
    finally:
        stages.close()


# Its benchmark


def test_the_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pack(tiny_capture(), tmp_path / "tiny.pack")
    tiny = ["model.points=300", "model.actor_points=40", "model.raised_points=100", "model.far_points=80", "device=cpu"]
    bench_batch.main(
        ["data=pack", f"data.root={tmp_path}/tiny.pack", *tiny, "model.sky_height=8", "density.cap=600", "train.lidar_rays=128",
         "--images", "1", "2", "--seen", "4", "--seconds", "0.1", "--seeds", "7", "--out", str(tmp_path / "out.json")]
    )  # fmt: skip
    report = json.loads((tmp_path / "out.json").read_text())
    sets = ["1", "2, rates", "2, as given", "2, by images"]
    assert report["kinds"] == sets and "equal seconds" in capsys.readouterr().out
    for budget in ("seen", "seconds"):
        assert list(report["runs"][budget]) == sets
        for name, rows in report["runs"][budget].items():
            assert [row["seed"] for row in rows] == [7] and all(row["psnr"] > 5 for row in rows)
            assert all(row["images_seen"] == int(name[0]) * row["steps"] for row in rows)
    assert {row["images_seen"] for rows in report["runs"]["seen"].values() for row in rows} == {4}
