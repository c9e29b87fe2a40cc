# SPDX-License-Identifier: Apache-2.0
"""The radix sort of kernels/common against torch's stable one, over the emulation or on a GPU: no operator hands it out."""

import ctypes
from dataclasses import dataclass, field

import emulation
import pytest
import torch
from block_lists import listed
from parity import DEVICES
from torch import Tensor

from benchmarks.opt.radix_sort import NAME, Allocate, Pairs, Queue
from nurec_lite.native import ops
from nurec_lite.native.operators.visible_blocks import BLOCK

SIZES = (1, 31, 4096, 4097, 40_001)  # a tile has 4096 pairs


@dataclass
class Sorted:
    keys: Tensor  # [n] int32
    values: Tensor  # likewise
    kept: Tensor  # [1]
    held: list[Tensor] = field(default_factory=list)  # memory that the sort asked for

    def allocate(self, _: object, size: int) -> int:
        self.held.append(torch.full((size,), 0x5A, dtype=torch.uint8, device=self.keys.device))
        return self.held[-1].data_ptr()


def library(device: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(emulation.library() if device == "cpu" else ops.library(ops._architecture())))


def sort(
    keys: Tensor,
    bits: int,
    values: Tensor | None = None,
    there: int | None = None,
    choose: bool = False,
    lowest: int = 0,
    blocks: Tensor | None = None,  # as block_lists.listed makes them
) -> Sorted:
    n, device = len(keys), keys.device
    out = Sorted(torch.full_like(keys, -7), torch.full_like(keys, -7), torch.full((1,), -7, device=device))
    number = None if there is None else torch.tensor([there], device=device)
    of = [t.data_ptr() if t is not None else None for t in (keys, values, out.keys, out.values, number)]
    pairs = Pairs(n, *of, out.kept.data_ptr() if choose else None, None, lowest)
    pairs.blocks = None if blocks is None else blocks.data_ptr()
    allocate = Allocate(out.allocate)
    library(device.type)[NAME](ctypes.byref(pairs), bits, ctypes.byref(Queue(None, allocate, None)))
    if device.type == "cuda":
        torch.cuda.synchronize()
    return out


def random(n: int, device: str, low: int = -(2**31), high: int = 2**31) -> Tensor:
    return (
        torch.randint(low, high, (n,), generator=torch.Generator().manual_seed(n), dtype=torch.int64).int().to(device)
    )


def order_of(keys: Tensor, bits: int) -> Tensor:
    """The order of keys as unsigned numbers of so many bits."""
    return torch.argsort(keys.long() & (1 << bits) - 1, stable=True)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cpu" and not emulation.EMULATED:
        pytest.skip("on a CPU over the emulation alone")
    return str(request.param)


@pytest.mark.parametrize("bits", [1, 6, 8, 13, 14, 16, 17, 24, 32])
@pytest.mark.parametrize("n", SIZES)
def test_pairs_are_sorted_by_the_lowest_bits_and_stay_in_order(n: int, bits: int, device: str) -> None:
    keys, values = random(n, device), random(n + 1, device)[:-1]
    order, found = order_of(keys, bits), sort(keys, bits, values)
    assert torch.equal(found.keys, keys[order]) and torch.equal(found.values, values[order])


@pytest.mark.parametrize("bits", [1, 9, 16])
def test_lower_bits_may_come_along(bits: int, device: str) -> None:
    keys = random(9_000, device)
    found, order = sort(keys, bits, keys, lowest=16), order_of(keys.long() >> 16, bits)
    assert torch.equal(found.keys, keys[order]) and torch.equal(found.values, keys[order])


@pytest.mark.parametrize("bits", [13, 32])
def test_few_different_keys(bits: int, device: str) -> None:
    """High digits of distances are so: whole warps have the same."""
    keys = random(9_000, device, 0, 3) << bits - 2
    assert torch.equal(sort(keys, bits, keys).values, keys[order_of(keys, bits)])


def test_values_that_are_not_given_are_numbers(device: str) -> None:
    keys = random(5_000, device, 0, 50)
    assert torch.equal(sort(keys, 6).values.long(), order_of(keys, 6))


@pytest.mark.parametrize("there", [0, 1, 4096, 4999, 5_000, 7_000])
def test_so_many_as_the_device_knows(there: int, device: str) -> None:
    """Memory behind them stays as it was."""
    keys, n = random(5_000, device), min(there, 5_000)
    found, order = sort(keys, 32, there=there), order_of(keys[:n], 32)
    assert torch.equal(found.values[:n].long(), order) and torch.equal(found.keys[:n], keys[order])
    assert bool((found.values[n:] == -7).all() and (found.keys[n:] == -7).all())


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("bits", [8, 16, 24, 32])
def test_unwanted_pairs_are_left_out(bits: int, share: float, device: str) -> None:
    keys = random(9_001, device, 0, 2**31 - 1)
    unwanted = torch.rand(9_001, generator=torch.Generator().manual_seed(1)).to(device) < share
    keys[unwanted] = -1
    found, wanted = sort(keys, bits, choose=True), (~unwanted).nonzero()[:, 0]
    assert int(found.kept) == len(wanted)
    assert torch.equal(found.values[: len(wanted)].long(), wanted[order_of(keys[wanted], bits)])


@pytest.mark.parametrize("pattern", ["none", "first", "last", "every other", "all"])
@pytest.mark.parametrize("n", [1, 256, 4096, 9_001, 40_001])
@pytest.mark.parametrize("bits", [8, 24])
def test_keys_of_hidden_blocks_are_not_read(bits: int, n: int, pattern: str, device: str) -> None:
    """Values are numbers among all keys."""
    keys, blocks = random(n, device, 0, 2**31 - 1), torch.zeros(-(-n // BLOCK), dtype=torch.bool, device=device)
    keys[::3] = -1
    chosen = {"none": slice(0), "first": slice(1), "last": slice(-1, None), "every other": slice(None, None, 2)}
    blocks[chosen.get(pattern, slice(None))] = True
    wanted = (blocks.repeat_interleave(BLOCK)[:n] & (keys != -1)).nonzero()[:, 0]
    found = sort(keys, bits, choose=True, blocks=listed(blocks))
    assert int(found.kept) == len(wanted)
    assert torch.equal(found.values[: len(wanted)].long(), wanted[order_of(keys[wanted], bits)])


def test_none_at_all(device: str) -> None:
    assert int(sort(torch.zeros(0, dtype=torch.int32, device=device), 32, choose=True).kept) == 0
