# SPDX-License-Identifier: Apache-2.0
"""The level surface with the most returns is the road, which lies below a lidar. Above it, the lidar is upside down, unless a floor below
shows that it is a ceiling."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nurec_lite.capture.checks.ordered import Ordered
from nurec_lite.capture.checks.ray_values import Flaw
from nurec_lite.geometry.lidar import Lidar

NEAR, FAR = 3.0, 40.0  # metres of range
HIGHEST, BIN = 8.0, 0.2  # metres above and below the lidar, and of a bin of heights
LEVEL = 0.5  # metres above and below the lidar: nearer returns tell nothing
FEWEST = 500  # returns
SHARE, TIMES = 0.06, 2.0  # of the returns that the highest bin above has and the one below lacks, and times that one


def upside_down(lidar: Lidar, sweeps: Sequence[Ordered]) -> Flaw | None:
    """Returns the flaw of a lidar on its head; None also if ranges in reversed order show a level surface below more clearly."""
    below, above, backwards = (
        _level(lidar, sweeps, sign, turned) for sign, turned in ((-1, False), (1, False), (-1, True))
    )
    if below.max() >= SHARE or above.max() < max(SHARE, TIMES * float(below.max()), float(backwards.max())):
        return None
    metres = BIN * (int(above.argmax()) + 0.5)
    return (
        f"The road seems to lie {metres:.1f} m above {lidar.name}: it is upside down",
        "turn T_rig_lidar by 180 degrees about its x axis, or about its y axis if it also looks back, or turn the sign of z of directions "
        "and of elevations",
    )


def _level(
    lidar: Lidar,
    sweeps: Sequence[Ordered],
    sign: int,  # 1 above, -1 below
    backwards: bool,  # ranges are read from the last to the first
) -> Tensor:  # [n] share of the returns in each bin of height, zeros where they are few
    up = lidar.T_rig_lidar[2, :3].float()
    heights = list[Tensor]()
    for sweep in (rays.sweep for rays in sweeps):
        ranges, returned = (x.flip(0) if backwards else x for x in (sweep.ranges, sweep.returned))
        known = returned & (ranges > NEAR) & (ranges < FAR)
        heights.append(sign * (sweep.directions[known] @ up) * ranges[known])
    height = torch.cat(heights) if heights else torch.zeros(0)
    height = height[height.abs() > LEVEL]
    counts = torch.histc(height, round(HIGHEST / BIN), 0, HIGHEST)
    return counts / len(height) if len(height) >= FEWEST else torch.zeros_like(counts)
