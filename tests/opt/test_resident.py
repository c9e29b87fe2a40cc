# SPDX-License-Identifier: Apache-2.0
"""The option `resident`: bitwise the baseline's shots, decoded once, in the order of need; and its end if they do not fit."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from same_shots import assert_same
from tiny_capture import tiny_capture, tiny_config, tiny_state

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import parameters_of
from nurec_lite.base.paths import resource
from nurec_lite.capture.decoders import RAY_BYTES
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.opt.all import resident
from nurec_lite.opt.all.resident import Resident
from nurec_lite.splat.views import LidarView, RayGroups
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.loop import train
from nurec_lite.training.resident_frames import (
    GROUP_BYTES,
    KeptSweep,
    capture_bytes,
    frames_from,
    frames_of,
    smallest_window,
)  # fmt: skip
from nurec_lite.training.shots import ShotPlan, Shots, SweepShot
from nurec_lite.training.stages import RECORD_OF, Stages
from nurec_lite.training.state import TrainState

EVERY_RAY = 10**9


@dataclass(frozen=True)
class Counting:
    """Stands in for a decoder, and counts its calls."""

    load: Callable[[], Any]
    calls: Counter[str]
    name: str

    def __call__(self) -> Any:
        self.calls[self.name] += 1
        return self.load()


def counted(capture: Capture, calls: Counter[str]) -> Capture:
    images = tuple(replace(f, load=Counting(f.load, calls, f"image {i}")) for i, f in enumerate(capture.images))
    sweeps = tuple(replace(f, load=Counting(f.load, calls, f"sweep {i}")) for i, f in enumerate(capture.sweeps))
    return replace(capture, images=images, sweeps=sweeps)


def state_of(plan: ShotPlan, step: int = 0) -> TrainState:
    return replace(tiny_state(), plan=plan, step=step)


@pytest.fixture
def stages() -> Iterator[Stages]:
    made = build_stages({"resident": {"share": 1.0, "jpeg": "host"}})
    yield made
    made.close()


def tiny_capture_shot() -> SweepShot:
    return ShotPlan(tiny_capture(), seed=3, lidar_rays=EVERY_RAY).load(0).sweeps[0]


def fed(stages: Stages, plan: ShotPlan, step: int) -> Shots:
    return stages.feed.fetch(stages, state_of(plan, step))


@pytest.fixture(scope="module", params=[1, 2], ids=["whole images", "downscaled"])
def street(request: pytest.FixtureRequest) -> Capture:
    return read_pack(resource("data/street.pack"), downscale=request.param).with_split("interp")


# The same shots


@pytest.mark.parametrize("rays", [2048, EVERY_RAY, 0], ids=["sampled", "whole", "none"])
def test_shots_of_the_street_are_bitwise_those_of_the_baseline(stages: Stages, street: Capture, rays: int) -> None:
    plan = ShotPlan(street, seed=3, lidar_rays=rays)
    for step in (0, 1, 2, 3, 50, 51, 400, 7):
        assert_same(fed(stages, plan, step), plan.load(step))
    assert isinstance(stages.feed.fetch, Resident) and stages.feed.fetch.store is not None


def test_wide_sectors_are_those_of_the_baseline(stages: Stages, street: Capture) -> None:
    plan = ShotPlan(street, seed=3, lidar_rays=2048, sector=32)
    for step in (0, 1, 7):
        assert_same(fed(stages, plan, step), plan.load(step))


def test_one_ray_is_a_sector_as_in_the_baseline(stages: Stages) -> None:
    plan = ShotPlan(tiny_capture(), seed=1, lidar_rays=1)
    for step in range(10):
        assert_same(fed(stages, plan, step), plan.load(step))


@pytest.mark.parametrize("sector", [None, 1, 3, 32])
def test_slices_that_one_launch_puts_together_are_the_same_rays(street: Capture, sector: int | None) -> None:
    native = base_stages("native", torch.device("cpu"))
    stages = build_stages({"resident": {"share": 1.0, "jpeg": "host"}}, native)
    plan = ShotPlan(street, seed=3, lidar_rays=2048, sector=sector)
    for step in (0, 1, 7):
        assert_same(fed(stages, plan, step), plan.load(step))
    stages.close()


@pytest.mark.gpu
@pytest.mark.parametrize("sector", [None, 1, 2])
def test_slices_on_a_gpu(sector: int | None) -> None:
    device = torch.device("cuda")
    stages = build_stages({"resident": {"share": 1.0, "jpeg": "host"}}, base_stages("native", device))
    plan = ShotPlan(tiny_capture(), seed=3, lidar_rays=300, sector=sector)
    for step in range(10):
        found = stages.feed.fetch(stages, replace(state_of(plan, step), device=device))
        assert found.sweeps[0].sweep.ranges.is_cuda
        assert_same(found.copied(lambda t: t.cpu()), plan.load(step))
    stages.close()


def test_neighbouring_sectors_are_one_stretch() -> None:
    shot = tiny_capture_shot()
    kept = KeptSweep(shot, (0, 3, 3, 5, 9, 12))
    assert kept.ray_slices([0, 2]) == [slice(0, 5)]
    assert kept.ray_slices([0, 1, 3]) == [slice(0, 3), slice(5, 9)]
    assert kept.ray_slices([3, 4]) == [slice(5, 12)]
    assert kept.ray_slices([1]) == [slice(0, 0)]


def test_one_stretch_is_not_copied(stages: Stages) -> None:
    """A sector that is all of the rays that are drawn."""
    plan = ShotPlan(tiny_capture(), seed=1, lidar_rays=1)
    places = set()
    for step in range(4 * len(plan.split.train_sweeps)):
        (shot,) = fed(stages, plan, step).sweeps
        assert isinstance(stages.feed.fetch, Resident) and stages.feed.fetch.store is not None
        whole = stages.feed.fetch.store.sweep(shot.index).shot.sweep
        for f in fields(whole):
            mine, kept = getattr(shot.sweep, f.name), getattr(whole, f.name)
            assert mine.untyped_storage().data_ptr() == kept.untyped_storage().data_ptr()
        places.add(shot.sweep.ranges.storage_offset())
    assert len(places) > 1


def test_a_sweep_without_rays_stays_one(stages: Stages) -> None:
    capture = tiny_capture()
    empty = tuple(replace(f, load=lambda f=f: f.load().select(torch.zeros(0).long())) for f in capture.sweeps)
    plan = ShotPlan(replace(capture, sweeps=empty), seed=1, lidar_rays=5)
    assert_same(fed(stages, plan, 2), plan.load(2))
    assert len(fed(stages, plan, 2).sweeps[0].sweep) == 0


def test_a_capture_without_lidar_works_too(stages: Stages) -> None:
    plan = ShotPlan(replace(tiny_capture(), lidars=(), sweeps=()).with_split("interp"), seed=3, lidar_rays=128)
    assert_same(fed(stages, plan, 4), plan.load(4))


def test_another_plan_takes_effect_at_once(stages: Stages) -> None:
    plan = ShotPlan(tiny_capture(), seed=3, lidar_rays=128)
    other = replace(plan, seed=4)
    for step, which in enumerate((plan, other, plan)):
        assert_same(fed(stages, which, step), which.load(step))


@pytest.mark.parametrize("rays", [128, EVERY_RAY])
def test_training_is_bitwise_the_same(tmp_path: Path, rays: int) -> None:
    def trained(stages: Stages) -> TrainState:
        config = tiny_config(steps=5)
        state = tiny_state(replace(config, train=replace(config.train, lidar_rays=rays)))
        try:
            train(stages, state, tmp_path / "checkpoint.pt")
        finally:
            stages.close()
        return state

    plain, option = trained(reference_stages()), trained(build_stages({"resident": parameters_of("resident")}))
    for name, value in plain.scene.parameters().items():
        assert torch.equal(value, option.scene.parameters()[name]), name


# Once, and the order


def test_every_frame_is_decoded_once(stages: Stages) -> None:
    calls: Counter[str] = Counter()
    plan = ShotPlan(counted(tiny_capture(), calls), seed=3, lidar_rays=128)
    for step in range(40):  # epochs
        fed(stages, plan, step)
    assert set(calls.values()) == {1}
    assert len(calls) == len(plan.split.train_images) + len(plan.split.train_sweeps)


def test_what_does_not_change_is_the_same_tensor_at_every_step(stages: Stages) -> None:
    plan = ShotPlan(tiny_capture(), seed=3, lidar_rays=EVERY_RAY)
    found = [fed(stages, plan, step) for step in range(40)]
    assert len({id(shots.images[0].image) for shots in found}) == len(plan.split.train_images)
    assert len({id(shots.sweeps[0].sweep.ranges) for shots in found}) == len(plan.split.train_sweeps)


@pytest.mark.parametrize("first", [0, 5, 1003])
def test_frames_are_decoded_in_the_order_of_need(first: int) -> None:
    plan = ShotPlan(tiny_capture(), seed=3, lidar_rays=128)
    order = frames_from(plan, first)
    assert order[:2] == frames_of(plan, first)
    assert sorted(order) == sorted(
        [("image", i) for i in plan.split.train_images] + [("sweep", i) for i in plan.split.train_sweeps]
    )
    needed = [frames_of(plan, step)[0] for step in range(first, first + 100)]
    assert [frame for frame in order if frame[0] == "image"] == list(dict.fromkeys(needed))


@pytest.mark.parametrize("first", [0, 5, 1003])
def test_all_frames_are_decoded_where_sweeps_come_in_some_steps_alone(first: int) -> None:
    plan = ShotPlan(tiny_capture(), seed=3, lidar_rays=128, sweeps_every=7)
    order = frames_from(plan, first)
    assert sorted(order) == sorted(frames_from(replace(plan, sweeps_every=1), first))


def test_training_begins_with_what_is_there(stages: Stages) -> None:
    """The first step does not wait for the last frame."""
    plan = ShotPlan(tiny_capture(), seed=3, lidar_rays=128)
    _, last = frames_from(plan, 0)[-1]
    there, images = threading.Event(), list(plan.capture.images)
    kind = frames_from(plan, 0)[-1][0]
    frames = images if kind == "image" else list(plan.capture.sweeps)
    frames[last] = replace(frames[last], load=lambda load=frames[last].load: there.wait(60) and load())  # type: ignore[type-var]
    held = ShotPlan(replace(plan.capture, **{f"{kind}s": tuple(frames)}), seed=3, lidar_rays=128)
    assert_same(fed(stages, held, 0), plan.load(0))
    there.set()
    for step in range(1, 17):
        assert_same(fed(stages, held, step), plan.load(step))


# Errors and ends


def test_a_frame_that_cannot_be_decoded_is_an_error_of_the_step_that_needs_it(stages: Stages) -> None:
    def broken() -> Any:
        raise CaptureError("image 5 is damaged; copy it again")

    plan = ShotPlan(tiny_capture(), seed=3, lidar_rays=0)
    images, at = list(plan.capture.images), 3
    ((index,), _) = plan.chosen(at)
    images[index] = replace(images[index], load=broken)
    damaged = ShotPlan(replace(plan.capture, images=tuple(images)), seed=3, lidar_rays=0)
    for step in range(at):
        assert_same(fed(stages, damaged, step), plan.load(step))
    with pytest.raises(CaptureError, match="image 5 is damaged; copy it again"):
        fed(stages, damaged, at)


def test_no_thread_is_left_and_torch_has_its_threads_again() -> None:
    before, threads = set(threading.enumerate()), torch.get_num_threads()
    stages = build_stages({"resident": parameters_of("resident")})
    fed(stages, ShotPlan(tiny_capture(), seed=3, lidar_rays=128), 0)
    stages.close()
    stages.close()
    assert set(threading.enumerate()) <= before and torch.get_num_threads() == threads


@pytest.mark.parametrize(("lidar_rays", "times"), [(EVERY_RAY, 1), (128, 0)])
def test_sweeps_that_steps_take_whole_are_bundled_once(lidar_rays: int, times: int) -> None:
    made: Counter[int] = Counter()

    def bundle(view: LidarView) -> LidarView:
        made[view.directions.data_ptr()] += 1
        return replace(view, ray_groups=RayGroups(*(torch.empty(0) for _ in range(5))))

    plan = ShotPlan(tiny_capture(), seed=3, lidar_rays=lidar_rays)
    stages = build_stages({"resident": parameters_of("resident")}).replaced(group_rays=bundle)
    for step in range(40):
        (shot,) = fed(stages, plan, step).sweeps
        assert (shot.view.ray_groups is not None) == bool(times)
    assert sum(made.values()) == times * len(plan.split.train_sweeps)
    stages.close()


# Captures that do not fit


def test_the_size_is_that_of_what_is_kept() -> None:
    plan = ShotPlan(tiny_capture(), seed=3, lidar_rays=EVERY_RAY)
    shots = plan.load(0)
    held: list[torch.Tensor] = []
    kept = KeptSweep(shots.sweeps[0], None)
    replace(shots, images=(), sweeps=(kept.shot,)).copied(lambda t: held.append(t) or t)  # type: ignore[func-returns-value]
    rays = [t for t in held if len(t.shape) and len(t) == len(kept.shot.sweep)]
    assert sum(t.nbytes for t in rays) == RAY_BYTES * len(kept.shot.sweep)
    images, sweeps = len(plan.split.train_images), len(plan.split.train_sweeps)
    assert capture_bytes(plan) == images * shots.images[0].image.nbytes + sweeps * (RAY_BYTES + GROUP_BYTES) * len(
        kept.shot.sweep
    )
    assert capture_bytes(replace(plan, lidar_rays=0)) == images * shots.images[0].image.nbytes


def test_it_stands_aside_and_says_so_when_the_capture_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plan = ShotPlan(tiny_capture(), seed=3, lidar_rays=128)
    monkeypatch.setattr(resident, "free_memory", lambda device: 2 * smallest_window(plan, 1) - 1)
    stages = build_stages({"resident": {"share": 0.5, "jpeg": "host"}})
    caplog.set_level(logging.WARNING)
    assert_same(fed(stages, plan, 0), plan.load(0))
    assert isinstance(stages.feed.fetch, Resident) and stages.feed.fetch.store is None
    assert "resident is off" in caplog.text and "raise opt.resident.share" in caplog.text
    fed(stages, plan, 1)
    assert caplog.text.count("resident is off") == 1
    monkeypatch.setattr(resident, "free_memory", lambda device: 2 * capture_bytes(plan))
    other = replace(plan)
    assert_same(fed(stages, other, 0), plan.load(0))
    assert stages.feed.fetch.store is not None
    stages.close()


@pytest.mark.parametrize("share", [0, -1, 1.01])
def test_a_share_is_one(share: float) -> None:
    with pytest.raises(OptionError, match=f"'resident': share is {share}"):
        build_stages({"resident": {"share": share, "jpeg": "host"}})


# Beside others


def test_the_option_stands_around_two_stages_and_begins_before_them() -> None:
    stages = build_stages({"resident": parameters_of("resident")})
    assert stages.changes.wrapped == {"fetch", "place"} and stages.changes.claims == {"begin_frames": "resident"}
    others = RECORD_OF.keys() - {"fetch", "place", "begin_frames"}
    assert all(stages.stage(name) is reference_stages().stage(name) for name in others)


def test_what_is_there_is_not_placed_again() -> None:
    uploads: list[torch.Tensor] = []
    base = reference_stages().replaced(upload=lambda tensor, device: uploads.append(tensor) or tensor)  # type: ignore[func-returns-value]
    stages = resident.apply(base, share=1.0, jpeg="host")
    fed(stages, ShotPlan(tiny_capture(), seed=3, lidar_rays=128), 0)
    assert uploads == []
    stages.close()


def test_other_chosen_steps_are_obeyed() -> None:
    """Several processes that train together would choose so."""
    plan = ShotPlan(tiny_capture(), seed=3, lidar_rays=128)
    third = reference_stages().wrap(next_batch=lambda inner: lambda plan, number: inner(plan, 3 * number + 1))
    stages = resident.apply(third, share=1.0, jpeg="host")
    for step in range(20):
        assert_same(fed(stages, plan, step), plan.load(3 * step + 1))
    stages.close()


@pytest.mark.parametrize("fits", [True, False])
def test_loader_processes_start_only_if_the_capture_does_not_fit(monkeypatch: pytest.MonkeyPatch, fits: bool) -> None:
    monkeypatch.setattr(resident, "free_memory", lambda device: 10**12 if fits else 0)
    stages = build_stages({"workers": parameters_of("workers"), "resident": parameters_of("resident")})
    plan = ShotPlan(tiny_capture(), seed=3, lidar_rays=128)
    for step in range(3):
        assert_same(fed(stages, plan, step), plan.load(step))
    assert (stages.feed.next_batch.batches is None) == fits  # type: ignore[attr-defined]
    stages.close()


@pytest.mark.gpu
@pytest.mark.parametrize("rays", [128, EVERY_RAY])
@pytest.mark.parametrize("others", [(), ("fused_interp", "no_sync")])
def test_on_a_gpu_shots_are_there_and_bitwise_the_same(rays: int, others: tuple[str, ...]) -> None:
    from nurec_lite.backends import base_stages

    device = torch.device("cuda")
    names = (*others, "resident")
    stages = build_stages({name: parameters_of(name) for name in names}, base_stages("native", device))
    plan = ShotPlan(tiny_capture(), seed=3, lidar_rays=rays)
    for step in range(25):
        shots = stages.feed.fetch(stages, replace(tiny_state(), plan=plan, step=step, device=device))
        assert all(view.row is not None and view.row.is_cuda for view in shots.views)
        assert shots.images[0].image.is_cuda and shots.sweeps[0].sweep.ranges.is_cuda
        assert_same(shots.copied(lambda tensor: tensor.cpu()), plan.load(step))
    stages.close()
