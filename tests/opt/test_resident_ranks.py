# SPDX-License-Identifier: Apache-2.0
"""The option `resident` with several ranks. The frames of a rank change from epoch to epoch."""

from dataclasses import replace

import pytest
from same_shots import assert_same
from tiny_capture import tiny_capture, tiny_state

from nurec_lite.backends import build_stages
from nurec_lite.training.shots import ShotPlan


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_finds_every_frame_that_a_late_step_gives_it(rank: int) -> None:
    stages, sizes = build_stages({"resident": {"share": 1.0, "jpeg": "host"}}), {"images_a_step": 2, "sweeps_a_step": 2}
    plan = ShotPlan(tiny_capture(), seed=3, lidar_rays=10**9, sweeps_every=4, rank=rank, ranks=2, **sizes)
    state = replace(tiny_state(), plan=plan)
    for step in range(0, 400, 4):
        assert_same(stages.feed.fetch(stages, replace(state, step=step)), plan.load(step))
    stages.close()
