# SPDX-License-Identifier: Apache-2.0
"""The arguments of the operators tile_camera and tile_lidar: lists of block tiles."""

from typing import NamedTuple

from torch import Tensor


class Bounds(NamedTuple):
    """Arrays of nurec_lite.splat.project.Projection."""

    indices: Tensor  # [V] int64
    low: Tensor  # [V, 2]
    high: Tensor  # [V, 2]
