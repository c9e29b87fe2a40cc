# SPDX-License-Identifier: Apache-2.0
"""Captures that a user may bring, with sensors that are corrected: each ends with finite numbers and with findings."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from odd_captures import (
    at_night,
    with_a_camera_turned,
    with_a_late_camera,
    with_late_images,
    with_one_camera,
    with_the_lidar_turned,
    without_lidar,
    without_tracks,
)
from tiny_capture import tiny_capture, tiny_config

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.capture.types import Capture
from nurec_lite.config import Config, ModelConfig, TrainConfig
from nurec_lite.evaluation.measure import evaluate, held_out
from nurec_lite.evaluation.results import table
from nurec_lite.training.loop import train
from nurec_lite.training.start import make_state

CPU = torch.device("cpu")
Odd = Callable[[Capture], Capture]


def whole(capture: Capture) -> Capture:
    return capture


def config_of(steps: int) -> Config:
    config = tiny_config(train=TrainConfig(steps=steps, lidar_rays=256))
    return replace(config, model=replace(config.model, calibrate=True, knot_seconds=0.1))


@pytest.mark.parametrize(
    "odd",
    [
        whole, without_lidar, with_one_camera, without_tracks, at_night, with_a_camera_turned, with_the_lidar_turned,
        with_a_late_camera, with_late_images,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_any_capture_ends_with_finite_numbers_and_says_what_it_found(odd: Odd, tmp_path: Path) -> None:
    brought = odd(tiny_capture())
    stages = build_stages({"collect_once": parameters_of("collect_once")}, base_stages("native", CPU))
    state = make_state(config_of(6), brought, CPU)
    train(stages, state, tmp_path / "checkpoint.pt")
    assert all(value.isfinite().all() for value in state.scene.parameters().values())
    metrics = evaluate(stages, state.scene, brought, held_out(brought)).metrics
    assert math.isfinite(float(str(metrics["psnr"])))
    assert brought.cameras[0].name in str(metrics["corrections"]) and "Sensors corrected by" in table(metrics)


def test_without_it_nothing_is_corrected() -> None:
    state = make_state(replace(config_of(1), model=ModelConfig()), tiny_capture(), CPU)
    assert state.scene.calibration is None
