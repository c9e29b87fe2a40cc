# SPDX-License-Identifier: Apache-2.0
"""Exact distances to the nearest point: a tree on a CPU; on a GPU blocks of neighbours, and bounds that leave most pairs of blocks out.

Points are sorted along a Morton curve and cut into blocks of SIZE. A box around each block bounds its distance to any other point from
below. Each block of queries first looks at the FIRST blocks with the most similar boxes, since both sets show the same surfaces. Then
each query looks at those blocks whose boxes lie nearer than its result so far. Distances are differences of the given coordinates in
single precision: a relative error of 3e-7.

Letters: q queries, n points; Q and N blocks of them; S points of a block.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from nurec_lite.scene.neighbours import nearest_by_tree

SIZE = 64  # points of a block
FIRST = 4  # blocks that each block of queries looks at in any case
AT_ONCE = 1 << 24  # numbers of a temporary tensor, 64 MB
_BITS = 21  # of each axis in a Morton code: three fit into 63
_SPREAD = (
    (32, 0x1F00000000FFFF), (16, 0x1F0000FF0000FF), (8, 0x100F00F00F00F00F), (4, 0x10C30C30C30C30C3), (2, 0x1249249249249249),
)  # fmt: skip
_CLOSER = 1 - 1e-5  # factor of lower bounds, for their rounding


def closest_distances(
    queries: Tensor,  # [q, 3] metres, float32
    points: Tensor,  # [n, 3], n > 0
) -> Tensor:  # [q] metres, in another order than the queries
    if queries.device.type == "cpu":
        return nearest_by_tree(queries.double(), points.double(), 1)[0][:, 0]
    return closest_by_blocks(queries, points)


def closest_by_blocks(queries: Tensor, points: Tensor) -> Tensor:  # [q, 3], [n, 3] -> [q]
    low, extent = _frame(queries, points)
    asking, known = (_blocks(xyz, low, extent) for xyz in (queries, points))
    boxes = known.amin(1), known.amax(1)
    found = [_squares(part, known, boxes) for part in asking.split(max(1, AT_ONCE // len(known)))]
    return torch.cat(found).flatten()[: len(queries)].sqrt_()


def _frame(queries: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:  # [3] corner and [] side of a cube around all
    low = torch.minimum(queries.amin(0), points.amin(0))
    return low, (torch.maximum(queries.amax(0), points.amax(0)) - low).amax().clamp(min=1e-6)


def _blocks(xyz: Tensor, low: Tensor, extent: Tensor) -> Tensor:  # [ceil(n / S), S, 3], the last point repeated
    cells = ((xyz - low) / extent * (1 << _BITS)).long().clamp(0, (1 << _BITS) - 1)
    for shift, mask in _SPREAD:
        cells = (cells | cells << shift) & mask
    order = (cells[:, 0] << 2 | cells[:, 1] << 1 | cells[:, 2]).argsort()
    missing = -len(xyz) % SIZE
    return xyz[torch.cat([order, order[-1:].expand(missing)])].view(-1, SIZE, 3)


def _squares(
    asking: Tensor,  # [Q, S, 3]
    known: Tensor,  # [N, S, 3]
    boxes: tuple[Tensor, Tensor],  # [N, 3] each, lowest and highest
) -> Tensor:  # [Q, S] squared metres
    """Waits for the device twice, to know how many pairs are left."""
    own = asking.amin(1), asking.amax(1)
    least = _apart(own, boxes)
    nearest = torch.cdist(torch.cat(own, 1), torch.cat(boxes, 1)).topk(min(FIRST, len(known)), largest=False).indices
    squares = _of_first(asking, known, nearest)
    least.scatter_(1, nearest, torch.inf)
    block, other = (least < squares.amax(1, keepdim=True)).nonzero(as_tuple=True)
    flat, queries = squares.view(-1), asking.view(-1, 3)
    for query, there in _worth(asking, squares, boxes, block, other):
        for a, b in zip(query.split(AT_ONCE // (3 * SIZE)), there.split(AT_ONCE // (3 * SIZE)), strict=True):
            flat.scatter_reduce_(0, a, (known[b] - queries[a][:, None]).square_().sum(-1).amin(1), "amin")
    return squares


def _apart(
    a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]
) -> Tensor:  # [Q, N] squared metres between boxes, at least
    gaps = a[0].new_zeros(len(a[0]), len(b[0]))
    for axis in range(3):
        (low, high), (there, beyond) = ([end[:, axis] for end in ends] for ends in (a, b))
        gap = torch.maximum(low[:, None] - beyond, there - high[:, None]).clamp_(min=0)
        gaps.addcmul_(gap, gap)
    return gaps.mul_(_CLOSER)


def _of_first(asking: Tensor, known: Tensor, nearest: Tensor) -> Tensor:  # [Q, S] squared metres within these blocks
    """Returns the least squares, computed one block after another, in parts."""
    parts = []
    for some, which in zip(*(t.split(max(1, AT_ONCE // (3 * SIZE * SIZE))) for t in (asking, nearest)), strict=True):
        found = [(some[:, :, None] - known[k][:, None]).square_().sum(-1).amin(2) for k in which.unbind(1)]
        parts.append(torch.stack(found).amin(0))
    return torch.cat(parts)


def _worth(
    asking: Tensor, squares: Tensor, boxes: tuple[Tensor, Tensor], block: Tensor, other: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:  # numbers of queries and of blocks
    """Yields the queries of pairs of blocks that may be nearer to a point of the other block than their nearest so far."""
    for a, b in zip(block.split(AT_ONCE // (3 * SIZE)), other.split(AT_ONCE // (3 * SIZE)), strict=True):
        xyz = asking[a]
        gap = torch.maximum(boxes[0][b][:, None] - xyz, xyz - boxes[1][b][:, None]).clamp_(min=0)
        pair, slot = (gap.square_().sum(-1) * _CLOSER < squares[a]).nonzero(as_tuple=True)
        yield a[pair] * SIZE + slot, b[pair]
