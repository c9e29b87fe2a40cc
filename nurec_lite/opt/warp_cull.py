# SPDX-License-Identifier: Apache-2.0
"""warp_cull: 32 neighbouring rays, a warp's, have a list of their own, so that no warp walks past what its tile's other rays see.

Idea: a tile of 256 rays has one list, and each of its eight warps goes through all of it, though a Gaussian reaches the rays of a few.
Here rays come in bundles of 32: patches of 8x4 pixels, and of a lidar, whatever its pattern, neighbours in azimuth within a band of
four beams, so that all but one bundle a band are full. A bundle's warp stages its list for itself: nobody waits at barriers.
Source: tiles of 32 points made a lidar rasterizer 2.4 times as fast in SimULi (Zhou et al. 2025); 8x4 patches are Faster-GS's.
Gain: see docs/story-3-past-the-post.md.
Limits: on a GPU alone. Lists are longer in sum, and making them takes longer, which tile_cull makes up for. Its kernels take the
place of those of split_backward, launch_bounds and shared_memory. Class exact: every ray blends the same Gaussians in the same order.
"""

from nurec_lite.training.stages import Stages, uncompiled

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()


def unavailable(stages: Stages) -> str | None:
    return uncompiled(stages) or (
        None if stages.device == "cuda" else "it is about the warps of a GPU; use device=cuda"
    )


def apply(stages: Stages) -> Stages:
    return stages.planned("warp_cull", bundles=True)
