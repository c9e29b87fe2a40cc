# SPDX-License-Identifier: Apache-2.0
"""The operator count_pairs: by hand, and against the weights of the reference in double precision."""

import numpy as np
import pytest
import torch
from parity import DEVICES, Case, cast_view, lists_on, n_rays, scene_of
from splat_scenes import (
    ALPHA_MIN,
    CAMERA_MOTION,
    LIDAR_MOTION,
    NEAR,
    T_MIN,
    all_responses,
    around,
    changed,
    in_frustum,
    make_camera_view,
    make_gaussians,
    make_lidar,
    make_lidar_view,
    oracle_rays,
    rays_view,
    spherical,
    tensor,
    to_float32,
    view_float32,
)
from torch import Tensor

from benchmarks.render.pair_counts import PairCounts, count_pairs, summed
from nurec_lite.native import ops
from nurec_lite.scene.gaussians import WorldGaussians
from nurec_lite.splat.reference import blend
from nurec_lite.splat.tiles import PairList


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    ops.load()
    return torch.device(request.param)


def to(device: torch.device, g: WorldGaussians) -> WorldGaussians:
    return changed(g, **{k: v.to(device) for k, v in vars(g).items() if isinstance(v, Tensor)})


def counted(case: Case, pairs: PairList, device: torch.device) -> PairCounts:
    lists = lists_on(pairs, device)
    return count_pairs(to(device, case.world(torch.float32)), cast_view(case.view, torch.float32, device), lists)


def case_of(sensor: str, n: int, **options: tuple[float, float]) -> Case:
    if sensor == "camera":
        view = make_camera_view(26, 19, 22.0, "top_to_bottom", CAMERA_MOTION)
        return Case.of(scene_of(make_gaussians(in_frustum(view, n, 3, 9), speed=2.0, **options)), view)
    lidar = make_lidar_view(make_lidar(12, 48), LIDAR_MOTION)
    return Case.of(scene_of(make_gaussians(around(n, 3, 9), speed=2.0, **options)), lidar)


