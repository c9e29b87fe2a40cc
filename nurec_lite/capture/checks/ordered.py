# SPDX-License-Identifier: Apache-2.0
"""Rays of a sweep in the order of their beams: beam by beam, and around the lidar within each. Several checks need it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.geometry.lidar import Sweep, azimuth_elevation


@dataclass(frozen=True, eq=False)
class Ordered:
    """R rays as the sweep has them, and their order."""

    sweep: Sweep
    azimuth: Tensor  # [R] radians, float64
    elevation: Tensor  # [R] radians, float64
    order: Tensor  # [R] int64: rays sorted by ring, those of a ring by azimuth

    def __len__(self) -> int:
        return len(self.sweep)


def ordered(sweep: Sweep) -> Ordered:
    azimuth, elevation = azimuth_elevation(sweep.directions).double().unbind(-1)
    return Ordered(sweep, azimuth.contiguous(), elevation.contiguous(), torch.argsort(sweep.rings * 8 + azimuth))
