# SPDX-License-Identifier: Apache-2.0
"""Number of Gaussians that a capture needs: by the surface that images see, within pixels and memory."""

from dataclasses import replace

import pytest
import torch
from tiny_capture import tiny_capture

from nurec_lite.base.place import Place
from nurec_lite.base.ranks import Ranks
from nurec_lite.config import ModelConfig, TrainConfig
from nurec_lite.scene import needed
from nurec_lite.scene.init import first_scene
from nurec_lite.scene.needed import (
    GAUSSIANS_PER_PATCH,
    MAX_FAR,
    MEMORY_SHARE,
    MIN_GAUSSIANS,
    PATCH_M,
    UNLIMITED,
    CapLimits,
    InitialCounts,
    patches_seen,
)
from nurec_lite.scene.points import Points

ROOMY = CapLimits(10**9, 10**9, 10**9)
OPEN = TrainConfig()  # no budget
AUTO = ModelConfig(points="auto", raised_points="auto", far_points="auto", sky_height=8, mirror_actors=False)


def wall(metres: float, step: float = 0.1, coloured: bool = True) -> Points:
    """Points of a wall 3 m high."""
    along, up = torch.meshgrid(torch.arange(0, metres, step), torch.arange(0, 3, step), indexing="ij")
    xyz = torch.stack([along.flatten(), torch.zeros(along.numel()), up.flatten()], dim=1).double() + 0.01
    n = len(xyz)
    return Points(xyz, torch.zeros(n).long(), torch.zeros(n, 3), torch.full((n,), coloured), torch.zeros(n))


def level_of(points: Points) -> torch.Tensor:
    return torch.zeros(len(points))


def test_patches_grow_with_the_surface_not_with_its_points() -> None:
    short, long = wall(30), wall(300)
    n = patches_seen(short, level_of(short))
    assert n == pytest.approx(30 * 3 / PATCH_M**2, rel=0.05)
    assert patches_seen(long, level_of(long)) == pytest.approx(10 * n, rel=0.05)
    dense = wall(30, 0.05)
    assert patches_seen(dense, level_of(dense)) == pytest.approx(n, rel=0.05)
    twice = Points.cat([short, short])
    assert patches_seen(twice, level_of(twice)) == n


def test_distant_surface_counts_less() -> None:
    points = wall(30)
    assert patches_seen(points, torch.ones(len(points))) == pytest.approx(
        patches_seen(points, level_of(points)) / 4, rel=0.15
    )


def test_surface_that_no_image_sees_does_not_count() -> None:
    dark, lit = wall(30, coloured=False), wall(30)
    assert patches_seen(dark, level_of(dark)) == 0
    both = Points.cat([dark, lit])
    assert patches_seen(both, level_of(both)) == patches_seen(lit, level_of(lit))


def test_a_capture_like_kitti_0009_or_smaller_has_a_million() -> None:
    for patches in (
        0,
        15_494,
        28_730,
        28_502,
        71_054,
    ):  # none, half of KITTI 0009, all of it, PandaSet 002, six cameras over 60 m
        assert ROOMY.choose(patches).cap == MIN_GAUSSIANS


def test_a_longer_drive_has_more_in_proportion() -> None:
    chosen = ROOMY.choose(200_000)
    assert chosen.cap == GAUSSIANS_PER_PATCH * 200_000 and "200,000 patches" in chosen.why


def test_pixels_and_memory_are_limits() -> None:
    assert CapLimits(400_000, 10**9, 10**9).choose(200_000).cap == 400_000
    memory = CapLimits(10**9, 300_000, 10**9).choose(200_000)
    assert memory.cap == 300_000 and "memory" in memory.why


def test_limits_are_those_of_the_training_images_and_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needed, "free_memory", lambda device: 10**10)
    capture = tiny_capture()
    assert capture.split is not None
    limits = CapLimits.of(capture, torch.device("cpu"), OPEN)
    assert limits == CapLimits(
        len(capture.split.train_images) * 40 * 24 // 4, int(MEMORY_SHARE * 10**10 / 2048), UNLIMITED
    )
    half = replace(capture, split=replace(capture.split, train_images=capture.split.train_images[::2]))
    assert CapLimits.of(half, torch.device("cpu"), OPEN).by_pixels == pytest.approx(limits.by_pixels / 2, rel=0.1)


def test_a_budget_trains_so_many() -> None:
    cpu, capture = torch.device("cpu"), tiny_capture()
    assert CapLimits.of(capture, cpu, TrainConfig(seconds=30)).by_budget == 2_400_000
    assert CapLimits.of(capture, cpu, TrainConfig(seconds=30, steps=2000)).by_budget == 2_000_000
    assert CapLimits.of(capture, cpu, TrainConfig(steps=7000)).by_budget == 7_000_000
    assert CapLimits.of(capture, cpu, TrainConfig(seconds=10)).by_budget == MIN_GAUSSIANS
    assert CapLimits.of(capture, cpu, TrainConfig(seconds=2.8)).by_budget == 560_000
    assert CapLimits.of(capture, cpu, TrainConfig(seconds=2.8, steps=2000)).by_budget == 560_000
    assert CapLimits.of(capture, cpu, TrainConfig(steps=100)).by_budget == MIN_GAUSSIANS
    assert CapLimits.of(capture, cpu, TrainConfig(seconds=0.1)).by_budget == 250_000
    assert CapLimits.of(capture, cpu, TrainConfig(seconds=0)).by_budget == UNLIMITED
    short = CapLimits(10**9, 10**9, 2_400_000).choose(360_000)
    assert short.cap == 2_400_000 and "budget" in short.why


def test_two_ranks_train_more_in_the_same_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Ranks()
    two.place = Place(0, 2, 0, 2)
    monkeypatch.setattr(needed, "present", lambda: two)
    cpu, capture = torch.device("cpu"), tiny_capture()
    assert CapLimits.of(capture, cpu, TrainConfig(seconds=20)).by_budget == 2_560_000
    assert CapLimits.of(capture, cpu, TrainConfig(steps=7000)).by_budget == 7_000_000


def test_numbers_that_are_given_stay() -> None:
    assert InitialCounts.of(ModelConfig(), 1000) == InitialCounts(60_000, 8_000, 4_000)
    assert InitialCounts.of(AUTO, MIN_GAUSSIANS) == InitialCounts(500_000, 200_000, 100_000)
    assert InitialCounts.of(replace(AUTO, points=7), 4 * MIN_GAUSSIANS) == InitialCounts(7, 800_000, MAX_FAR)


def test_the_first_scene_follows_the_capture() -> None:
    """The tiny capture has few pixels."""
    capture = tiny_capture()
    first = first_scene(capture, AUTO, "auto", 0, "cpu", OPEN)
    assert first.chosen.cap == CapLimits.of(capture, torch.device("cpu"), OPEN).by_pixels
    assert "pixels" in first.chosen.why
    assert len(first.scene.gaussians) <= first.chosen.cap + AUTO.actor_points * len(capture.tracks)
    given = first_scene(capture, AUTO, 300, 0, "cpu", OPEN)
    assert given.chosen.cap == 300
    background = int((given.scene.gaussians.node == 0).sum())
    assert 100 < background <= 150 + 60 + 30
