# SPDX-License-Identifier: Apache-2.0
"""Training on a capture with a wrong clock of a camera."""

from dataclasses import replace

import pytest
import torch
from late_capture import with_clock
from tiny_capture import TINY, tiny_capture

from nurec_lite.backends import base_stages
from nurec_lite.config import Config, DensityConfig, LearningRates, ModelConfig, TrainConfig
from nurec_lite.training.start import make_state
from nurec_lite.training.step import step

STEPS = 100
FINER = replace(TINY, frames=16, width=96, height=48, beams=16, azimuth_steps=128)
CONFIG = Config(
    device="cpu",
    model=ModelConfig(points=5000, actor_points=100, raised_points=600, far_points=400, sky_height=16, calibrate=True),
    train=TrainConfig(steps=STEPS, lidar_rays=512),
    density=DensityConfig(every=50, cap=8000),
    lr=LearningRates(camera_offsets=5e-4),  # so few steps would not come far at the usual rate
)


@pytest.mark.parametrize("ahead", [0.02, -0.02])
def test_the_clock_of_a_camera_is_found(ahead: float) -> None:
    """Two cameras look ahead, and the clock of one is off by 20 ms, 16 cm of the way. The difference between them is found to a quarter.
    Only the lidar tells which clock is right, and so few steps and rays learn little from it."""
    capture, device = with_clock(tiny_capture(FINER), "camera_1", ahead), torch.device("cpu")
    stages, state = base_stages("native", device), make_state(CONFIG, capture, device)
    for _ in range(STEPS):
        step(stages, state)
        state.step += 1
    assert state.scene.calibration is not None
    right, wrong = state.scene.calibration.camera_offsets.tolist()
    assert wrong - right == pytest.approx(-ahead, rel=0.25)
    assert wrong * ahead < 0


def test_a_clock_that_no_image_tells_of_is_taken_at_its_word() -> None:
    """A camera whose images are held out has such a clock."""
    capture, device = tiny_capture().with_split("side"), torch.device("cpu")
    config = replace(CONFIG, model=replace(CONFIG.model, points=300))
    stages, state = base_stages("native", device), make_state(config, capture, device)
    for _ in range(4):
        step(stages, state)
        state.step += 1
    assert state.scene.calibration is not None
    first, last = state.scene.calibration.camera_offsets.tolist()
    assert first != 0 and last == 0
