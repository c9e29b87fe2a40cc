# SPDX-License-Identifier: Apache-2.0
"""Messages with the two factors of the harmonics' gradient, of all Gaussians or of those in visible blocks. Their last numbers say whether
the step failed, and how many entries the lists of each image need.

Letters: N Gaussians, V views of a rank, R ranks.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nurec_lite.native.operators.multi_tensor_copy import multi_tensor_copy
from nurec_lite.native.operators.view_colour import view_directions
from nurec_lite.native.rank1_sh import Rank1ShGrad
from nurec_lite.training.block_messages import ALIGNED, BlockRows, aligned, flagged


@dataclass(frozen=True)
class Received:
    """Content of the messages of all ranks."""

    directions: Tensor  # [R V, N, 3]
    colours: Tensor  # [R V, N, 3]
    failed: Tensor  # [] whether the step of any rank failed
    entries: Tensor  # [R V] int64 of lists


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
        return Received(directions, colours, rows[:, 6 * n].max(), rows[:, -1].long())


@dataclass(frozen=True)
class BlockFactors:
    """Factors of the Gaussians in listed blocks. Those of others are not written. The direction of a static Gaussian follows from the eye
    and its mean, so a message has the eyes, and the directions of the last Gaussians alone. On CUDA alone."""

    means: Tensor  # [N, 3] of the store
    views: int  # V
    blocks: Tensor  # [1 + blocks] int32 as by visible_blocks
    capacity: int  # of a message, in blocks
    moving: int  # the last Gaussians: those before them are static

    @property
    def _place(self) -> BlockRows:
        return BlockRows([(len(self.means), 3)] * self.views, self.blocks, self.capacity)

    @property
    def _lengths(self) -> list[int]:
        """Numbers of colours and directions, and of the end: whether the step failed, the eyes, and the entries."""
        return [self._place.numbers, aligned(3 * self.views * self.moving), ALIGNED]

    def pack(
        self,
        own: Rank1ShGrad,
        share: float,
        failed: Tensor | None,  # []
        entries: Tensor,  # [V] int64 of lists, 5 V < ALIGNED
    ) -> Tensor:
        """The message, in one row."""
        assert own.eyes is not None
        message = own.colours.new_empty(sum(self._lengths))
        colours, directions, end = message.split(self._lengths)
        self._place.pack([*own.colours.detach()], [share] * self.views, colours)
        moving = zip(self._moving(directions), own.directions, strict=True)
        pairs = [(place, each[self._still :]) for place, each in moving]
        ends = flagged(end, failed), (end[1 : 1 + 3 * self.views], own.eyes), (end[-2 * self.views :], entries)
        multi_tensor_copy([*pairs, *ends])
        return message

    def unpack(
        self,
        found: Tensor,  # [R, ...]
    ) -> Received:
        views = len(found) * self.views
        directions, colours = (found.new_empty(views, len(self.means), 3) for _ in range(2))
        sent, moving, end = found.split(self._lengths, 1)
        self._place.unpack([*sent], [*colours])
        directions[:, self._still :] = self._moving(moving).flatten(0, 1)
        eyes = end[:, 1 : 1 + 3 * self.views].reshape(views, 3).contiguous()
        view_directions(self.means, eyes, self.blocks, self._still, directions)
        entries = end[:, -2 * self.views :].contiguous().view(torch.int64)  # their bytes
        return Received(directions, colours, end[:, 0].max(), entries.flatten())

    def _moving(
        self,
        directions: Tensor,  # [..., numbers] of a message
    ) -> Tensor:  # [..., V, moving, 3]
        return directions[..., : 3 * self.views * self.moving].unflatten(-1, (self.views, self.moving, 3))

    @property
    def _still(self) -> int:
        return len(self.means) - self.moving
