# SPDX-License-Identifier: Apache-2.0
"""The operator visible_blocks: blocks of consecutive Gaussians of the store with one that an image may see. On CUDA alone."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nurec_lite.native.operators.shared import has_lens, packed_view
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.splat.views import CameraView

BLOCK = 256  # Gaussians


def visible_blocks(
    g: Gaussians,  # N
    still: int,  # the first ones, which do not move; blocks with others count as visible
    views: Sequence[CameraView],  # 1 to 16
) -> Tensor:  # [1 + ceil(N / BLOCK)] int32: how many blocks some view may see, and their numbers, ascending; the rest is unwritten
    """The test is the projection's first one: a Gaussian's sphere against the cone of the camera, while it moves."""
    rows, lenses = [packed_view(view) for view in views], [has_lens(view) for view in views]
    stored = g.means.detach(), g.log_scales.detach(), g.opacity_logits.detach()
    found: Tensor = torch.ops.nurec_lite.visible_blocks(*stored, still, rows, lenses)
    return found
