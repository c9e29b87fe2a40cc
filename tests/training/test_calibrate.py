# SPDX-License-Identifier: Apache-2.0
"""Captures that a user may bring, with sensors that are corrected: each ends with finite numbers and says what it found."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_capture import tiny_capture, tiny_config

from nurec_lite.backends import base_stages, build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.capture.types import Capture, ImageFrame
from nurec_lite.config import Config, ModelConfig, TrainConfig
from nurec_lite.evaluation.measure import evaluate, held_out
from nurec_lite.evaluation.results import table
from nurec_lite.geometry.se3 import pose_matrix, rotvec_to_quat
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.training.loop import train
from nurec_lite.training.start import make_state

CPU = torch.device("cpu")


def config_of(steps: int) -> Config:
    config = tiny_config(train=TrainConfig(steps=steps, lidar_rays=256))
    return replace(config, model=replace(config.model, calibrate=True, knot_seconds=0.1))


def whole() -> Capture:
    return tiny_capture()


def without_lidar() -> Capture:
    return replace(tiny_capture(), lidars=(), sweeps=()).with_split("interp")


def with_one_camera() -> Capture:
    capture = tiny_capture()
    first = capture.cameras[0]
    images = tuple(frame for frame in capture.images if frame.sensor == first.name)
    return replace(capture, cameras=(first,), images=images).with_split("interp")


def without_tracks() -> Capture:
    return replace(tiny_capture(), tracks=Tracks.empty())


def at_night() -> Capture:
    def dark(frame: ImageFrame) -> ImageFrame:
        return replace(frame, load=lambda: frame.load() // 16)

    capture = tiny_capture()
    return replace(capture, images=tuple(map(dark, capture.images))).with_split("interp")


def with_a_camera_turned() -> Capture:
    """By 0.3 degrees."""
    capture = tiny_capture()
    first, *others = capture.cameras
    T = pose_matrix(
        rotvec_to_quat(torch.tensor([0, math.radians(0.3), 0], dtype=torch.float64)), torch.zeros(3).double()
    )
    return replace(capture, cameras=(replace(first, T_rig_cam=first.T_rig_cam @ T), *others))


def with_late_images() -> Capture:
    """By 20 ms."""

    def late(frame: ImageFrame) -> ImageFrame:
        return replace(frame, time_start=frame.time_start + 0.02, time_end=frame.time_end + 0.02)

    capture = tiny_capture()
    return replace(capture, images=tuple(map(late, capture.images))).with_split("interp")


@pytest.mark.parametrize(
    "capture",
    [whole, without_lidar, with_one_camera, without_tracks, at_night, with_a_camera_turned, with_late_images],
    ids=lambda f: f.__name__,
)
def test_any_capture_ends_with_finite_numbers_and_says_what_it_found(capture: object, tmp_path: Path) -> None:
    assert callable(capture)
    brought = capture()
    stages = build_stages({"collect_once": parameters_of("collect_once")}, base_stages("native", CPU))
    state = make_state(config_of(6), brought, CPU)
    train(stages, state, tmp_path / "checkpoint.pt")
    assert all(value.isfinite().all() for value in state.scene.parameters().values())
    metrics = evaluate(stages, state.scene, brought, held_out(brought)).metrics
    assert math.isfinite(float(str(metrics["psnr"])))
    assert brought.cameras[0].name in str(metrics["corrections"]) and "Sensors corrected by" in table(metrics)


def test_without_it_nothing_is_corrected() -> None:
    state = make_state(replace(config_of(1), model=ModelConfig()), whole(), CPU)
    assert state.scene.calibration is None