def expected(case: Case, pairs: PairList) -> Tensor:
    """[A, W, 4] by going through every tile's list, all of its rays side by side, with the oracle's responses."""
    alphas, ts = all_responses(case.world(), oracle_rays(cast_view(case.view, torch.float64)))
    alphas, seen_by = alphas.clamp(max=0.99).numpy(), ((alphas >= ALPHA_MIN) & (ts >= NEAR)).numpy()
    warps = -(-pairs.rays.shape[1] // 32)
    found = np.zeros((len(pairs.rays), warps, 4), dtype=np.int64)
    for k, (tile, first, last) in enumerate(zip(pairs.rays, pairs.offsets, pairs.offsets[1:], strict=False)):
        for w, rays in enumerate(tile.split(32)):
            rays = rays[rays >= 0].numpy()
            T, is_open = np.ones(len(rays)), np.ones(len(rays), dtype=bool)
            for i in pairs.gaussians[first:last].tolist():
                if not is_open.any():
                    break
                alpha, seen = alphas[rays, i], is_open & seen_by[rays, i]
                kept = seen & (T * (1 - alpha) >= T_MIN)
                found[k, w] += (1, is_open.sum(), kept.sum(), kept.any())
                is_open = is_open & (kept | ~seen)
                T = np.where(kept, T * (1 - alpha), T)
    return torch.from_numpy(found)


def weights(case: Case, pairs: PairList) -> Tensor:
    """[R, N] of the reference: the weight of every Gaussian's own feature."""
    g, view = case.world(), cast_view(case.view, torch.float64)
    return blend(g, torch.eye(len(g), dtype=torch.float64), view.rays(), pairs, view.centre()).features


@pytest.mark.parametrize("sensor", ["camera", "lidar"])
def test_counts_are_those_of_the_reference(sensor: str, device: torch.device) -> None:
    case = case_of(sensor, 150)
    pairs = lists_on(case.pairs(device)[1], "cpu")
    found = counted(case, pairs, device)
    assert found == summed(expected(case, pairs), pairs, n_rays(case.view))
    assert found.contributing == int((weights(case, pairs) > 0).sum()) > 1000
    assert found.contributing <= found.open <= found.executed
    assert found.lane_efficiency == found.contributing / found.executed


@pytest.mark.parametrize("rays", [1, 7, 32, 33, 256])
def test_tiles_of_any_size(rays: int, device: torch.device) -> None:
    """Every tile looks at all Gaussians, many of them nearly opaque, so that rays close."""
    case = case_of("camera", 90, opacities=(0.8, 0.99), scales=(0.4, 0.9))
    n, own = n_rays(case.view), case.pairs(device)[0].index.cpu()
    tiles = -(-n // rays)
    order = torch.cat([torch.randperm(n), torch.full((tiles * rays - n,), -1)]).view(tiles, rays)
    pairs = PairList(order, len(own) * torch.arange(tiles + 1), own.repeat(tiles))
    found = counted(case, pairs, device)
    assert found == summed(expected(case, pairs), pairs, n)
    assert found.open < n * len(own)  # some rays closed before the end of their list
    assert found.mean_list == found.longest_list == len(own)


def test_by_hand(device: torch.device) -> None:
    """Five Gaussians of opacity 0.98 on the way of ray 0: T is 0.02, then 0.0004, and the third would take it to 0.000008. Ray 1 looks
    elsewhere and goes through all five. A second tile holds ray 2, which looks like ray 0."""
    towards = spherical(tensor(0.0, 2.0, 0.0), tensor(0.0, 0.0, 0.0))
    view = view_float32(rays_view(make_lidar(), towards, tensor(0.5, 0.5, 0.5)))
    ahead = tensor(*([metres, 0.0, 0.0] for metres in (2.0, 3.0, 4.0, 5.0, 6.0)))
    g = to_float32(changed(make_gaussians(ahead, scales=(0.1, 0.1)), opacities=0.98))
    lists = PairList(torch.tensor([[0, 1], [2, -1]]), torch.tensor([0, 5, 10]), torch.arange(5).repeat(2))
    lists = lists_on(lists, device)
    found = count_pairs(to(device, g), cast_view(view, torch.float32, device), lists)
    assert found == PairCounts(
        rays=3, tiles=2, entries=10, executed=32 * (5 + 3), open=(3 + 5) + 3, contributing=2 + 2, reductions=2 + 2,
        longest_list=5, mean_list=5.0, longest_tile=5, mean_tile=4.0, longest_part=5, mean_part=5.0,
        longest_warp=5, mean_warp=5.0,
    )  # fmt: skip
    assert found.to_dict()["longest_to_mean_tile"] == 1.25


@pytest.mark.parametrize(("most", "longest", "mean"), [(1, 1, 1.0), (3, 3, 3.0), (4, 3, 3.0), (9, 9, 6.0)])
def test_parts_of_lists(most: int, longest: int, mean: float) -> None:
    """Lists of 9, 0 and 3 entries; one without any takes no time."""
    lists = PairList(torch.full((3, 32), -1), torch.tensor([0, 9, 9, 12]), torch.zeros(12, dtype=torch.int64))
    found = summed(torch.zeros(3, 1, 4, dtype=torch.int64), lists, 0, most)
    assert (found.longest_part, found.mean_part) == (longest, mean) == (found.longest_warp, found.mean_warp)


@pytest.mark.parametrize(
    ("warps", "longest", "mean"),
    [(1, 12, 12.0), (2, 6, 6.0), (3, 6, 4.0), (4, 3, 3.0), (9, 3, 3.0)],  # no more take parts than there are
)
def test_warps_that_go_on(warps: int, longest: int, mean: float) -> None:
    """Parts of 3, 3, 3 and 3 entries, of lists of 9, 0 and 3, each to the warp that is done first."""
    lists = PairList(torch.full((3, 32), -1), torch.tensor([0, 9, 9, 12]), torch.zeros(12, dtype=torch.int64))
    found = summed(torch.zeros(3, 1, 4, dtype=torch.int64), lists, 0, 4, warps)
    assert (found.longest_warp, found.mean_warp) == (longest, mean)
    assert found.to_dict()["longest_to_mean_warp"] == longest / mean


@pytest.mark.parametrize("tiles", [0, 2])
def test_nothing_to_count(tiles: int, device: torch.device) -> None:
    case = case_of("lidar", 4)
    none = torch.zeros(0, dtype=torch.int64)
    pairs = PairList(torch.full((tiles, 8), -1), torch.zeros(tiles + 1, dtype=torch.int64), none)
    found = counted(case, pairs, device)
    assert (found.tiles, found.executed, found.contributing, found.lane_efficiency) == (tiles, 0, 0, None)
    assert found.to_dict()["longest_to_mean_tile"] is None


@pytest.mark.parametrize(
    ("lists", "walked", "part", "warps"),
    [
        ([5, 9, 0, 3], [5, 7, 0, 3], 100, [7, 3]),  # a warp goes on until both of its lists are done
        ([5, 9, 4], [5, 9, 4], 100, [9, 4]),  # the last is alone
        ([5, 1, 5, 1], [4, 1, 5, 1], 100, [5, 1]),  # two that are as long go together
        ([6, 4], [6, 4], 4, [3, 4]),  # 3 + 3, then 4: the third part is alone
        ([9, 2], [4, 2], 3, [3, 2]),  # the first list ends within its second part
    ],
)
def test_two_lists_of_16_rays_share_a_warp(lists: list[int], walked: list[int], part: int, warps: list[int]) -> None:
    offsets = torch.tensor([0, *lists]).cumsum(0)
    pairs = PairList(torch.zeros(len(lists), 16, dtype=torch.int64), offsets, torch.zeros(int(offsets[-1])).long())
    counts = torch.zeros(len(lists), 1, 4, dtype=torch.int64)
    counts[:, 0, 0] = torch.tensor(walked)
    assert summed(counts, pairs, 16 * len(lists), part).executed == 32 * sum(warps)
