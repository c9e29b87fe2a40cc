# SPDX-License-Identifier: Apache-2.0
"""Messages with the two factors of the harmonics' gradient, of all Gaussians or of those in visible blocks. Their last numbers say whether
the step failed, and how many entries the lists of each image need.

Letters: N Gaussians, V views of a rank, R ranks.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.native.rank1_sh import Rank1ShGrad
from nurec_lite.training.block_messages import ALIGNED, BlockRows, aligned


@dataclass(frozen=True)
class Received:
    """Content of the messages of all ranks."""

    directions: Tensor  # [R V, N, 3]
    colours: Tensor  # [R V, N, 3]
    failed: Tensor  # [] whether the step of any rank failed
    entries: Tensor  # [R V] float32, of lists


@dataclass(frozen=True)
class WholeFactors:
    """Factors of all Gaussians. A message is [V, 6 N + ALIGNED], a row a view."""

    def pack(
        self,
        own: Rank1ShGrad,
        share: float,
        failed: Tensor | None,  # []
        entries: Tensor,  # [V] of lists
    ) -> Tensor:
        """The message: directions, then colours times `share`, then whether the step failed, then the entries."""
        views, n, _ = own.directions.shape
        message = own.directions.new_empty(views, 6 * n + ALIGNED)
        message[:, : 3 * n] = own.directions.flatten(1)
        torch.mul(own.colours.flatten(1), share, out=message[:, 3 * n : 6 * n])
        message[:, 6 * n :] = 0 if failed is None else failed
        message[:, -1] = entries
        return message

    def unpack(
        self,
        found: Tensor,  # [R, V, 6 N + ALIGNED]
    ) -> Received:
        rows = found.flatten(0, 1)
        n = (rows.shape[1] - ALIGNED) // 6
        directions, colours = (rows[:, k * 3 * n : (k + 1) * 3 * n].unflatten(1, (n, 3)) for k in range(2))
        return Received(directions, colours, rows[:, 6 * n].max(), rows[:, -1])


@dataclass(frozen=True)
class BlockFactors:
    """Factors of the Gaussians in listed blocks. Those of others are not written."""

    n: int  # N
    views: int  # V
    blocks: Tensor  # [1 + blocks] int32 as by visible_blocks
    capacity: int  # of a message, in blocks

    @property
    def _place(self) -> BlockRows:
        return BlockRows([(self.n, 3)] * (2 * self.views), self.blocks, self.capacity)

    def pack(
        self,
        own: Rank1ShGrad,
        share: float,
        failed: Tensor | None,  # []
        entries: Tensor,  # [V] of lists, V < ALIGNED
    ) -> Tensor:
        """The message, as above, in one row."""
        message = own.directions.new_empty(aligned(self._place.numbers) + ALIGNED)
        factors = [1.0] * self.views + [share] * self.views
        self._place.pack([*own.directions.detach(), *own.colours.detach()], factors, message)
        message[-ALIGNED:] = 0 if failed is None else failed
        message[-self.views :] = entries
        return message

    def unpack(
        self,
        found: Tensor,  # [R, ...]
    ) -> Received:
        directions, colours = (found.new_empty(len(found) * self.views, self.n, 3) for _ in range(2))
        for rank, message in enumerate(found):
            own = slice(rank * self.views, (rank + 1) * self.views)
            self._place.unpack(message, [*directions[own], *colours[own]])
        return Received(directions, colours, found[:, -ALIGNED].max(), found[:, -self.views :].flatten())
