# SPDX-License-Identifier: Apache-2.0
"""fused_ssim: the loss of an image, L1 and SSIM together, is one kernel forward and one backward.

Idea: SSIM is five maps, two convolutions and a dozen elementwise kernels over them, forward and again backward, each from memory to
memory. Here a block walks down a strip of the image: it blurs the moments along each row, adds them up down the columns in registers, and
writes the similarity's slopes, which the backward pass blurs in the same way. Of the sum and the difference of both images four moments
do. A second kernel of one block adds up the blocks' sums in an order that never changes.
Source: moments at once and derivatives kept for the backward pass are fused-ssim's (Goel), which Taming 3DGS (Mallick et al. 2024) and
Faster-GS use; formulas in kernels/math/ssim.cuh.
Gain, code before and after, limits: docs/options/fused_ssim.md.
Limits: single precision. Three maps of the image's size are kept between forward and backward. No second derivatives. Class exact: the
same function; on bright images of little contrast its rounding is half of the plain one's.
"""

import torch
from torch import Tensor

from nurec_lite.native import ops
from nurec_lite.training.stages import Stages

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()


def unavailable(stages: Stages) -> str | None:
    return None


def image_loss(
    rendered: Tensor,  # [H, W, 3]
    target: Tensor,  # [H, W, 3] 0 to 1
    ssim_weight: float = 0.2,
) -> Tensor:  # scalar
    """Loss as by nurec_lite.training.losses.image_loss."""
    loss, _ = torch.ops.nurec_lite.image_loss(rendered.contiguous(), target.contiguous(), ssim_weight)
    return loss


def apply(stages: Stages) -> Stages:
    ops.load()
    return stages.swap("fused_ssim", image_loss=image_loss)
