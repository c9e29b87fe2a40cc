# SPDX-License-Identifier: Apache-2.0
"""A simulated vehicle that stands still, with traffic around it."""

import torch

from nurec_lite.capture.simulate.traffic import ego_pose, traffic
from nurec_lite.capture.simulate.world import SimulationConfig


def test_a_vehicle_may_stand() -> None:
    config = SimulationConfig(frames=2, speed=0.0, moving_cars=4)
    position, turned = ego_pose(config, torch.linspace(0, 2, 9).double())
    assert position[:, :2].std(dim=0).max() == turned[:, 2].std() == 0
    assert bool(traffic(config).tracks.translations.isfinite().all())
