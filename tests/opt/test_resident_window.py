# SPDX-License-Identifier: Apache-2.0
"""The option `resident` with a capture that does not fit: a window of frames, its bound, and the same training bit by bit."""

import logging
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from same_shots import assert_same
from tiny_capture import tiny_capture, tiny_config, tiny_state

from nurec_lite.backends import build_stages
from nurec_lite.capture.types import Capture
from nurec_lite.opt.all import resident
from nurec_lite.opt.all.resident import Resident
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.loop import train
from nurec_lite.training.resident_frames import capture_bytes, device_bytes, smallest_window
from nurec_lite.training.shots import ShotPlan
from nurec_lite.training.stages import Stages
from nurec_lite.training.state import TrainState


class Live:
    """Decoded images that are in memory."""

    def __init__(self) -> None:
        self.lock, self.bytes, self.most = threading.Lock(), 0, 0

    def add(self, n: int) -> None:
        with self.lock:
            self.bytes += n
            self.most = max(self.most, self.bytes)


@dataclass(frozen=True)
class Watched:
    """A decoder of a new tensor each time, which is counted while it lives."""

    value: torch.Tensor
    live: Live

    def __call__(self) -> torch.Tensor:
        made = self.value.clone()
        self.live.add(made.nbytes)
        weakref.finalize(made, self.live.add, -made.nbytes)
        return made


def watched(capture: Capture, live: Live) -> Capture:
    images = tuple(replace(frame, load=Watched(frame.load(), live)) for frame in capture.images)
    return replace(capture, images=images)


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stages]:
    made = build_stages({"resident": {"share": 0.5, "jpeg": "host"}})
    yield made
    made.close()


def store_of(stages: Stages) -> resident.Store:
    assert isinstance(stages.feed.fetch, Resident) and stages.feed.fetch.store is not None
    return stages.feed.fetch.store


def give(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Gives the option that many bytes for a share of a half."""
    monkeypatch.setattr(resident, "free_memory", lambda device: 2 * most)


@pytest.mark.parametrize("rays", [128, 10**9], ids=["some rays", "all rays"])
def test_shots_are_bitwise_those_of_the_baseline_within_the_bound(
    monkeypatch: pytest.MonkeyPatch, stages: Stages, rays: int
) -> None:
    plan = ShotPlan(tiny_capture(), seed=3, lidar_rays=rays)
    give(monkeypatch, smallest_window(plan, 1))
    for step in [*range(40), 7, 8, 1003, 1004]:
        found = stages.feed.fetch(stages, replace(tiny_state(), plan=plan, step=step))
        assert_same(found, plan.load(step))
        window = store_of(stages).window
        assert window is not None and window.bytes <= smallest_window(plan, 1) < capture_bytes(plan)


def test_decoded_images_never_take_more_memory_than_the_bound(monkeypatch: pytest.MonkeyPatch, stages: Stages) -> None:
    live = Live()
    plan = ShotPlan(watched(tiny_capture(), live), seed=3, lidar_rays=0)
    most = smallest_window(plan, 1)
    give(monkeypatch, most)
    state = replace(tiny_state(), plan=plan)
    for step in range(60):
        stages.feed.fetch(stages, replace(state, step=step))
    assert 0 < live.most <= most < capture_bytes(plan)
    stages.close()
    assert live.bytes == 0


def test_every_frame_is_used_once_an_epoch(monkeypatch: pytest.MonkeyPatch, stages: Stages) -> None:
    """The order is that of the seed, however small the window is."""
    plan = ShotPlan(tiny_capture(), seed=3, lidar_rays=0)
    give(monkeypatch, smallest_window(plan, 1))
    n, state = len(plan.split.train_images), replace(tiny_state(), plan=plan)
    for epoch in range(3):
        steps = range(epoch * n, (epoch + 1) * n)
        used = Counter(stages.feed.fetch(stages, replace(state, step=step)).images[0].index for step in steps)
        assert used == Counter(plan.split.train_images)


def test_training_with_a_window_is_bitwise_the_baseline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def trained(stages: Stages) -> TrainState:
        state = tiny_state(tiny_config(steps=9))
        try:
            train(stages, state, tmp_path / "checkpoint.pt")
        finally:
            stages.close()
        return state

    options: dict[str, dict[str, Any]] = {"resident": {"share": 0.5, "jpeg": "host"}}
    plain = trained(reference_stages())
    give(monkeypatch, smallest_window(plain.plan, 1))
    caplog.set_level(logging.INFO)
    window = trained(build_stages(options))
    assert "holds those that steps need soonest" in caplog.text
    for name, value in plain.scene.parameters().items():
        assert torch.equal(value, window.scene.parameters()[name]), name


def test_a_rank_keeps_its_own_frames_alone(monkeypatch: pytest.MonkeyPatch, stages: Stages) -> None:
    plan = ShotPlan(tiny_capture(), seed=3, lidar_rays=0, images_a_step=2, rank=1, ranks=2)
    give(monkeypatch, smallest_window(plan, 1))
    for step in range(20):
        found = stages.feed.fetch(stages, replace(tiny_state(), plan=plan, step=step))
        assert_same(found, plan.load(step))


def test_memory_that_tensors_share_counts_once() -> None:
    shot = ShotPlan(tiny_capture(), seed=3, lidar_rays=10**9).load(0).sweeps[0]
    assert shot.sweep.directions.data_ptr() == shot.view.directions.data_ptr()
    rays = len(shot.sweep)
    assert 41 * rays <= device_bytes(resident.KeptSweep(shot, None)) <= 41 * rays + 2000
