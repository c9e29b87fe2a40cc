# SPDX-License-Identifier: Apache-2.0
"""The arguments of the operators group_sweep_rays and list_warp_tiles: lists of warp tiles. On CUDA alone.

Letters: N Gaussians, V of them visible; A warp tiles, B bands of elevation.
"""

from typing import NamedTuple

from torch import Tensor


class BoundsInPlace(NamedTuple):
    """Arrays of nurec_lite.splat.project.Projection for warp tiles."""

    indices: Tensor  # [V] int64
    there: Tensor  # [1] int64, so many of the V count
    bounds: Tensor  # [N, 4]


class CandidatesInPlace(NamedTuple):
    """The same for a lidar, whose warp tiles exist already."""

    indices: Tensor  # [V] int64
    there: Tensor  # [1] int64
    candidates: Tensor  # [N, 8] kernels/project/warp_tiles.h
    counts: Tensor  # [N] int32, how many they are


class BandTiles(NamedTuple):
    """A lidar's bundles without their rays, and the grid of their bands."""

    first: Tensor  # this and what follows as WarpTiles has them
    bins: Tensor
    heights: Tensor
    directions: Tensor  # and these as Grid
    edges: Tensor


class WarpTiles(NamedTuple):
    """A bundles of 32 rays, of a sweep by elevation; the last three are about a lidar's, in B bands of elevation."""

    rays: Tensor  # [A, 32] int64, -1 where a bundle has fewer
    first: Tensor  # [B + 1] int32 first bundle of a band
    bins: Tensor  # [B, 2048, 2] int32 first warp tile beyond the begin of a bin of azimuth, and first after its end
    heights: Tensor  # [B, 2] radians of elevation between which a band's rays lie
