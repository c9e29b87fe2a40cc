# SPDX-License-Identifier: Apache-2.0
"""Which frames and rays a step trains on."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from tiny_capture import tiny_capture

from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation
from nurec_lite.training.shots import SECTOR_COLUMNS, ShotPlan, Shots, draw_sectors

PLAN = ShotPlan(tiny_capture(), seed=3, lidar_rays=128)


def same(a: Shots, b: Shots) -> bool:
    assert a.sweep is not None and b.sweep is not None
    return (
        (a.image_index, a.sweep_index) == (b.image_index, b.sweep_index)
        and torch.equal(a.image, b.image)
        and torch.equal(a.sweep.directions, b.sweep.directions)
    )


def lidar_and_sweep() -> tuple[Lidar, Sweep]:
    return tiny_capture().lidars[0], tiny_capture().sweeps[0].load()


def sectors(lidar: Lidar, sweep: Sweep) -> torch.Tensor:
    """[R] number of each ray's sector, from its azimuth alone."""
    width = 2 * torch.pi / lidar.cells().columns * SECTOR_COLUMNS
    return torch.floor((azimuth_elevation(sweep.directions)[:, 0] + torch.pi) / width).long()


def draw(n_rays: int, seed: int = 0) -> Sweep:
    lidar, sweep = lidar_and_sweep()
    return draw_sectors(sweep, lidar, n_rays, torch.Generator().manual_seed(seed))


# Batches


def test_batches_depend_on_seed_and_step_alone() -> None:
    steps = (5, 0, 33, 5)
    first = [PLAN.load(step) for step in steps]
    torch.rand(100)  # the global generator plays no part
    again = {step: ShotPlan(tiny_capture(), 3, 128).load(step) for step in sorted(set(steps))}
    assert all(same(batch, again[step]) for step, batch in zip(steps, first, strict=True))
    assert [batch.step for batch in first] == list(steps)


def test_another_seed_is_another_order() -> None:
    orders = [[ShotPlan(tiny_capture(), seed, 0).load(step).image_index for step in range(16)] for seed in (0, 1, 2)]
    assert len({tuple(order) for order in orders}) == 3


def test_every_training_frame_comes_once_an_epoch() -> None:
    split = tiny_capture().split
    assert split is not None
    n, m = len(split.train_images), len(split.train_sweeps)
    batches = [PLAN.load(step) for step in range(2 * n)]
    for epoch in (0, 1):
        assert sorted(b.image_index for b in batches[epoch * n : (epoch + 1) * n]) == list(split.train_images)
    for epoch in range(2 * n // m):
        drawn = [b.sweep_index for b in batches[epoch * m : (epoch + 1) * m]]
        assert sorted(i for i in drawn if i is not None) == list(split.train_sweeps)
    assert [b.image_index for b in batches[:n]] != [b.image_index for b in batches[n:]]


@pytest.mark.parametrize("split", ["interp", "side"])
def test_held_out_frames_never_come(split: str) -> None:
    plan = ShotPlan(tiny_capture().with_split(split), 0, 64)
    chosen = plan.capture.split
    assert chosen is not None and chosen.test_images
    batches = [plan.load(step) for step in range(3 * len(chosen.train_images))]
    assert {b.image_index for b in batches} == set(chosen.train_images)
    assert {b.sweep_index for b in batches} == set(chosen.train_sweeps)
    assert not {b.image_index for b in batches} & set(chosen.test_images)


def test_a_batch_is_what_its_frames_hold() -> None:
    batch = PLAN.load(4)
    assert batch.sweep is not None and batch.sweep_index is not None
    assert torch.equal(batch.image, tiny_capture().images[batch.image_index].load())
    whole = tiny_capture().sweeps[batch.sweep_index].load()
    rays = {(tuple(d.tolist()), r) for d, r in zip(whole.directions, whole.ranges.tolist(), strict=True)}
    assert {(tuple(d.tolist()), r) for d, r in zip(batch.sweep.directions, batch.sweep.ranges.tolist(), strict=True)} <= rays  # fmt: skip


def test_image_and_sweep_of_a_step_are_drawn_independently() -> None:
    images, sweeps = tiny_capture().images, tiny_capture().sweeps
    batches = [PLAN.load(step) for step in range(40)]
    moments = [(images[b.image_index].index, sweeps[b.sweep_index or 0].index) for b in batches]
    assert sum(a == b for a, b in moments) < 20
    assert len(set(moments)) > 20


@pytest.mark.parametrize("case", ["no rays wanted", "no sweeps"])
def test_there_may_be_no_lidar(case: str) -> None:
    capture, rays = tiny_capture(), 128
    if case == "no sweeps":
        capture = replace(capture, lidars=(), sweeps=()).with_split("interp")
    else:
        rays = 0
    batch = ShotPlan(capture, 0, rays).load(2)
    assert batch.sweep is None and batch.sweep_index is None
    assert batch.image.shape == (24, 40, 3)


def test_a_split_is_needed() -> None:
    with pytest.raises(AssertionError, match="split"):
        ShotPlan(replace(tiny_capture(), split=None), 0, 0).load(0)


# Sectors


def test_sectors_are_drawn_whole() -> None:
    lidar, sweep = lidar_and_sweep()
    held = Counter(sectors(lidar, sweep).tolist())
    for seed in range(10):
        drawn = Counter(sectors(lidar, draw(200, seed)).tolist())
        assert all(held[sector] == n for sector, n in drawn.items())


def test_about_as_many_rays_as_asked_for_and_at_least_one_sector() -> None:
    _, sweep = lidar_and_sweep()
    one = len(sweep) / 2  # 64 steps make 16 columns, which are 2 sectors
    for n_rays in (1, 100, 200, 300, 511):
        drawn = len(draw(n_rays))
        assert one - 1 <= drawn and abs(drawn - n_rays) <= max(one / 2, one - n_rays) + 1


def test_the_number_of_rays_follows_the_number_asked_for() -> None:
    lidar = replace(tiny_capture().lidars[0], azimuth_steps=2048)
    angles = torch.linspace(-torch.pi, torch.pi, 8001)[:-1] + 1e-4
    directions = torch.stack([angles.cos(), angles.sin(), torch.zeros_like(angles)], dim=-1)
    n = len(directions)
    sweep = Sweep(directions, torch.ones(n), torch.ones(n), torch.zeros(n), torch.zeros(n).long(), torch.ones(n).bool())
    for n_rays in (500, 1000, 4000, 7000):
        drawn = draw_sectors(sweep, lidar, n_rays, torch.Generator().manual_seed(0))
        assert len(drawn) == pytest.approx(n_rays, abs=n / 64)


@pytest.mark.parametrize("n_rays", [512, 513, 10**9])
def test_all_rays_in_their_order_when_no_more_are_wanted_than_there_are(n_rays: int) -> None:
    _, sweep = lidar_and_sweep()
    drawn = draw(n_rays)
    assert len(sweep) == 512
    assert all(torch.equal(getattr(drawn, f), getattr(sweep, f)) for f in Sweep.__dataclass_fields__)


def test_every_sector_is_drawn_sooner_or_later() -> None:
    lidar, sweep = lidar_and_sweep()
    seen = {s for seed in range(20) for s in sectors(lidar, draw(100, seed)).tolist()}
    assert seen == set(sectors(lidar, sweep).tolist())


def test_rays_keep_their_order() -> None:
    drawn = draw(200)
    _, sweep = lidar_and_sweep()
    place = {tuple(d.tolist()): i for i, d in enumerate(sweep.directions)}
    rows = [place[tuple(d.tolist())] for d in drawn.directions]
    assert rows == sorted(rows)
