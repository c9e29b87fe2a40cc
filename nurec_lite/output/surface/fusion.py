# SPDX-License-Identifier: Apache-2.0
"""Rendered distances fused into a truncated signed distance field (Curless and Levoy, "A Volumetric Method for Building Complex Models
from Range Images", SIGGRAPH 1996), in the cells near surfaces alone.

Each ray adds to the cells that it crosses within `BAND` cells of its end: distance of the cell's centre to the end, along the ray. Rays
may be of any sensor, lens and shutter. Letters: R rays, V cells.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

BAND = 3  # cells before and after the end of a ray
_REACH = 1 << 20  # cells from the origin along an axis
_GREY = torch.tensor(0.5)
_PENDING = 8_000_000  # entries that are merged at once


class FieldTooLargeError(ValueError):
    """A ray ends beyond the cells that can be counted."""


@dataclass(frozen=True)
class Hits:
    """Ends of R rays, world."""

    origins: Tensor  # [R, 3] float64 metres
    directions: Tensor  # [R, 3] unit
    ranges: Tensor  # [R] metres
    colours: Tensor | None  # [R, 3] 0 to 1; None: the sensor sees none


@dataclass(frozen=True)
class Field:
    """V cells, in the order of their keys."""

    keys: Tensor  # [V] int64
    distances: Tensor  # [V] metres, positive before the surface
    weights: Tensor  # [V] number of entries
    colours: Tensor  # [V, 3] 0 to 1
    seen: Tensor  # [V] number of entries with a colour

    def places(self) -> Tensor:  # [V, 3] int64 cells from the origin
        return torch.stack([(self.keys >> shift & (2 * _REACH - 1)) - _REACH for shift in (42, 21, 0)], dim=1)


def key_of(
    cells: Tensor,  # [..., 3] int64
) -> Tensor:  # [...]
    x, y, z = (cells + _REACH).unbind(-1)
    return x << 42 | y << 21 | z


def fused(hits: Iterable[Hits], cell: float) -> Field:
    """The mean of all that the rays say of each cell."""
    whole, pending, count = _empty(), [], 0
    for some in hits:
        pending.append(_entries(some, cell))
        count += len(pending[-1].keys)
        if count > _PENDING:
            whole, pending, count = _merged([whole, *pending]), [], 0
    whole = _merged([whole, *pending])
    means = whole.colours / whole.seen[:, None].clamp(min=1)
    colours = torch.where(whole.seen[:, None] > 0, means, _GREY)
    return replace(whole, distances=whole.distances / whole.weights.clamp(min=1), colours=colours)


def _empty() -> Field:
    zero = torch.zeros(0)
    return Field(torch.zeros(0, dtype=torch.int64), zero, zero, zero.view(0, 3), zero)


def _entries(hits: Hits, cell: float) -> Field:
    """Sums of one view: a ray counts once in a cell."""
    steps = torch.arange(-BAND, BAND + 1, dtype=torch.float64) * cell
    ends = hits.origins + hits.ranges[:, None].double() * hits.directions
    at = ends[:, None] + steps[:, None] * hits.directions[:, None].double()  # [R, 2 BAND + 1, 3]
    cells = torch.floor(at / cell).to(torch.int64)
    if cells.numel() and int(cells.abs().max()) >= _REACH - 2:
        raise FieldTooLargeError
    centres = (cells.double() + 0.5) * cell
    distances = ((ends[:, None] - centres) * hits.directions[:, None]).sum(-1).clamp(-BAND * cell, BAND * cell)
    one = torch.ones(distances.numel())
    colours, seen = torch.zeros(len(one), 3), torch.zeros_like(one)
    if hits.colours is not None:
        colours, seen = hits.colours[:, None].expand(-1, len(steps), -1).flatten(0, 1), one
    return _merged([Field(key_of(cells).flatten(), distances.float().flatten(), one, colours, seen)])


def _merged(parts: list[Field]) -> Field:
    """Sums of equal keys."""
    keys, index = torch.cat([part.keys for part in parts]).unique(return_inverse=True)
    rows = [torch.stack([part.distances, part.weights, part.seen, *part.colours.unbind(1)], dim=1) for part in parts]
    sums = torch.zeros(len(keys), 6).index_add_(0, index, torch.cat(rows))
    return Field(keys, sums[:, 0], sums[:, 1], sums[:, 3:], sums[:, 2])
