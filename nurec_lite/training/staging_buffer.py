# SPDX-License-Identifier: Apache-2.0
"""A staging buffer for all tensors of a record: one copy brings it to the device."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ALIGNED = 256  # bytes, as torch's allocator aligns tensors of their own on a GPU


@dataclass(frozen=True)
class BufferSlot:
    """The place of a tensor in a buffer."""

    begin: int  # bytes
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def end(self) -> int:
        return self.begin + math.prod(self.shape) * self.dtype.itemsize

    def of(
        self,
        buffer: Tensor,  # [n] uint8
    ) -> Tensor:  # it shares the buffer's memory
        return buffer[self.begin : self.end].view(self.dtype).view(self.shape)


@dataclass(frozen=True)
class StagingBuffer:
    """A record with slots in place of its tensors, and the tensors."""

    content: Any  # has `copied`, as nurec_lite.training.shots.Shots
    buffer: Tensor  # [n] uint8

    @staticmethod
    def of(
        content: Any,
        allocate: Callable[[int], Tensor],  # bytes -> [bytes] uint8
    ) -> "StagingBuffer":
        """Packs tensors that lie on the host; others stay where they are."""
        slots: list[tuple[BufferSlot, Tensor]] = []

        def slot(tensor: Tensor) -> BufferSlot | Tensor:
            if tensor.device.type != "cpu":
                return tensor
            begin = -(-slots[-1][0].end // ALIGNED) * ALIGNED if slots else 0
            slots.append((BufferSlot(begin, tuple(tensor.shape), tensor.dtype), tensor))
            return slots[-1][0]

        slotted = content.copied(slot)
        buffer = allocate(slots[-1][0].end if slots else 0)
        for own, tensor in slots:
            own.of(buffer).copy_(tensor)
        return StagingBuffer(slotted, buffer)

    def unpack(self) -> Any:
        """The record with its tensors, which lie in the buffer."""
        return self.content.copied(lambda held: held.of(self.buffer) if isinstance(held, BufferSlot) else held)
