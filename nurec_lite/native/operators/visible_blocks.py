# SPDX-License-Identifier: Apache-2.0
"""The operator visible_blocks: blocks of consecutive Gaussians of the store with one that a view may see. On CUDA alone."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nurec_lite.native.operators.project import sensor_kind
from nurec_lite.native.operators.shared import packed_view, visibility_grid
from nurec_lite.native.operators.warp_tiles import occupied_cells
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.splat.views import CameraView, LidarView

BLOCK = 256  # Gaussians


def visible_blocks(
    g: Gaussians,  # N
    still: int,  # the first ones, which do not move; blocks with others count as visible
    views: Sequence[CameraView | LidarView],  # 1 to 16
) -> Tensor:  # [1 + ceil(N / BLOCK)] int32: how many blocks some view may see, and their numbers, ascending; the rest is unwritten
    """The test is the projection's first one: a Gaussian's sphere against the cone of the camera while it moves, or against the cells of
    the lidar that hold rays."""
    sweeps = [view for view in views if isinstance(view, LidarView)]
    cells = [visibility_grid(view, g.means.device) for view in sweeps]
    stored = (t.detach() for t in (g.means, g.log_scales, g.opacity_logits, g.lidar_logits))
    found: Tensor = torch.ops.nurec_lite.visible_blocks(
        *stored, still, list(map(packed_view, views)), list(map(sensor_kind, views)),
        [grid.edges for grid, _ in cells], [columns for _, columns in cells], list(map(occupied_cells, sweeps)),
    )  # fmt: skip
    return found
