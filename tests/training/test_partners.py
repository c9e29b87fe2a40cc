# SPDX-License-Identifier: Apache-2.0
"""Images that share a step of several ranks are paired by the lengths of their lists; epochs and ranks keep their images."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from stepping import cramped, steps
from tiny_capture import tiny_capture, tiny_state
from torch import Tensor

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.base.ranks import Ranks
from nurec_lite.native.rank1_sh import Rank1ShGrad
from nurec_lite.opt.all import resident
from nurec_lite.opt.all.fused_harmonics import after_exchange
from nurec_lite.training import partners
from nurec_lite.training.broken import seen
from nurec_lite.training.exchange import Exchange, entries_of
from nurec_lite.training.order import Order
from nurec_lite.training.partners import WINDOW, estimated
from nurec_lite.training.resident_frames import smallest_window
from nurec_lite.training.shots import ShotPlan
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import ListUse, TrainState
from nurec_lite.training.step import _report

CPU = torch.device("cpu")


def length_of(image: int) -> int:
    """Entries, in an order of their own."""
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
    """Gives the partners the entries of these images."""
    plan.partners.learn(images, list(map(length_of, images)))


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
def test_images_of_equal_place_by_length_join(images: int) -> None:
    plan = plan_of(images)
    found, groups = run(plan, WINDOW), defaultdict(list)
    assert found != [plan.images.of(step) for step in range(WINDOW)]
    each = images // 2
    for step, chosen in enumerate(found):
        if plan.images.epoch(step) is not None:
            groups[plan.images.epoch(step)].append(tuple(sum(map(length_of, chosen[k : k + each])) for k in (0, each)))
    for lengths in groups.values():
        for place in zip(*sorted(lengths), strict=True):
            assert list(place) == sorted(place)


def waits(found: Sequence[Sequence[int]]) -> float:
    return sum(max(lengths) - min(lengths) for lengths in (list(map(length_of, images)) for images in found))


def test_ranks_wait_less() -> None:
    plan = plan_of()
    found = run(plan, WINDOW)
    assert waits(found) < 0.35 * waits([plan.images.of(step) for step in range(WINDOW)])


def test_nothing_changes_before_enough_images_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partners, "KNOWN", 0.5)
    plan = plan_of()
    frames = plan.split.train_images
    enough = -(-len(frames) // 2)
    measure(plan, frames[: enough - 1])
    base = [plan.images.of(step) for step in range(3 * WINDOW)]
    assert run(plan, WINDOW + 1, known=False) == base[: WINDOW + 1]
    measure(plan, frames[enough - 1 : enough])
    later = []
    for step in range(WINDOW + 1, 3 * WINDOW):  # the next window is the first one that changes
        plan.partners.plan(step, plan.images, plan.ranks, plan.capture)
        later.append(plan.images_of(step))
    assert later[: WINDOW - 1] == base[WINDOW + 1 : 2 * WINDOW] and later[WINDOW - 1 :] != base[2 * WINDOW :]


def test_an_image_without_entries_gets_those_of_the_nearest_moment_of_its_sensor() -> None:
    plan = plan_of()
    capture, frames = plan.capture, plan.split.train_images
    of_first = [i for i in frames if capture.images[i].sensor == capture.images[frames[0]].sensor]
    known = {of_first[1]: 3000, of_first[-1]: 5000}
    found = estimated(frames, known, capture)
    at = [capture.moments.images[i] for i in of_first]
    middle = (at[1] + at[-1]) / 2
    for image, moment in zip(of_first, at, strict=True):
        assert moment == middle or found[image] == (3000 if moment < middle else 5000)
    assert found.keys() == set(frames)
    assert set(found.values()) == {3000, 5000}, "other sensors get entries of another one"


def test_planned_steps_stay_and_older_windows_go() -> None:
    plan = plan_of()
    first = run(plan, WINDOW)
    plan.partners.learn(plan.split.train_images, [10_000 - length_of(image) for image in plan.split.train_images])
    for step in range(2 * WINDOW):
        plan.partners.plan(step, plan.images, plan.ranks, plan.capture)
    assert [plan.images_of(step) for step in range(WINDOW)] == first
    plan.partners.plan(2 * WINDOW, plan.images, plan.ranks, plan.capture)
    assert plan.partners.of(WINDOW - 1) is None and plan.partners.of(WINDOW) is not None


def test_the_last_entries_of_an_image_count() -> None:
    plan = plan_of(4)
    plan.partners.learn((7, 2, 5, 11), (3000, 4000, 5000, 6000))
    plan.partners.learn((2, 5), (1000, 2000))
    assert plan.partners.entries == {7: 3000, 2: 1000, 5: 2000, 11: 6000}


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


# ---- entries in reports


def stages_with_entries(calls: list[int]) -> Stages:
    """Stages with entries of images in their reports: the number of the call, and 100 more for the second rank."""

    def told(inner: Any) -> Any:
        def reduce(state: TrainState) -> None:
            calls.append(state.step)
            state.entries = torch.tensor([len(calls), 100 + len(calls)])
            inner(state)

        return reduce

    base = base_stages("native", CPU).wrap(reduce=told)
    names = ("fused_interp", "collect_once", "no_sync", "fused_adam", "fused_ssim", "fused_range")
    return build_stages({name: parameters_of(name) for name in names}, base)


def test_entries_come_with_reports_and_those_of_failed_steps_do_not_count() -> None:
    calls: list[int] = []
    stages, state = stages_with_entries(calls), tiny_state()
    state.plan = replace(state.plan, images_a_step=2, ranks=2)
    steps(cramped(stages, {5}), state, 7)
    assert len(calls) > 7
    last = {step: number for number, step in enumerate(calls, 1)}  # a step that is repeated has a second call
    pairs = [(state.plan.images.of(step), last[step]) for step in range(7)]
    wanted = {image: number + 100 * rank for images, number in pairs for rank, image in enumerate(images)}
    assert state.plan.partners.entries == wanted


class Alone(Exchange):
    """A rank that receives its own message."""

    def packed(self, form: Any, own: Rank1ShGrad, failed: Tensor | None, lists: Any) -> Tensor:
        return own.colours

    def gather(
        self, state: TrainState, form: Any, harmonics: Any, message: Tensor
    ) -> tuple[Rank1ShGrad, Tensor, Tensor]:
        return Rank1ShGrad(harmonics, message, message), torch.zeros(()), torch.tensor([7, 9])


@pytest.mark.parametrize("device, wanted", [("cpu", None), ("cuda", [7, 9])])
def test_reports_have_entries_on_a_gpu_alone(device: str, wanted: list[int] | None) -> None:
    stages = build_stages({"fused_adam": parameters_of("fused_adam")}, base_stages("native", CPU))
    state, none = tiny_state(), torch.empty(0)
    update = after_exchange(replace(stages, device=device), state, Alone(Ranks()))
    assert update is not None
    update(Rank1ShGrad((none, none), torch.rand(1, 3, 3), torch.rand(1, 3, 3)))
    assert (None if state.entries is None else state.entries.tolist()) == wanted
    state.failed = torch.tensor(1.0)
    report = _report((ListUse("camera", 70, torch.tensor([50]), torch.tensor(0.0)),), state)
    assert report is not None and report.tolist() == [50, *(wanted or []), 1]


def test_lists_without_a_capacity_hold_all_their_entries() -> None:
    lists = ListUse("camera", 70, None, None), ListUse("camera", 90, torch.tensor([85]), torch.tensor(0.0))
    assert entries_of(lists, CPU).tolist() == [70, 85]
