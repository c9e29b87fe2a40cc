# SPDX-License-Identifier: Apache-2.0
"""Records whose tensors lie in one buffer."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
import torch
from same_shots import assert_same
from tiny_capture import tiny_shots
from torch import Tensor

from nurec_lite.training.staging_buffer import ALIGNED, BufferSlot, StagingBuffer

SIZES = (0, 1, 31, 33)
KINDS = (torch.uint8, torch.bool, torch.float32, torch.int64, torch.float64)


@dataclass(frozen=True)
class Several:
    """The least that has tensors."""

    tensors: tuple[Any, ...]

    def copied(self, copy: Any) -> "Several":
        return Several(tuple(copy(t) for t in self.tensors))


def buffer(size: int) -> Tensor:
    return torch.empty(size, dtype=torch.uint8)


def test_shots_come_out_as_they_went_in() -> None:
    shots = tiny_shots((0, 1), (2,))
    unpack = StagingBuffer.of(shots, buffer).unpack()
    assert_same(unpack, shots)
    assert unpack.sweeps[0].view.directions is unpack.sweeps[0].sweep.directions  # shared before, shared after


@pytest.mark.parametrize("kind", KINDS)
def test_any_size_of_any_kind_with_others(kind: torch.dtype) -> None:
    tensors = [(100 * torch.rand(n, 3)).to(kind) for n in SIZES] + [torch.tensor(7.5).to(kind)]
    unpack = StagingBuffer.of(Several(tuple(tensors)), buffer).unpack()
    for before, after in zip(tensors, unpack.tensors, strict=True):
        assert before.dtype == after.dtype and torch.equal(before, after)


def test_tensors_lie_where_kernels_expect_them_and_do_not_overlap() -> None:
    slots = StagingBuffer.of(Several(tuple(torch.zeros(n) for n in SIZES)), buffer).content.tensors
    assert all(slot.begin % ALIGNED == 0 for slot in slots)
    assert all(a.end <= b.begin for a, b in pairwise(slots))


def test_what_is_opened_shares_the_buffer() -> None:
    parcel = StagingBuffer.of(Several((torch.zeros(5),)), buffer)
    parcel.buffer.fill_(1)
    assert (parcel.unpack().tensors[0].view(torch.uint8) == 1).all()


def test_strides_of_a_tensor_do_not_matter() -> None:
    turned = torch.rand(7, 5).T
    assert torch.equal(StagingBuffer.of(Several((turned,)), buffer).unpack().tensors[0], turned)


def test_empty_arrays_take_no_memory() -> None:
    assert len(StagingBuffer.of(Several(()), buffer).buffer) == 0


def test_what_is_on_a_device_stays_there() -> None:
    elsewhere = torch.zeros(4, device="meta")
    parcel = StagingBuffer.of(Several((elsewhere, torch.ones(3))), buffer)
    assert parcel.content.tensors[0] is elsewhere and isinstance(parcel.content.tensors[1], BufferSlot)
    assert parcel.unpack().tensors[0] is elsewhere
