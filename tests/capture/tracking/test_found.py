# SPDX-License-Identifier: Apache-2.0
"""Objects that move are found in the sweeps alone: on the bundled street, KITTI's drive and PandaSet's slice."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from kept_sweeps import kept, kept_pandaset
from pandaset_drive import needs_pandaset

from benchmarks.tracking.agreement import compared
from nurec_lite.base import waiting
from nurec_lite.base.waiting import done_apart
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.simulate import simulate, traffic
from nurec_lite.capture.simulate.world import SimulationConfig
from nurec_lite.capture.tracking import returns
from nurec_lite.capture.tracking.found import find_tracks
from nurec_lite.capture.tracking.source import SEARCHER, begin_search
from nurec_lite.capture.types import FOUND, Capture
from nurec_lite.config import DataConfig
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.readers import read_capture


@pytest.fixture(scope="module")
def street() -> tuple[Capture, Tracks]:
    capture = kept(read_capture(DataConfig()))
    return capture, find_tracks(capture)


def test_cars_that_drive_on_the_street_are_found_and_parked_ones_are_not(street: tuple[Capture, Tracks]) -> None:
    capture, found = street
    figures = compared(capture, capture.tracks, found, returns=10)
    assert figures["recall"] >= 0.9
    assert figures["precision"] >= 0.95
    assert figures["parked_called_moving"] == 0


@pytest.mark.slow
def test_cars_at_a_walking_pace_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most other sweeps see the cars themselves at their places."""
    monkeypatch.setattr(traffic, "_ONCOMING", 1.0)
    capture = kept(simulate(SimulationConfig(seed=11, speed=0.0, azimuth_steps=720)))
    figures = compared(capture, capture.tracks, find_tracks(capture), returns=20)
    assert figures["recall"] >= 0.8
    assert figures["precision"] >= 0.9
    assert figures["parked_called_moving"] == 0


def test_a_street_on_which_nothing_moves_has_no_tracks(street: tuple[Capture, Tracks]) -> None:
    """The car stays where it is, too: sweeps of one moment repeat."""
    first = street[0].sweeps[0]
    load = first.load
    repeated = tuple(
        replace(
            first,
            index=i,
            time_start=first.time_start + 0.1 * i,
            time_end=first.time_end + 0.1 * i,
            load=Later(load, 0.1 * i),
        )
        for i in range(12)
    )
    assert find_tracks(replace(street[0], sweeps=repeated)).ids == ()


class Later:
    def __init__(self, load: object, seconds: float) -> None:
        self.load, self.seconds = load, seconds

    def __call__(self) -> object:
        sweep = self.load()  # type: ignore[operator]
        return replace(sweep, times=sweep.times + self.seconds)


def test_of_a_long_drive_every_second_ray_is_enough(
    street: tuple[Capture, Tracks], monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = street[0]
    lidar = capture.lidars[0]
    monkeypatch.setattr(returns, "MOST", len(capture.sweeps) * len(lidar.elevations) * lidar.azimuth_steps)
    figures = compared(capture, capture.tracks, find_tracks(capture), returns=20)
    assert figures["recall"] >= 0.8
    assert figures["parked_called_moving"] == 0


def found_by(capture: Capture) -> tuple[int, Tracks]:
    return os.getpid(), find_tracks(capture)


def test_a_process_that_waited_finds_the_same(street: tuple[Capture, Tracks], monkeypatch: pytest.MonkeyPatch) -> None:
    """It shares sweeps and objects out to processes of its own."""
    monkeypatch.setattr(waiting, "cores", lambda: 8)
    begin_search()
    process, found = done_apart(SEARCHER, partial(found_by, read_capture(DataConfig())))
    assert process != os.getpid() and found.ids == street[1].ids
    assert torch.equal(found.translations, street[1].translations) and torch.equal(found.sizes, street[1].sizes)


def test_a_drive_of_few_sweeps_has_no_tracks(street: tuple[Capture, Tracks]) -> None:
    assert find_tracks(replace(street[0], sweeps=street[0].sweeps[:5])).ids == ()
    assert find_tracks(replace(street[0], sweeps=(), lidars=())).ids == ()


def test_boxes_stand_on_the_ground_and_their_ids_say_that_they_were_found(street: tuple[Capture, Tracks]) -> None:
    found = street[1]
    bottoms = found.translations[:, 2] - 0.5 * found.sizes[:, 2].repeat_interleave(torch.tensor(found.offsets).diff())
    assert float(bottoms.abs().max()) < 0.03
    assert all(name.startswith(FOUND) for name in found.ids)


def test_kittis_moving_car_is_found(kitti_root: Path) -> None:
    extra = kitti_root / "extra"
    capture = kept(
        read_kitti_raw(
            kitti_root,
            poses_file=extra / "poses_velo.txt",
            tracks_file=extra / "label_02_0001.txt",
            frames=range(31, 51),
        )
    )
    figures = compared(capture, capture.tracks, find_tracks(capture), returns=20)
    assert figures["within_5_degrees"] >= 0.8
    assert figures["median_distance_m"] <= 0.2
    assert figures["parked_called_moving"] == 0


@needs_pandaset
def test_pandasets_moving_boxes_are_found() -> None:
    capture = kept_pandaset()
    figures = compared(capture, capture.tracks, find_tracks(capture), returns=30)
    assert figures["recall"] >= 0.7
    assert figures["precision"] >= 0.8
