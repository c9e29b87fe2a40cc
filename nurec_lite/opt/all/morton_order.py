# SPDX-License-Identifier: Apache-2.0
"""morton_order: relocation leaves Gaussians in the order of a space-filling curve, so that neighbours in space are neighbours in memory.

Idea: a view sees the Gaussians in its frustum, and a warp tile those along its rays, but dead Gaussians that relocation has moved to
live ones keep their place in memory; after a while neighbours in memory are far apart in the street. Unseen Gaussians are then skipped
one row at a time, in cache lines that are read for their other rows. Here every relocation sorts the Gaussians of each node by the
Morton code of their means, the bits of cells of 0.25 m along x, y and z in turns. It writes all rows anyway.
Source: Morton, A Computer Oriented Geodetic Data Base, 1966; sorting of points for locality is common in renderers of point clouds.
Gain, code before and after, limits: docs/options/morton_order.md.
Limits: the step's numbers do not change, but relocation and noise draw by row, so other Gaussians are drawn. Until the first relocation
the order is that of the start. Class exact: the same numbers, except for these draws.
"""

import torch
from torch import Tensor

from nurec_lite.training.density import Relocation
from nurec_lite.training.stages import Stages

CLASS = "exact"
REQUIRES: tuple[str, ...] = ()
CELL = 0.25  # metres
BITS = 21  # of each axis: 524 km
_SPREAD = (  # a shift, and the bits that stay: each of the 21 bits gets two places before the next
    (32, 0x1F00000000FFFF),
    (16, 0x1F0000FF0000FF),
    (8, 0x100F00F00F00F00F),
    (4, 0x10C30C30C30C30C3),
    (2, 0x1249249249249249),
)


def unavailable(stages: Stages) -> str | None:
    return None


def morton_codes(
    means: Tensor,  # [N, 3] metres
) -> Tensor:  # [N] int64, at least 0
    """Codes of the cells of Gaussians; beyond 262 km it is the outermost cell."""
    half = 1 << (BITS - 1)
    bits = (means / CELL).floor().clamp(-half, half - 1).to(torch.int64) + half
    for shift, kept in _SPREAD:
        bits = (bits | bits << shift) & kept
    x, y, z = bits.unbind(-1)
    return x | y << 1 | z << 2


def by_place(moved: Relocation) -> Tensor:  # [M] int64
    """The order by node, and within each by code."""
    order = torch.argsort(morton_codes(moved.changed["means"]), stable=True)
    return order[torch.argsort(moved.node[order], stable=True)]


def apply(stages: Stages) -> Stages:
    return stages.swap("morton_order", order=by_place)
