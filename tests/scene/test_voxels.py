# SPDX-License-Identifier: Apache-2.0
"""Voxels: points that share one, sizes, and means of their contents."""

import pytest
import torch
from torch import Tensor

from nurec_lite.scene.points import Points
from nurec_lite.scene.voxels import LARGEST, SMALLEST, Voxels, voxel_means


def ground(n: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, 3, generator=generator, dtype=torch.float64) * torch.tensor([30.0, 20, 4]) - 10


def test_voxels_keep_apart_what_lies_in_different_cubes_or_levels() -> None:
    generator = torch.Generator().manual_seed(0)
    xyz = 4 * torch.randn(500, 3, generator=generator, dtype=torch.float64) - 1
    level = torch.randint(0, 3, (500,), generator=generator).float()
    voxels = Voxels(xyz, level)
    for size in (0.3, 1.0, 2.5):
        cells = torch.cat([level[:, None].double(), (xyz / (size * 2 ** level[:, None].double())).floor()], dim=-1)
        expected = cells.unique(dim=0, return_inverse=True)[1]
        found = voxels.key(size).unique(return_inverse=True)[1]
        assert torch.equal(found[:, None] == found, expected[:, None] == expected)
        assert 20 < int(expected.max()) < 499  # some share a cube


@pytest.mark.parametrize("n", [50, 500, 2000])
def test_a_size_leaves_about_the_number_wanted(n: int) -> None:
    xyz = ground(20_000)
    level = (xyz[:, 0] > 5).double()
    voxels = Voxels(xyz, level)
    assert 0.95 * n <= voxels.distinct(voxels.size_for(n)) <= n
    assert 0.6 * n <= voxels.distinct(voxels.size_for(n, slack=0.3)) <= n


def test_sizes_stay_within_what_is_tried() -> None:
    voxels = Voxels(ground(300))
    assert voxels.size_for(1) == LARGEST and voxels.distinct(LARGEST) > 1  # nothing is larger
    assert SMALLEST <= voxels.size_for(300) < 0.5 and voxels.distinct(voxels.size_for(300)) > 290
    assert Voxels(ground(1)).distinct(1.0) == 1


def test_means_are_those_of_the_points_of_each_voxel() -> None:
    generator = torch.Generator().manual_seed(1)
    xyz, key = ground(500), torch.randint(-20, 20, (500,), generator=generator)
    coloured = torch.rand(500, generator=generator) < 0.5
    coloured[key == 3] = False
    colour, intensity = torch.rand(500, 3, generator=generator), torch.rand(500, generator=generator)
    found = voxel_means(Points(xyz, torch.full((500,), 7), colour, coloured, intensity), key)
    for row, k in enumerate(key.unique().tolist()):
        own = key == k
        torch.testing.assert_close(found.xyz[row], xyz[own].mean(0))
        torch.testing.assert_close(found.intensity[row], intensity[own].mean())
        assert bool(found.coloured[row]) == bool((own & coloured).any()) == (k != 3)
        expected = colour[own & coloured].mean(0) if k != 3 else torch.full((3,), 0.5)
        torch.testing.assert_close(found.colour[row], expected)
    assert len(found) == len(key.unique()) and (found.node == 7).all()
