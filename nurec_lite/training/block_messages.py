# SPDX-License-Identifier: Apache-2.0
"""Messages between ranks that hold rows of visible blocks alone, in one array for one step. On CUDA alone.

Letters: N Gaussians; a block has nurec_lite.native.operators.visible_blocks.BLOCK of them.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from nurec_lite.native.operators.multi_tensor_copy import multi_tensor_copy
from nurec_lite.native.operators.visible_blocks import BLOCK, pack_blocks, unpack_blocks

ALIGNED = 64  # numbers: each part of a message begins at such a place, so that kernels read it in vectors


def aligned(numbers: int) -> int:
    return -(-numbers // ALIGNED) * ALIGNED


class BlockRows:
    """The place of rows of some tensors in a message: of each the rows of all blocks, one tensor after another."""

    def __init__(
        self,
        shapes: Sequence[tuple[int, ...]],  # of the tensors, [N, ...] each
        blocks: Tensor,  # [1 + blocks] int32 as by visible_blocks
        capacity: int,  # of a message, in blocks
    ) -> None:
        self._blocks, self._capacity = blocks, capacity
        self._widths = [BLOCK * prod(shape[1:]) for shape in shapes]
        self.numbers = capacity * sum(self._widths)

    def pack(
        self,
        rows: Sequence[Tensor],
        factors: Sequence[float],  # of each
        message: Tensor,  # [at least self.numbers]
    ) -> None:
        pack_blocks(rows, self._blocks, factors, self._parts(message))

    def unpack(
        self,
        messages: Sequence[Tensor],
        rows: Sequence[Tensor],  # of the first message, then of the next
    ) -> None:
        unpack_blocks([part for message in messages for part in self._parts(message)], self._blocks, rows)

    def _parts(self, message: Tensor) -> list[Tensor]:  # [capacity, width] each
        parts = message[: self.numbers].split([self._capacity * width for width in self._widths])
        return [part.view(self._capacity, width) for part, width in zip(parts, self._widths, strict=True)]


class BlockMessage:
    """The gradients of a step: those of Gaussians by blocks, and others whole. Parameters without a gradient have none on any rank, since
    all have views of the same kinds."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        of_gaussians: Sequence[Tensor],  # those of the parameters with a row a Gaussian
        blocks: Tensor,  # [1 + blocks] int32 as by visible_blocks
        capacity: int,
    ) -> None:
        by_rows = {id(p) for p in of_gaussians}
        taught = [p for p in parameters if p.grad is not None]
        rows = [p for p in taught if id(p) in by_rows]
        self._gradients = [_contiguous_grad(p) for p in rows]
        self._others = [p for p in taught if id(p) not in by_rows]
        self._place = BlockRows([tuple(p.shape) for p in rows], blocks, capacity)
        numbers = [aligned(self._place.numbers), *(aligned(p.numel()) for p in self._others), ALIGNED]
        self.sent = parameters[0].new_empty(sum(numbers), requires_grad=False)
        self._parts, self._rest = self.sent.split(numbers), self.sent[numbers[0] :]  # rest: all but rows of Gaussians
        self._work: Any = None  # under way

    def send(
        self,
        share: float,  # factor of the gradients
        failed: Tensor | None,  # []
    ) -> None:
        if self._gradients:
            self._place.pack(self._gradients, [share] * len(self._gradients), self._parts[0])
        whole = [p.grad.detach() for p in self._others if p.grad is not None]
        pairs = [(part[: each.numel()], each) for part, each in zip(self._parts[1:-1], whole, strict=True)]
        multi_tensor_copy([*pairs, flagged(self._parts[-1], failed)])
        self._rest *= share  # the flag, too, which is 0 or more
        self._work = torch.distributed.all_reduce(self.sent, async_op=True)

    def receive(self, failed: Tensor | None) -> Tensor | None:
        """Gives every parameter the sum of its gradients. Returns the flag of a failed step, of any rank: not 0 then."""
        self._work.wait()
        if self._gradients:
            self._place.unpack([self._parts[0]], self._gradients)
        for p, part in zip(self._others, self._parts[1:-1], strict=True):
            p.grad = part[: p.numel()].view(p.shape)
        return None if failed is None else self._parts[-1][0].clone()


def flagged(
    end: Tensor,  # [ALIGNED] of a message
    failed: Tensor | None,  # []
) -> tuple[Tensor, Tensor]:
    """Place and value of the flag of a failed step, the first number of a message's end; 0 where steps have none."""
    return end[0], end.new_zeros(()) if failed is None else failed


def _contiguous_grad(parameter: Tensor) -> Tensor:
    """The gradient, which is made contiguous in its place."""
    assert parameter.grad is not None
    parameter.grad = parameter.grad.contiguous()
    return parameter.grad
