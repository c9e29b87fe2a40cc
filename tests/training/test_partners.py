# SPDX-License-Identifier: Apache-2.0
"""Images that share a step of several ranks are paired by their times; epochs and ranks keep their images."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from stepping import cramped, steps
from tiny_capture import tiny_capture, tiny_config, tiny_state

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.native.rank1_sh import DeferredShGrad
from nurec_lite.opt.all import resident
from nurec_lite.training import partners
from nurec_lite.training.broken import seen
from nurec_lite.training.order import Order
from nurec_lite.training.partners import WINDOW, estimated
from nurec_lite.training.resident_frames import smallest_window
from nurec_lite.training.shots import ShotPlan, Shots
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import StepResult, TrainState
from nurec_lite.training.step_clock import is_measured, with_times

CPU = torch.device("cpu")


def time_of(image: int) -> int:
    """Microseconds, in an order of their own."""
    return 3000 + image * 7919 % 1009


def plan_of(
    images: int = 2, ranks: int = 2, few: int | None = None, camera: int | None = None, **more: Any
) -> ShotPlan:
    """A plan of the first few training images, of all cameras or of one."""
    capture = tiny_capture()
    split = capture.split
    assert split is not None
    name = None if camera is None else capture.cameras[camera].name
    own = tuple(i for i in split.train_images if name in (None, capture.images[i].sensor))[:few]
    capture = replace(capture, split=replace(split, train_images=own))
    return ShotPlan(capture, seed=3, lidar_rays=0, images_a_step=images, ranks=ranks, **more)


def measure(plan: ShotPlan, images: Sequence[int]) -> None:
    """Gives the partners the times of these images, a step with one image a rank for each."""
    for image in images:
        plan.partners.learn((image,) * plan.ranks, (time_of(image),) * plan.ranks)


def run(plan: ShotPlan, n: int, known: bool = True) -> list[tuple[int, ...]]:
    """Images of n steps, which are planned as they come."""
    if known:
        measure(plan, plan.split.train_images)
    found = []
    for step in range(n):
        plan.partners.plan(step, plan.images, plan.ranks, plan.capture)
        found.append(plan.images_of(step))
    return found


# ---- the order


@pytest.mark.parametrize("window", [5, WINDOW])
@pytest.mark.parametrize("camera", [None, 0], ids=["all cameras", "one camera"])
@pytest.mark.parametrize("few", [3, 7, 8, 15, 16])
@pytest.mark.parametrize("images, ranks", [(2, 2), (4, 2), (3, 3)])
def test_each_image_comes_once_an_epoch_on_its_rank_and_steps_keep_the_first_rank(
    images: int, ranks: int, few: int, camera: int | None, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows end within epochs and beyond, and steps lie across the ends of epochs."""
    monkeypatch.setattr(partners, "WINDOW", window)
    plan = plan_of(images, ranks, few, camera)
    order, n = plan.images, len(plan.images.frames)
    if order.size % ranks:
        pytest.skip("ranks cannot share such steps")
    found = run(plan, 4 * WINDOW)
    in_turn = [image for step in found for image in step]
    for begin in range(0, len(in_turn) - n + 1, n):
        assert sorted(in_turn[begin : begin + n]) == sorted(order.frames)
    base = [order.of(step) for step in range(len(found))]
    for rank in range(ranks):
        part = slice(rank * order.size // ranks, (rank + 1) * order.size // ranks)
        of_epochs = [defaultdict(list), defaultdict(list)]
        for step, pair in enumerate(zip(found, base, strict=True)):
            assert rank or pair[0][part] == pair[1][part]
            for shares, chosen in zip(of_epochs, pair, strict=True):
                shares[order.epoch(step)].append(chosen[part])
        whole = of_epochs[0].keys() - {order.epoch(len(found) - 1)}  # a window goes on after the last step
        assert all(sorted(of_epochs[0][epoch]) == sorted(of_epochs[1][epoch]) for epoch in whole)
    assert all(len(set(chosen)) == len(chosen) == order.size for chosen in found)


@pytest.mark.parametrize("images", [2, 4])
def test_images_of_equal_rank_by_time_join(images: int) -> None:
    plan = plan_of(images)
    found, groups = run(plan, WINDOW), defaultdict(list)
    assert found != [plan.images.of(step) for step in range(WINDOW)]
    each = images // 2
    for step, chosen in enumerate(found):
        if plan.images.epoch(step) is not None:
            groups[plan.images.epoch(step)].append(tuple(sum(map(time_of, chosen[k : k + each])) for k in (0, each)))
    for times in groups.values():
        for place in zip(*sorted(times), strict=True):
            assert list(place) == sorted(place)


def waits(found: Sequence[Sequence[int]]) -> float:
    return sum(max(times) - min(times) for times in (list(map(time_of, images)) for images in found))


def test_ranks_wait_less() -> None:
    plan = plan_of()
    found = run(plan, WINDOW)
    assert waits(found) < 0.35 * waits([plan.images.of(step) for step in range(WINDOW)])


def test_nothing_changes_before_half_of_the_times_are_known() -> None:
    plan = plan_of()
    frames = plan.split.train_images
    half = -(-len(frames) // 2)
    measure(plan, frames[: half - 1])
    base = [plan.images.of(step) for step in range(3 * WINDOW)]
    assert run(plan, WINDOW + 1, known=False) == base[: WINDOW + 1]
    measure(plan, frames[half - 1 : half])
    later = []
    for step in range(WINDOW + 1, 3 * WINDOW):  # the next window is the first one that changes
        plan.partners.plan(step, plan.images, plan.ranks, plan.capture)
        later.append(plan.images_of(step))
    assert later[: WINDOW - 1] == base[WINDOW + 1 : 2 * WINDOW] and later[WINDOW - 1 :] != base[2 * WINDOW :]


def test_an_image_without_a_time_gets_that_of_the_nearest_moment_of_its_sensor() -> None:
    plan = plan_of()
    capture, frames = plan.capture, plan.split.train_images
    of_first = [i for i in frames if capture.images[i].sensor == capture.images[frames[0]].sensor]
    known = {of_first[1]: 3000, of_first[-1]: 5000}
    found = estimated(frames, known, capture)
    at = [capture.moments.images[i] for i in of_first]
    middle = (at[1] + at[-1]) / 2
    for image, moment in zip(of_first, at, strict=True):
        assert moment == middle or found[image] == (3000 if moment < middle else 5000)
    assert found.keys() == set(frames) and set(found.values()) == {
        3000,
        5000,
    }  # other sensors get a time of another one


def test_planned_steps_stay_and_older_windows_go() -> None:
    plan = plan_of()
    first = run(plan, WINDOW)
    for image in plan.split.train_images:
        plan.partners.learn((image,) * 2, (10_000 - time_of(image),) * 2)
    for step in range(2 * WINDOW):
        plan.partners.plan(step, plan.images, plan.ranks, plan.capture)
    assert [plan.images_of(step) for step in range(WINDOW)] == first
    plan.partners.plan(2 * WINDOW, plan.images, plan.ranks, plan.capture)
    assert plan.partners.of(WINDOW - 1) is None and plan.partners.of(WINDOW) is not None


def test_a_time_is_that_of_a_rank_with_equal_shares_for_its_images() -> None:
    plan = plan_of(4)
    plan.partners.learn((7, 2, 5, 11), (3000, 5000))
    assert plan.partners.times == {7: 1500, 2: 1500, 5: 2500, 11: 2500}
    plan.partners.learn((2, 5), (1000, 2000))
    assert plan.partners.times == {7: 1500, 2: 1000, 5: 2000, 11: 2500}


def test_the_epoch_of_a_step() -> None:
    order = Order((1, 2, 3), (0, 0, 0), seed=0, most=2)
    assert [order.epoch(step) for step in range(6)] == [0, None, 1, 2, None, 3]


def test_names_of_the_last_frames_are_those_of_the_true_ones() -> None:
    plan = plan_of(rank=1)
    found = run(plan, WINDOW)
    for step in range(WINDOW):
        assert [frame["index"] for frame in seen(plan, step)] == [found[step][1]]
    assert any(found[step] != plan.images.of(step) for step in range(WINDOW))


# ---- runs that may change it


@pytest.fixture
def feeding() -> Iterator[Stages]:
    made = build_stages({"resident": {"share": 0.5, "jpeg": "host"}})
    yield made
    made.close()


@pytest.mark.parametrize("windowed", [False, True], ids=["all frames", "a window of frames"])
def test_the_order_changes_if_all_frames_stay_on_the_device(
    windowed: bool, feeding: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(rank=1)
    if windowed:
        monkeypatch.setattr(resident, "free_memory", lambda device: 2 * smallest_window(plan, 1))
    measure(plan, plan.split.train_images)
    fed = [feeding.feed.fetch(feeding, replace(tiny_state(), plan=plan, step=step)) for step in range(WINDOW)]
    own = [shots.images[0].index for shots in fed]
    base = [plan.images.of(step)[1] for step in range(WINDOW)]
    assert own == [plan.images_of(step)[1] for step in range(WINDOW)]
    assert Counter(own) == Counter(base) and (own == base) is windowed


def test_frames_that_are_decoded_for_each_step_come_in_the_order_of_the_seed() -> None:
    plan, stages = plan_of(), build_stages({})
    measure(plan, plan.split.train_images)
    fed = [stages.feed.fetch(stages, replace(tiny_state(), plan=plan, step=step)) for step in range(16)]
    assert [shots.images[0].index for shots in fed] == [plan.images.of(step)[0] for step in range(16)]


def test_steps_of_a_budget_of_seconds_are_measured_on_a_gpu_without_sweeps() -> None:
    native = base_stages("native", CPU)
    assert native.plan is not None
    sending = replace(native, device="cuda", plan=replace(native.plan, rank1_sh=DeferredShGrad()))
    state = replace(tiny_state(), config=tiny_config(steps=None))
    shots = state.plan.load(0)
    images = replace(shots, sweeps=())
    assert is_measured(sending, state, images) and not is_measured(sending, state, shots)
    assert not is_measured(sending, replace(state, config=tiny_config(steps=9)), images)
    assert not is_measured(replace(sending, device="cpu"), state, images)
    assert not is_measured(replace(sending, plan=native.plan), state, images)
    assert not is_measured(replace(sending, plan=None), state, images)


# ---- times in reports


def stages_with_times(calls: list[int]) -> Stages:
    """Stages with times in their reports: the number of the call, and 100 more for the second rank."""

    def timed(inner: Any) -> Any:
        def learn(stages: Stages, state: TrainState, shots: Shots) -> StepResult:
            calls.append(state.step)
            return with_times(inner(stages, state, shots), torch.tensor([len(calls), 100 + len(calls)]))

        return learn

    base = base_stages("native", CPU).wrap(learn=timed)
    names = ("fused_interp", "collect_once", "no_sync", "fused_adam", "fused_ssim", "fused_range")
    return build_stages({name: parameters_of(name) for name in names}, base)


def test_times_come_with_reports_and_those_of_failed_steps_do_not_count() -> None:
    calls: list[int] = []
    stages, state = stages_with_times(calls), tiny_state()
    state.plan = replace(state.plan, images_a_step=2, ranks=2)
    steps(cramped(stages, {5}), state, 7)
    assert len(calls) > 7
    last = {step: number for number, step in enumerate(calls, 1)}  # a step that is repeated has a second call
    pairs = [(state.plan.images.of(step), last[step]) for step in range(7)]
    wanted = {image: number + 100 * rank for images, number in pairs for rank, image in enumerate(images)}
    assert state.plan.partners.times == wanted


def test_a_report_without_times_stays() -> None:
    result = with_times(StepResult(None, report=torch.tensor([5, 0])), None)  # type: ignore[arg-type]
    assert result.report is not None and torch.equal(result.report, torch.tensor([5, 0]))  # type: ignore[arg-type]
    assert with_times(StepResult(None), torch.tensor([1])).report is None  # type: ignore[arg-type]
