# SPDX-License-Identifier: Apache-2.0
"""Gaussians of actors, and the boxes that these were labelled with."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.scene.scene import Scene


@torch.no_grad()
def outside_boxes(
    scene: Scene,
    factor: float,  # of the boxes' size, about their centres
) -> Tensor:  # [N] bool; the background's are outside of none
    """Mask of the Gaussians with a mean outside of their actor's box."""
    g = scene.gaussians
    half = F.pad(0.5 * factor * scene.tracks.sizes.to(g.means.dtype), (0, 0, 1, 0), value=math.inf)
    return (g.means.abs() > half[g.node]).any(-1)
