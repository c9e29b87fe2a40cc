# SPDX-License-Identifier: Apache-2.0
"""Scenes of dense traffic: cars of a lane stand apart, none stands around the vehicle, and all of them move."""

from itertools import pairwise

import pytest
import torch

from benchmarks.tracking.agreement import moving
from benchmarks.tracking.dense_traffic import CLEAR, LANES, SCENES, capture_of, cars


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("seed", [1, 2])
def test_cars_of_a_lane_stand_apart(name: str, seed: int) -> None:
    ways, models = cars(SCENES[name], seed)
    for lane in SCENES[name].lanes:
        places = [way(torch.zeros(1, dtype=torch.float64)) for way in ways]
        mine = [k for k, (_, across, _) in enumerate(places) if float(across) == lane]
        ends = [(float(places[k][0]) - s, float(places[k][0]) + s) for k in mine for s in [0.5 * models[k].size[0]]]
        assert ends and all(a[1] < b[0] for a, b in pairwise(ends))
        assert lane != LANES[1] or all(a > CLEAR or b < -CLEAR for a, b in ends)


def test_a_scene_has_its_cars_and_no_others_that_move() -> None:
    capture = capture_of("oncoming jam", seed=1, frames=10)
    assert len(capture.tracks) - len(moving(capture.tracks)) == SCENES["oncoming jam"].parked
    assert len(capture.sweeps) == 10
