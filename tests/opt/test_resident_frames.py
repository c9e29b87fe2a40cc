# SPDX-License-Identifier: Apache-2.0
"""Frames of the option `resident`: processes decode the same as threads, and a rank has all that its steps need."""

from collections.abc import Iterator

import pytest
from same_shots import assert_same
from tiny_capture import tiny_capture, tiny_state

from nurec_lite.backends import build_stages
from nurec_lite.opt.all import resident
from nurec_lite.training.shots import ShotPlan, Shots
from nurec_lite.training.stages import Stages

EVERY_RAY = 10**9


@pytest.fixture
def stages() -> Iterator[Stages]:
    made = build_stages({"resident": {"share": 1.0, "jpeg": "host"}})
    yield made
    made.close()


def fed(stages: Stages, plan: ShotPlan, step: int) -> Shots:
    state = tiny_state()
    state.plan, state.step = plan, step
    return stages.feed.fetch(stages, state)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_finds_every_frame_that_a_late_step_gives_it(stages: Stages, rank: int) -> None:
    """The frames that a rank gets change from epoch to epoch."""
    sizes = {"images_a_step": 2, "sweeps_a_step": 2, "sweeps_every": 4, "rank": rank, "ranks": 2}
    plan = ShotPlan(tiny_capture(), seed=3, lidar_rays=EVERY_RAY, **sizes)
    for step in range(0, 400, 4):
        assert_same(fed(stages, plan, step), plan.load(step))


@pytest.mark.parametrize("rays", [EVERY_RAY, 500])
def test_processes_decode_the_same_shots(monkeypatch: pytest.MonkeyPatch, stages: Stages, rays: int) -> None:
    monkeypatch.setattr(resident, "decode_apart", lambda device, sizes: True)
    monkeypatch.setattr(resident, "decoders", lambda: 2)
    plan = ShotPlan(tiny_capture(), seed=3, lidar_rays=rays)
    for step in range(4):
        assert_same(fed(stages, plan, step), plan.load(step))
