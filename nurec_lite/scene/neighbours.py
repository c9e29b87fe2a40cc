# SPDX-License-Identifier: Apache-2.0
"""Nearest points: a tree on a CPU; on a GPU grids of cells, where a point with too few neighbours looks in cells twice as large."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.geometry.distances import distances_between
from nurec_lite.scene.voxels import Voxels

IN_A_CELL = 4  # points, where the search begins: on a surface nine of 27 cells hold some
SEVERAL, ALL_PAIRS = 512, 1 << 26  # up to so many points, or pairs, everything is compared with everything
AT_ONCE = 1 << 23  # pairs with distances in memory at a time, 64 MB
THINNED_FROM = 3  # doublings; from then on one point stands for those of a quarter of a cell
WIDER = 4  # from one capacity of places to the next: fewer operators to launch, and more places that stay empty
FINEST = 1 << 20  # cells along an axis at most: their numbers fit into 63 bits

Found = tuple[
    Tensor, Tensor
]  # of each query the distances [q, k] in metres, ascending, and the numbers of the points [q, k]


def nearest(
    queries: Tensor,  # [q, 3] metres, float64
    points: Tensor,  # [n, 3]
    k: int,  # n at most
) -> Found:
    if queries.device.type == "cpu":
        return nearest_by_tree(queries, points, k)
    return nearest_by_cells(queries, points, k)


def nearest_by_tree(queries: Tensor, points: Tensor, k: int) -> Found:  # [q, 3], [n, 3] on the host
    from scipy.spatial import cKDTree  # 0.3 s of the start, which a GPU does without

    distances, numbers = cKDTree(points.numpy()).query(queries.numpy(), k=k, workers=torch.get_num_threads())
    shape = len(queries), k
    return torch.from_numpy(distances).reshape(shape), torch.from_numpy(numbers).reshape(shape)


def nearest_by_cells(queries: Tensor, points: Tensor, k: int) -> Found:  # [q, 3], [n, 3]
    """Returns exact neighbours within four cells of the first size, and for the last few queries. Other queries, far from any crowd,
    get points that each stand for those of a cube as wide as a quarter of the distance."""
    distances = points.new_full((len(queries), k), torch.inf)
    numbers = torch.zeros(len(queries), k, dtype=torch.int64, device=points.device)
    left, few = torch.arange(len(queries), device=points.device), torch.arange(len(points), device=points.device)
    finest, largest = (
        (0.0, 0.0) if len(points) <= SEVERAL or len(queries) * len(points) <= ALL_PAIRS else _sizes(queries, points)
    )
    size, within = finest, 0.0
    while len(left) * len(points) > ALL_PAIRS and len(points) > SEVERAL and within < largest:
        if size >= finest * 2**THINNED_FROM:
            few = few[_one_a_voxel(points[few], size / 4)]
        found, places = _in_cells(queries[left], points[few], k, size, within)
        nearer = _merged((distances[left], numbers[left]), (found, few[places]), within)
        distances[left], numbers[left] = nearer
        left, within, size = left[nearer[0][:, -1] > size], size, 2 * size
    if len(left):
        distances[left], numbers[left] = _of_all(queries[left], points, k)
    return distances, numbers


def _sizes(queries: Tensor, points: Tensor) -> tuple[float, float]:
    """Metres: the size of the first cells, and a bound of all distances."""
    ends = torch.stack([torch.minimum(queries.amin(0), points.amin(0)), torch.maximum(queries.amax(0), points.amax(0))])
    extent = float(ends.diff(dim=0).amax())
    return max(Voxels(points).size_for(len(points) // IN_A_CELL, slack=0.3), extent / FINEST), 2 * extent


def _one_a_voxel(points: Tensor, size: float) -> Tensor:  # numbers
    ordered, order = Voxels(points).key(size).sort(stable=True)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return order[first]


def _merged(known: Found, found: Found, within: float) -> Found:
    """Joins neighbours: `known` is complete up to `within`, `found` has the farther ones."""
    if within == 0:
        return found
    kept = known[0].masked_fill(known[0] > within, torch.inf)
    distances, places = torch.cat([kept, found[0]], 1).topk(kept.shape[1], largest=False)
    return distances, torch.cat([known[1], found[1]], 1).gather(1, places)


def _of_all(queries: Tensor, points: Tensor, k: int) -> Found:
    parts = [
        distances_between(part, points).topk(k, largest=False) for part in queries.split(max(1, AT_ONCE // len(points)))
    ]
    return torch.cat([distances for distances, _ in parts]), torch.cat([numbers for _, numbers in parts])


# ---- one size of cells


@dataclass(frozen=True)
class Around:
    """The points of a grid in the order of their cells, and where those of the 27 cells around each cell with queries lie."""

    xyz: Tensor  # [n, 3] in this order
    order: Tensor  # [n] their numbers
    begins: Tensor  # [cells, 9] of runs of three cells
    lengths: Tensor  # [cells, 9]
    cell: Tensor  # [q] of each query


def _in_cells(queries: Tensor, points: Tensor, k: int, size: float, beyond: float) -> Found:
    """Neighbours farther than `beyond` in the 27 cells around; infinitely far if there are fewer than k."""
    around = _around(queries, points, size)
    distances = points.new_empty(len(queries), k)
    numbers = torch.empty(len(queries), k, dtype=torch.int64, device=points.device)
    for asking, width in _groups(around, k):
        cells, row = around.cell[asking].unique_consecutive(return_inverse=True)
        places = _places(around, cells, width)
        squares = torch.zeros(len(asking), width, dtype=points.dtype, device=points.device)
        for along, own in zip(around.xyz.unbind(-1), queries[asking].unbind(-1), strict=True):
            there = along[places.clamp(min=0)].masked_fill_(places < 0, torch.inf)
            squares += there[row].sub_(own[:, None]).square_()
        if beyond > 0:
            squares.masked_fill_(squares <= beyond * beyond, torch.inf)
        least, slots = squares.topk(k, largest=False)
        distances[asking] = least.sqrt()
        numbers[asking] = around.order[places[row[:, None], slots].clamp(min=0)]
    return distances, numbers


def _around(queries: Tensor, points: Tensor, size: float) -> Around:
    low = torch.minimum(queries.amin(0), points.amin(0))
    own, asked = (((xyz - low) / size).floor().long() + 1 for xyz in (points, queries))
    _, ny, nz = (torch.maximum(own.amax(0), asked.amax(0)) + 2).unbind()  # with an empty cell on either side
    own_key, key = ((cell[:, 0] * ny + cell[:, 1]) * nz + cell[:, 2] for cell in (own, asked))
    ordered, order = own_key.sort(stable=True)
    cells, cell = key.unique(return_inverse=True)
    step = torch.arange(-1, 2, device=cells.device)
    rows = cells[:, None] + ((step[:, None] * ny + step) * nz).flatten()
    begins = torch.searchsorted(ordered, rows - 1)
    return Around(points[order], order, begins, torch.searchsorted(ordered, rows + 2) - begins, cell)


def _groups(around: Around, k: int) -> Iterator[tuple[Tensor, int]]:
    """Queries in the order of their cells, together with queries that have about as many points around, and their capacity."""
    totals = around.lengths.sum(1)
    widths = (k * WIDER ** ((totals.clamp(min=k).double() / k).log2() / math.log2(WIDER)).ceil()).long()
    by_cell = around.cell.argsort(stable=True)
    width_of = widths[around.cell[by_cell]]
    for width in widths.unique().tolist():
        for asking in by_cell[width_of == width].split(max(1, AT_ONCE // width)):
            yield asking, width


def _places(
    around: Around, cells: Tensor, width: int
) -> Tensor:  # [cells, width] in the order of the cells, -1 for none
    lengths = around.lengths[cells]
    ends = lengths.cumsum(1)
    slots = torch.arange(width, device=cells.device)
    run = torch.searchsorted(ends, slots.expand(len(cells), width).contiguous(), right=True)
    shifts = around.begins[cells] - (ends - lengths)
    return (slots + shifts.gather(1, run.clamp(max=8))).masked_fill_(run > 8, -1)
