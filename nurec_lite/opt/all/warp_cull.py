# SPDX-License-Identifier: Apache-2.0
"""warp_cull: the 32 neighbouring rays of a warp have a list of their own, so that no warp walks past Gaussians that only other rays of its
tile see.

Idea: a tile of 256 rays has one list, and each of its eight warps goes through all of it, though a Gaussian reaches the rays of only a
few. Here rays come in warp tiles of 32: patches of 8x4 pixels, and for a lidar of any pattern, neighbours in azimuth within a band of
four beams, so that all warp tiles but one a band are full. A warp stages its list for itself, without barriers. A sweep's warp tile has
two lists, for its lower and its upper beams, and a warp takes two.
Source: SimULi (a lidar rasterizer went from 6.5 to 15.8 M rays/s with tiles of 32 points instead of 256); 8x4 patches are Faster-GS's.
Gain, code before and after, limits: docs/options/warp_cull.md.
Limits: on a GPU alone. Lists are longer in sum, and making them takes longer. Its kernels replace those of split_backward,
launch_bounds and shared_memory. Class close: on equal lists the numbers are the same, but bounds of Gaussians are approximate, and a
warp tile is narrower than a tile: rims that a tile of 256 rays happened to see may be lost, others are seen. Outputs and gradients of
four views differ by 0.2 to 4.0 % in norm from those of tiles (three trainings). On its own lists its distance from float64 is that of
rounding, and `all` passed the quality gate of three seeds (docs/results.md).
"""

from nurec_lite.training.stages import Stages, uncompiled

CLASS = "close"
REQUIRES: tuple[str, ...] = ()


def unavailable(stages: Stages) -> str | None:
    return uncompiled(stages) or (
        None if stages.device == "cuda" else "it is about the warps of a GPU; use device=cuda"
    )


def apply(stages: Stages) -> Stages:
    return stages.planned("warp_cull", warp_tiles=True)
