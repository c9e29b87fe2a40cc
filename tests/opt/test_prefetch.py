# SPDX-License-Identifier: Apache-2.0
"""The option `prefetch`: the same shots, one step ahead, by a thread and on a stream of their own."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from recorded_streams import recorded_streams
from same_shots import assert_same
from tiny_capture import tiny_capture, tiny_config, tiny_state

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.errors import OptionError, UserError
from nurec_lite.base.options import parameters_of
from nurec_lite.base.ranges import STEP, switch
from nurec_lite.base.timing import Timing
from nurec_lite.base.transfer import SideStream
from nurec_lite.opt.all import resident
from nurec_lite.opt.lab import pinned
from nurec_lite.opt.lab.prefetch import apply
from nurec_lite.opt.post import workers
from nurec_lite.training.baseline import next_batch, reference_stages
from nurec_lite.training.loop import one_step, train
from nurec_lite.training.shots import ShotPlan, Shots
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState

PLAN = ShotPlan(tiny_capture(), seed=3, lidar_rays=128)


class Loading:
    """Stands in for `next_batch`: notes each caller and its request, and may be held up."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str]] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, plan: ShotPlan, step: int) -> Shots:
        self.asked.append((step, threading.current_thread().name.partition("_")[0]))
        self.go.wait(60)
        return next_batch(plan, step)


@pytest.fixture
def loading() -> Loading:
    return Loading()


@pytest.fixture
def stages(loading: Loading) -> Iterator[Stages]:
    made = apply(reference_stages().replaced(next_batch=loading))
    yield made
    loading.go.set()
    made.close()


def fed(stages: Stages, step: int, plan: ShotPlan = PLAN, device: str = "cpu") -> Shots:
    return stages.feed.fetch(stages, replace(tiny_state(), plan=plan, step=step, device=torch.device(device)))


def test_it_needs_a_gpu() -> None:
    with pytest.raises(OptionError, match="'prefetch' cannot run here: it is about copies to a GPU; use device=cuda"):
        build_stages({"prefetch": parameters_of("prefetch")})


def test_shots_are_bitwise_those_of_the_baseline(stages: Stages) -> None:
    for step in range(25):
        assert_same(fed(stages, step), PLAN.load(step))


def test_any_step_and_any_plan_may_come_next(stages: Stages) -> None:
    other = replace(PLAN, seed=4)
    for step, plan in [(7, PLAN), (8, PLAN), (3, PLAN), (3, PLAN), (4, other), (1000, other), (0, PLAN)]:
        assert_same(fed(stages, step, plan), plan.load(step))


def test_the_next_step_s_shots_come_by_a_thread_the_first_by_none(stages: Stages, loading: Loading) -> None:
    main = threading.current_thread().name.partition("_")[0]
    for step in range(3):
        fed(stages, step)
    stages.close()  # waits for work under way
    assert loading.asked[:3] == [(0, main), (1, "prefetch"), (2, "prefetch")]
    assert loading.asked[3:] in ([], [(3, "prefetch")])  # closing may come before it


def test_the_step_goes_on_while_the_next_is_fetched(stages: Stages, loading: Loading) -> None:
    fed(stages, 0)
    while len(loading.asked) < 2:
        time.sleep(0.001)
    loading.go.clear()
    fed(stages, 1)  # returns, though the next one is held up
    loading.go.set()
    assert_same(fed(stages, 2), PLAN.load(2))


def test_never_two_threads_at_once(stages: Stages, loading: Loading) -> None:
    """Loader processes could not bear it."""
    inside, most = [0], [0]

    def counted(plan: ShotPlan, step: int) -> Shots:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        shots = loading(plan, step)
        inside[0] -= 1
        return shots

    jumping = apply(reference_stages().replaced(next_batch=counted))
    for step in (0, 5, 6, 2, 9, 10):
        fed(jumping, step)
    jumping.close()
    assert most[0] == 1


def test_an_error_of_the_thread_is_that_of_the_step_that_needs_it() -> None:
    def broken(plan: ShotPlan, step: int) -> Shots:
        if step == 2:
            raise UserError("frame 2 is damaged; copy it again")
        return next_batch(plan, step)

    stages = apply(reference_stages().replaced(next_batch=broken))
    assert_same(fed(stages, 0), PLAN.load(0))
    assert_same(fed(stages, 1), PLAN.load(1))
    with pytest.raises(UserError, match="frame 2 is damaged"):
        fed(stages, 2)
    assert_same(fed(stages, 3), PLAN.load(3))
    stages.close()


