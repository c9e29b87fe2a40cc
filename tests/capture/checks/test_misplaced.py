# SPDX-License-Identifier: Apache-2.0
"""Frames that stand in another place than in time are named with their numbers."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import pytest
import torch
from tiny_capture import ROOT
from torch import Tensor

from nurec_lite.capture.checks import glimpses
from nurec_lite.capture.checks.glimpses import glimpse_runs
from nurec_lite.capture.checks.misplaced import misplaced, wrong_places
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Capture


@lru_cache(maxsize=1)
def street() -> Capture:
    return read_pack(ROOT / "data/street.pack")


def doubts(capture: Capture) -> list[Verdict]:
    sample = Sample(capture)
    images = (f for f in capture.images if f.sensor == "camera_0")
    return [*misplaced(sample, list(images), "images", "images"), *misplaced(sample, capture.sweeps, "rays", "sweeps")]


def loads(kind: str, place: Callable[[int], int]) -> Capture:
    """Frame k of each sensor has the file of frame `place(k)`."""
    frames = getattr(street(), kind)
    files = {(f.sensor, f.index): f.load for f in frames}
    return replace(street(), **{kind: tuple(replace(f, load=files[f.sensor, place(f.index)]) for f in frames)})


def exchanged(a: int, b: int) -> Callable[[int], int]:
    return lambda k: {a: b, b: a}.get(k, k)


@pytest.mark.parametrize(
    ("kind", "place", "said"),
    [
        ("images", exchanged(20, 21), "Images 20 and 21 of camera_0 seem to be exchanged"),
        ("images", exchanged(11, 31), "images 11, 31 of camera_0"),
        ("images", lambda k: (k + 1) % 50, "Between images 48 and 49 of camera_0 the view changes at once"),
        ("sweeps", exchanged(20, 21), "Sweeps 20 and 21 of lidar seem to be exchanged"),
        ("sweeps", exchanged(11, 31), "sweeps 11, 31 of lidar"),
        ("sweeps", lambda k: 40 if k == 21 else k, "sweep 21 of lidar"),
    ],
)
def test_frames_in_another_place_are_named(kind: str, place: Callable[[int], int], said: str) -> None:
    (found,) = doubts(loads(kind, place))
    assert found.level is Level.LIKELY and said in found.sentence and found.remedy is not None


@pytest.mark.parametrize(("kind", "said"), [("images", "Images of camera_0"), ("sweeps", "Sweeps of lidar")])
def test_frames_in_no_order_are_named(kind: str, said: str) -> None:
    places = torch.randperm(50, generator=torch.Generator().manual_seed(1)).tolist()
    (found,) = doubts(loads(kind, places.__getitem__))
    assert found.level is Level.CERTAIN and found.sentence.startswith(f"{said} stand in no order: neighbours are")


def test_a_right_drive_of_few_frames_a_second_is_in_order() -> None:
    """Neighbours are 4 m apart."""
    images, sweeps = ([f for f in frames if f.index % 5 == 0] for frames in (street().images, street().sweeps))
    assert doubts(replace(street(), images=tuple(images), sweeps=tuple(sweeps))) == []


def test_a_right_drive_is_not_doubted() -> None:
    assert doubts(street()) == []


def test_a_drive_that_stands_has_no_order() -> None:
    still = torch.eye(4, dtype=torch.float64)
    images = tuple(replace(f, T_world_rig_start=still, T_world_rig_end=still) for f in street().images[:20])
    assert doubts(replace(street(), images=images[:10], sweeps=street().sweeps[:10])) == []


@pytest.mark.parametrize("count", [0, 1, 4])
def test_few_frames_tell_nothing(count: int) -> None:
    assert doubts(replace(street(), images=street().images[:count], sweeps=street().sweeps[:count])) == []


def test_views_that_all_differ_show_no_order() -> None:
    """A drive of two images a second is such a case."""
    always = torch.ones(30, dtype=torch.bool)
    copies: Tensor = torch.rand(31, 64, generator=torch.Generator().manual_seed(0))
    places = wrong_places(copies, always, always)
    assert (places.exchanged, places.strange, places.cuts) == ([], [], [])


def test_a_corner_where_all_views_differ_shows_no_exchange() -> None:
    """Around it neighbours are alike; in it a copy happens to be nearer to the next but one."""
    draw = torch.Generator().manual_seed(0)
    copies = torch.arange(80.0)[:, None] / 8 + 0.02 * torch.randn(80, 64, generator=draw)
    copies[30:50] = torch.randn(20, 64, generator=draw)
    copies[41] = 0.6 * copies[39] + 0.4 * copies[41]
    copies[40] = 0.6 * copies[42] + 0.4 * copies[40]
    always = torch.ones(79, dtype=torch.bool)
    assert wrong_places(copies, always, always).exchanged == []
    copies[[10, 11]] = copies[[11, 10]]
    assert wrong_places(copies, always, always).exchanged == [10]


def test_many_pixels_are_compared_in_runs_of_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glimpses, "PIXELS", 20 * 2 * 192 * 96)
    runs = glimpse_runs(Sample(street()), [f for f in street().images if f.sensor == "camera_0"])
    assert [[f.index for f in run] for run in runs] == [list(range(9)), list(range(41, 50))]
