# SPDX-License-Identifier: Apache-2.0
"""Shots at fixed places: their content after others were copied."""

from dataclasses import replace

import pytest
import torch
from tiny_capture import tiny_capture

from nurec_lite.native import ops
from nurec_lite.native.operators.multi_tensor_copy import multi_tensor_copy
from nurec_lite.splat.views import RayGroups
from nurec_lite.training.shots import ShotPlan, Shots
from nurec_lite.training.static_inputs import GROUP, StaticInputs

BANDS = 3


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def with_warp_tiles(shots: Shots, n: int) -> Shots:
    """The first n rays of the sweep, 32 after 32, with numbers that tell where they came from."""
    (shot,) = shots.sweeps
    rays = torch.full((n // GROUP + BANDS, GROUP), -1)
    rays.view(-1)[:n] = torch.arange(n)
    alike = (torch.full(size, n).int() for size in ((BANDS, 4, 2), (BANDS, 2), (BANDS + 1, 7)))
    ray_groups = RayGroups(rays, torch.arange(BANDS + 1).int() * n, *alike)
    cut = slice(0, n)
    view = replace(
        shot.view, directions=shot.view.directions[cut], fractions=shot.view.fractions[cut], ray_groups=ray_groups
    )
    return replace(shots, sweeps=(replace(shot, sweep=shot.sweep.select(torch.arange(n)), view=view),))


def test_warp_tiles_come_with_their_rays() -> None:
    """A longer sweep than the one that made the places comes first, then a shorter one: rays that remain of others are in no bundle."""
    shots = ShotPlan(tiny_capture(), seed=3, lidar_rays=128).load(0)
    length = len(shots.sweeps[0].sweep)
    static = StaticInputs(with_warp_tiles(shots, length // 2 + 1), [length])
    for n in (length, length - 1, length // 2 + 1):
        given = with_warp_tiles(shots, n)
        multi_tensor_copy(static.pairs(given))
        own, known = static.shots.sweeps[0].view.ray_groups, given.sweeps[0].view.ray_groups
        assert own is not None and known is not None
        assert own.rays[: len(known.rays)].equal(known.rays) and (own.rays[len(known.rays) :] == -1).all()
        assert all(getattr(own, name).equal(getattr(known, name)) for name in ("first", "bins", "heights", "occupied"))
        assert static.shots.sweeps[0].counted is not None and int(static.shots.sweeps[0].counted.sum()) == n


def test_views_without_warp_tiles_have_none() -> None:
    shots = ShotPlan(tiny_capture(), seed=3, lidar_rays=128).load(0)
    static = StaticInputs(shots, [len(shots.sweeps[0].sweep)])
    multi_tensor_copy(static.pairs(shots))
    assert static.shots.sweeps[0].view.ray_groups is None


def test_what_is_given_in_another_order_lies_row_by_row() -> None:
    """A reduced image may come so; the rates come along."""
    shots = ShotPlan(tiny_capture(), seed=3, lidar_rays=128).load(0)
    (shot,) = shots.images
    turned = replace(shots, images=(replace(shot, image=shot.image.transpose(0, 1).contiguous().transpose(0, 1)),))
    assert not turned.images[0].image.is_contiguous()
    static, rates = StaticInputs(turned, [len(shots.sweeps[0].sweep)]), torch.zeros(2)
    multi_tensor_copy(static.pairs(turned), rates, [0.5, 0.25])
    assert torch.equal(static.shots.images[0].image, shot.image) and rates.tolist() == [0.5, 0.25]
