# SPDX-License-Identifier: Apache-2.0
"""Number of (ray, Gaussian) pairs of a view, by the operator count_pairs: the unit of speeds.

A block of the GPU takes a tile, a warp of 32 lanes 32 of its rays. A warp goes through the tile's list until all its rays are closed,
and all lanes are busy as long as one ray is open. Where a tile has 16 rays (a sweep's lists, kernels/raster_warps/bin), a warp takes two
of them, or of their parts, side by side, two that are next to one another by length, and its lanes are busy as long as either is. Of an
image's lists a warp of the GPU takes one segment after another, the next free one. Lane efficiency is the share of lane slots
with a pair that contributes. Counts are the same on a CPU, though its own loop takes 16 rays together.
"""

import heapq
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nurec_lite.native.operators.shared import gaussian_args, has_per_ray_origins, packed_view, ray_and_list_args
from nurec_lite.scene.gaussians import AnyGaussians
from nurec_lite.splat.tiles import PairList
from nurec_lite.splat.views import CameraView, LidarView

WARP = 32
WHOLE = 1 << 30  # no list is cut


@dataclass(frozen=True)
class PairCounts:
    """Counts of one view. A tile's length is the number of Gaussians that its block goes through before all its rays
    are closed."""

    rays: int
    tiles: int
    entries: int  # of all tiles' lists
    executed: int  # lane slots
    open: int  # of them with a ray that is there and not closed
    contributing: int  # of them with a weight above 0
    reductions: int  # (warp, Gaussian) pairs with a contribution: rows that a backward pass adds up over a warp
    longest_list: int
    mean_list: float
    longest_tile: int
    mean_tile: float
    longest_part: int  # of a list, where lists are cut (balanced_tiles); else the list
    mean_part: float
    longest_warp: int  # entries that one warp takes, of all its segments
    mean_warp: float

    @property
    def lane_efficiency(self) -> float | None:
        return self.contributing / self.executed if self.executed else None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {
            "lane_efficiency": self.lane_efficiency,
            "longest_to_mean_tile": self.longest_tile / self.mean_tile if self.mean_tile else None,
            "longest_to_mean_part": self.longest_part / self.mean_part if self.mean_part else None,
            "longest_to_mean_warp": self.longest_warp / self.mean_warp if self.mean_warp else None,
        }


@torch.no_grad()
def count_pairs(
    gaussians: AnyGaussians,
    view: CameraView | LidarView,
    pairs: PairList,  # as the tile stage has it
    part: int = WHOLE,  # entries of a segment at most
    warps: int | None = None,  # that take one segment after another; None: as many as there are segments
) -> PairCounts:
    """Waits for the device. The kernels must be loaded (`nurec_lite.native.ops.load`)."""
    rays, lists = view.rays(), replace(pairs, gaussians=pairs.gaussians.long())  # of warp tiles or of block tiles
    features = gaussians.lidar  # nothing looks at them
    counts = torch.ops.nurec_lite.count_pairs(
        gaussian_args(gaussians),
        features,
        *ray_and_list_args(rays, lists),
        packed_view(view),
        has_per_ray_origins(view),
    )
    return summed(counts, pairs, len(rays.delays), part, warps)


def summed(
    counts: Tensor,  # [A, W, 4] of each tile's warps, as kernels/raster_tiles/count_pairs.h lists them
    pairs: PairList,
    n_rays: int,
    part: int = WHOLE,
    warps: int | None = None,
) -> PairCounts:
    tiles, lists = counts[..., 0].amax(1) if counts.numel() else counts.new_zeros(len(counts)), pairs.offsets.diff()
    _, is_open, contributing, useful = counts.sum((0, 1)).tolist()
    together = 2 if 2 * pairs.rays.shape[1] == WARP else 1
    walked = _walked(counts[..., 0].amax(1), lists, part, together) if together > 1 else int(counts[..., 0].sum())
    return PairCounts(
        n_rays, len(counts), len(pairs.gaussians), WARP * walked, is_open, contributing, useful,
        *_longest_and_mean(lists), *_longest_and_mean(tiles), *_longest_and_mean_part(lists, part),
        *_longest_and_mean_warp(lists, part, warps),
    )  # fmt: skip


def _walked(walked: Tensor, lists: Tensor, most: int, together: int) -> int:
    """Gaussians that warps go through if each takes so many segments at a time: of the longest segment, summed over
    warps. An empty segment counts. Segments of split lists come first, the longest before others
    (kernels/raster_warps/blend/split_lists.cuh)."""
    tile, begin, end = _parts(lists, most)
    order = ((end - begin) + WHOLE * (lists[tile] > most)).argsort(descending=True, stable=True)
    tile, begin, end = tile[order], begin[order], end[order]
    mine = (walked[tile] - begin).clamp(min=0).minimum(end - begin)
    more = -len(mine) % together
    return int(torch.cat([mine, mine.new_zeros(more)]).view(-1, together).amax(1).sum())


def _parts(lists: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """For each segment its list, and its begin and end in that list. A list is split into as few segments as possible,
    equal up to one entry (kernels/raster_warps/blend)."""
    parts = (-(-lists // most)).clamp(min=1)
    tile = torch.repeat_interleave(parts)
    number = torch.arange(len(tile), device=tile.device) - (parts.cumsum(0) - parts)[tile]
    begin, end = (lists[tile] * (number + k) // parts[tile] for k in (0, 1))
    return tile, begin, end


def _longest_and_mean(lengths: Tensor) -> tuple[int, float]:
    return (int(lengths.max()), float(lengths.double().mean())) if len(lengths) else (0, 0.0)


def _longest_and_mean_part(lists: Tensor, most: int) -> tuple[int, float]:
    """Longest and mean segment of lists with entries."""
    _, begin, end = _parts(lists[lists > 0], most)
    return _longest_and_mean(end - begin)


def _longest_and_mean_warp(lists: Tensor, most: int, warps: int | None) -> tuple[int, float]:
    """Each segment goes to the warp that is done first, as if an entry took every warp the same time."""
    if warps is None:
        return _longest_and_mean_part(lists, most)
    _, begin, end = _parts(lists[lists > 0], most)
    taken = [0] * min(warps, len(begin))
    for length in (end - begin).tolist():
        heapq.heapreplace(taken, taken[0] + length)
    return (max(taken), sum(taken) / len(taken)) if taken else (0, 0.0)
