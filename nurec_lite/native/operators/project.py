# SPDX-License-Identifier: Apache-2.0
"""The operator project: bounds of the Gaussians that may reach a ray of a view, in the form that either renderer reads.

Letters: N Gaussians, V of them visible.
"""

import torch
from torch import Tensor

from nurec_lite.native.operators.shared import Grid, gaussian_args, has_lens, packed_view, visibility_grid
from nurec_lite.native.operators.warp_tiles import WarpTiles, band_args, sweep_warp_tiles
from nurec_lite.scene.gaussians import AnyGaussians
from nurec_lite.splat.project import Projection
from nurec_lite.splat.views import CameraView, LidarView


def sensor_kind(view: CameraView | LidarView) -> int:
    """Returns 0 for a lidar, 1 for a camera, 2 for a camera with a lens of kernels/math/lens.cuh."""
    return 0 if isinstance(view, LidarView) else 2 if has_lens(view) else 1


@torch.no_grad()
def project_to_tiles(
    gaussians: AnyGaussians,
    view: CameraView | LidarView,
    capacity: int | None,  # entries of the view's lists
    depth_bits: int,  # of the keys that sort Gaussians
) -> Projection:
    """Returns the bounds of visible Gaussians, near to far. With a capacity the host waits for nothing: it does not need the number of
    visible Gaussians, and rows without bounds follow theirs, up to N."""
    index, low, high, seen, shapes, *_ = _projected(gaussians, view, capacity, depth_bits)
    return Projection(index, low, high, gaussians, seen, shapes)


@torch.no_grad()
def project_to_warp_tiles(
    gaussians: AnyGaussians,
    view: CameraView | LidarView,
    capacity: int | None,
    depth_bits: int,
    tight_lists: bool,  # candidates are tested against rays
    blocks: Tensor | None = None,  # [1 + blocks] int32 as by visible_blocks: others are passed by; None: all count
) -> Projection:
    """Returns bounds in place for a camera, and candidate warp tiles for a lidar; the capacity acts as above. On CUDA alone."""
    made = sweep_warp_tiles(view) if isinstance(view, LidarView) else None
    found = _projected(gaussians, view, capacity, depth_bits, True, made, tight_lists, blocks)
    index, low, high, seen, shapes, count, *candidates = found
    if made:
        return Projection(index, high, high, gaussians, seen, shapes, count, None, (candidates[0], candidates[1]), made)
    return Projection(index, low[:, :2], low[:, 2:], gaussians, seen, shapes, count, low)


def _projected(
    gaussians: AnyGaussians,
    view: CameraView | LidarView,
    capacity: int | None,
    depth_bits: int,
    warp_tiles: bool = False,
    made: tuple[WarpTiles, Grid] | None = None,  # of a sweep
    tight_lists: bool = False,
    blocks: Tensor | None = None,
) -> list[Tensor]:
    grid, columns = visibility_grid(view, gaussians.means.device)
    known = view.ray_groups.occupied if isinstance(view, LidarView) and view.ray_groups else None
    found: list[Tensor] = torch.ops.nurec_lite.project(
        gaussian_args(gaussians), packed_view(view), sensor_kind(view), grid, columns,
        band_args(*made) if made else [], capacity is not None, depth_bits, tight_lists, known, warp_tiles,
        gaussians.lidar if tight_lists and made else None, blocks,
    )  # fmt: skip
    return found
