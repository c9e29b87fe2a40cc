# SPDX-License-Identifier: Apache-2.0
"""Blocks of consecutive Gaussians of the store with one that a view may see, lists of them, and copies and gradients of their rows. On
CUDA alone."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nurec_lite.native.operators.project import sensor_kind
from nurec_lite.native.operators.shared import packed_view, visibility_grid
from nurec_lite.native.operators.warp_tiles import occupied_cells
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.splat.views import CameraView, LidarView

BLOCK = 256  # Gaussians


def count_blocks(g: Gaussians) -> int:
    return -(-len(g) // BLOCK)


def no_spheres(g: Gaussians) -> Tensor:  # [blocks, 4]
    return g.means.new_full((count_blocks(g), 4), -1.0)


class BlockSpheres:
    """Spheres about blocks that no view has seen since they last changed: metres in the world, a negative radius where none is known.

    While no view sees the sphere of a hidden block, visible_blocks does not read its Gaussians. Updates that leave hidden blocks alone
    keep spheres right. A new store or a relocation is noticed here; after any other change call `forget`.
    """

    def __init__(self) -> None:
        self._node = torch.zeros(0, dtype=torch.int64)  # [N] of the store
        self._version = -1  # of that tensor: a relocation writes into it
        self._spheres: Tensor | None = None  # [blocks, 4]

    def of(self, g: Gaussians) -> Tensor:  # [blocks, 4]
        """Returns the spheres of this store. RuntimeError within a recording of a store that `follow` has not met: each launch would reset
        them."""
        if self._spheres is None or g.node is not self._node or g.node._version != self._version:
            if g.node.is_cuda and torch.cuda.is_current_stream_capturing():
                raise RuntimeError("the blocks of this store are not known yet")
            self._reset(g)
        assert self._spheres is not None
        return self._spheres

    def follow(self, g: Gaussians) -> None:
        """Notices another store; call it before each step. Without spheres nothing happens."""
        if self._spheres is not None:
            self.of(g)

    def _reset(self, g: Gaussians) -> None:
        if self._spheres is None or g.node is not self._node:
            self._spheres = no_spheres(g)
        else:
            self.forget()
        self._node, self._version = g.node, g.node._version

    def forget(self) -> None:
        if self._spheres is not None:
            self._spheres.fill_(-1)


def visible_blocks(
    g: Gaussians,  # N
    still: int,  # the first ones, which do not move; blocks with others count as visible
    views: Sequence[CameraView | LidarView],  # 1 to 16
    spheres: Tensor
    | None = None,  # [ceil(N / BLOCK), 4] of hidden blocks, as BlockSpheres has them; None: all Gaussians are read
    joined: Callable[[Tensor], None]
    | None = None,  # raises flags uint8 of blocks to 1 that a view of another rank may see
) -> Tensor:  # [1 + ceil(N / BLOCK)] int32: how many blocks some view may see, and their numbers, ascending; the rest is unwritten
    """The test is the projection's first one: a Gaussian's sphere against the cone of the camera while it moves, or against the cells of
    the lidar that hold rays."""
    sweeps = [view for view in views if isinstance(view, LidarView)]
    cells = [visibility_grid(view, g.means.device) for view in sweeps]
    stored = (t.detach() for t in (g.means, g.log_scales, g.opacity_logits, g.lidar_logits))
    spheres = no_spheres(g) if spheres is None else spheres
    flags: Tensor = torch.ops.nurec_lite.mark_visible_blocks(
        *stored, spheres, still, list(map(packed_view, views)), list(map(sensor_kind, views)),
        [grid.edges for grid, _ in cells], [columns for _, columns in cells], list(map(occupied_cells, sweeps)),
    )  # fmt: skip
    if joined is not None:
        joined(flags)
    listed: Tensor = torch.ops.nurec_lite.list_visible_blocks(flags, spheres)
    return listed


def pack_blocks(
    rows: Sequence[Tensor],  # [N, ...] float32 each
    blocks: Tensor,  # [1 + blocks] int32 as by visible_blocks
    factors: Sequence[float],  # of each
    packed: Sequence[Tensor],  # [capacity, BLOCK * ...] each; blocks after as many are left out
) -> None:
    """Copies rows of the listed blocks, times the factors, in the order of the list. Rows after the N-th are not written."""
    torch.ops.nurec_lite.pack_blocks(list(rows), blocks, list(factors), list(packed))


def unpack_blocks(packed: Sequence[Tensor], blocks: Tensor, rows: Sequence[Tensor]) -> None:
    """Copies rows back to their blocks; rows of other blocks stay as they are."""
    torch.ops.nurec_lite.unpack_blocks(list(packed), blocks, list(rows))


def drop_unseen(
    d_means: Tensor,  # [N, 3] gradients of means
    blocks: Tensor,  # [1 + blocks] int32 as by visible_blocks
    gradients: Sequence[Tensor],  # [N, ...] float32 each, 1 to 4
) -> None:
    """Sets rows of the listed blocks to 0 where the gradient of the mean is 0; rows of other blocks stay as they are."""
    torch.ops.nurec_lite.drop_unseen(d_means, blocks, list(gradients))