def test_no_thread_is_left(loading: Loading) -> None:
    before = set(threading.enumerate())
    stages = apply(reference_stages().replaced(next_batch=loading))
    fed(stages, 0)
    stages.close()
    stages.close()
    assert set(threading.enumerate()) <= before
    assert_same(fed(stages, 1), PLAN.load(1))  # and may start again
    stages.close()


def test_copies_go_to_the_side_and_the_step_s_stream_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = recorded_streams(monkeypatch)
    monkeypatch.setattr("nurec_lite.opt.lab.prefetch.SideStream", lambda device: SideStream(torch.device("cuda")))
    stages = apply(reference_stages())
    fed(stages, 0)
    stages.close()
    assert notes == ["into side", "side records", "out of side"]
    fed(stages, 0)
    fed(stages, 1)
    stages.close()
    assert notes[3:7] == ["into side 2", "side 2 records", "out of side 2", "step waits for event of side 2"]


def test_ranges_of_the_thread_stand_in_the_step() -> None:
    stages, state = apply(reference_stages()), tiny_state()
    timing = Timing(torch.device("cpu"), warm_up=0)
    with switch(timing=timing):
        for _ in range(4):
            one_step(stages, state, 0.0)
        stages.close()
    found = {latency.range for latency in timing.latencies()}
    assert {f"{STEP}/next_batch", f"{STEP}/prefetch", f"{STEP}/prefetch/next_batch", f"{STEP}/prefetch/place"} <= found


# Beside others


@pytest.mark.parametrize("rays", [128, 10**9])
@pytest.mark.parametrize(
    "order", ["workers pinned prefetch", "prefetch resident", "resident prefetch", "workers pinned prefetch resident"]
)
def test_training_with_others_is_bitwise_the_same(tmp_path: Path, order: str, rays: int) -> None:
    """These options do their work on a CPU, too."""
    applied: dict[str, Callable[[Stages], Stages]] = {
        "workers": lambda s: workers.apply(s, count=1, ahead=2), "pinned": pinned.apply, "prefetch": apply,
        "resident": lambda s: resident.apply(s, share=0.5, jpeg="host"),
    }  # fmt: skip

    def trained(names: list[str]) -> dict[str, Any]:
        config = tiny_config(steps=5)
        state, stages = tiny_state(replace(config, train=replace(config.train, lidar_rays=rays))), reference_stages()
        for name in names:
            stages = applied[name](stages)
        try:
            train(stages, state, tmp_path / "checkpoint.pt")
        finally:
            stages.close()
        return state.scene.parameters()

    plain, option = trained([]), trained(order.split())
    assert all(torch.equal(value, option[name]) for name, value in plain.items())


def test_named_before_resident_it_fetches_nothing(loading: Loading) -> None:
    main = threading.current_thread().name.partition("_")[0]
    stages = resident.apply(apply(reference_stages().replaced(next_batch=loading)), share=0.5, jpeg="host")
    for step in range(20):
        assert_same(fed(stages, step), PLAN.load(step))
    assert loading.asked == [(step, main) for step in range(20)]
    stages.close()


@pytest.mark.gpu
@pytest.mark.parametrize(
    "names",
    ["prefetch", "pinned prefetch", "workers pinned prefetch", "fused_interp no_sync prefetch", "resident prefetch"],
)
def test_on_a_gpu_shots_are_bitwise_the_same_however_long_they_wait(names: str) -> None:
    """Each step has work queued before it reads its shots; memory goes round meanwhile."""
    device, busy = torch.device("cuda"), torch.rand(2048, 2048, device="cuda")
    stages = build_stages({n: parameters_of(n) for n in names.split()}, base_stages("native", device))
    state: TrainState = replace(tiny_state(), device=device)
    for number in range(60):
        shots = stages.feed.fetch(stages, replace(state, step=number))
        for _ in range(10):
            busy = busy @ busy / 2048
        read = shots.copied(lambda tensor: tensor.clone())  # behind the work, in the step's stream
        assert shots.images[0].image.is_cuda
        del shots
        assert_same(read.copied(lambda tensor: tensor.cpu()), state.plan.load(number))
    stages.close()
