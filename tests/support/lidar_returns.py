# SPDX-License-Identifier: Apache-2.0
"""Rendered lidar rays by their returns."""

import torch
from torch import Tensor

from nurec_lite.splat.render import LidarReturns


def seen_returns(
    distance: Tensor,  # [R] metres
    median: Tensor,  # [R] metres
    intensity: Tensor,  # [R]
    drop: Tensor,  # [R]
    opacity: Tensor,  # [R]
) -> LidarReturns:
    """Returns with these values, the drop up to rounding."""
    passed = 1 - opacity
    return LidarReturns(distance, median, torch.stack([intensity, drop - passed], dim=-1), passed)
