# SPDX-License-Identifier: Apache-2.0
"""Copies of the rows of visible blocks (kernels/update/block_copy.cu), and lists of blocks that several ranks see, on CUDA alone."""

import pytest
import torch
from block_lists import flags_of, listed
from operators import check_schema
from parity import DEVICES
from torch import Tensor
from warp_tile_scenes import driven

from nurec_lite.native.operators.visible_blocks import BLOCK, drop_unseen, pack_blocks, unpack_blocks

SHAPES = ((3,), (4,), (), (1, 3), (15, 3))  # of a row


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return driven(request.param)


def rows_of(n: int, device: torch.device, seed: int) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(n, *shape, generator=random).to(device) for shape in SHAPES]


def places(capacity: int, device: torch.device) -> list[Tensor]:
    return [torch.full((capacity, BLOCK * shape.numel()), -5.0, device=device) for shape in map(torch.Size, SHAPES)]


def some_blocks(n: int, device: torch.device) -> Tensor:
    """[blocks] bool: the last block, and every other one."""
    blocks = -(-n // BLOCK)
    return (torch.arange(blocks, device=device) % 2 == (blocks - 1) % 2).bool()


@pytest.mark.parametrize("capacity", [1, 3, 9])
@pytest.mark.parametrize("n", [1, 255, 256, 257, 9 * BLOCK + 7])
def test_rows_of_listed_blocks_come_back_times_their_factors(n: int, capacity: int, device: torch.device) -> None:
    rows, flags, packed = rows_of(n, device, 1), some_blocks(n, device), places(capacity, device)
    numbers = flags.nonzero().flatten().tolist()[:capacity]
    factors = [0.5, 1.0, 3.0, -1.0, 0.25]
    pack_blocks(rows, listed(flags), factors, packed)
    for tensor, factor, found in zip(rows, factors, packed, strict=True):
        for place, number in enumerate(numbers):
            own = (factor * tensor[number * BLOCK : (number + 1) * BLOCK]).flatten()
            assert found[place, : len(own)].equal(own) and (found[place, len(own) :] == -5).all()
        assert (found[len(numbers) :] == -5).all()
    into = rows_of(n, device, 2)
    before = [t.clone() for t in into]
    unpack_blocks(packed, listed(flags), into)
    copied = torch.zeros(-(-n // BLOCK), dtype=torch.bool, device=device)
    copied[numbers] = True
    by_row = copied.repeat_interleave(BLOCK)[:n]
    for tensor, factor, old, found in zip(rows, factors, before, into, strict=True):
        wanted = torch.where(by_row.view(-1, *[1] * (old.dim() - 1)), factor * tensor, old)
        assert found.equal(wanted)


def test_wrong_arguments_are_refused(device: torch.device) -> None:
    rows, packed, blocks = rows_of(300, device, 1), places(2, device), listed(some_blocks(300, device))
    ones = [1.0] * len(rows)
    with pytest.raises(ValueError, match="packed has 1 tensors"):
        pack_blocks(rows, blocks, ones, packed[:1])
    with pytest.raises(ValueError, match="factors has 1 numbers"):
        pack_blocks(rows, blocks, [1.0], packed)
    with pytest.raises(ValueError, match="packed"):
        pack_blocks(rows, blocks, ones, packed[::-1])
    with pytest.raises(ValueError, match="300 rows each"):
        unpack_blocks(packed, blocks, [*rows[:-1], rows[-1][:299]])
    with pytest.raises(ValueError, match="blocks"):
        unpack_blocks(packed, blocks[:-1], rows)


def test_the_schemas(device: torch.device) -> None:
    rows, packed, blocks = rows_of(300, device, 1), places(2, device), listed(some_blocks(300, device))
    flags, spheres = torch.ones(16, dtype=torch.uint8, device=device), torch.ones(5, 4, device=device)
    ops = torch.ops.nurec_lite
    check_schema(ops.pack_blocks, (rows, blocks, [1.0] * len(rows), packed))
    check_schema(ops.unpack_blocks, (packed, blocks, rows))
    check_schema(ops.list_visible_blocks, (flags, spheres))


@pytest.mark.parametrize("n", [1, 16, 17, 40_000])
def test_blocks_that_any_rank_sees_lose_their_spheres(n: int, device: torch.device) -> None:
    flags = torch.rand(n, generator=torch.Generator().manual_seed(n)).to(device) < 0.4
    visible = torch.full((-(-n // 16) * 16,), 255, dtype=torch.uint8, device=device)
    visible[:n] = flags.byte()
    spheres = torch.ones(n, 4, device=device)
    found = torch.ops.nurec_lite.list_visible_blocks(visible, spheres)
    assert flags_of(found).equal(flags)
    assert (spheres[:, 3] < 0).equal(flags) and (spheres[:, :3] == 1).all()


@pytest.mark.parametrize("n", [1, 256, 257, 9 * BLOCK + 7])
def test_gradients_of_unseen_gaussians_are_dropped_in_listed_blocks(n: int, device: torch.device) -> None:
    """A mean with any gradient is seen, also with one that is not finite."""
    d_means, flags = rows_of(n, device, 3)[0], some_blocks(n, device)
    d_means[::3] = 0
    d_means[1::5, :2] = 0
    d_means[2::7, 1] = torch.nan
    gradients = rows_of(n, device, 4)[:4]
    kept = (d_means != 0).any(-1) | ~flags.repeat_interleave(BLOCK)[:n]
    wanted = [torch.where(kept.view(-1, *[1] * (t.dim() - 1)), t, 0.0) for t in gradients]
    drop_unseen(d_means, listed(flags), gradients)
    assert all(found.equal(own) for found, own in zip(gradients, wanted, strict=True))


def test_gradients_that_do_not_fit_are_refused(device: torch.device) -> None:
    d_means, blocks = torch.zeros(7, 3, device=device), listed(torch.tensor([True], device=device))
    check_schema(torch.ops.nurec_lite.drop_unseen.default, (d_means, blocks, [torch.rand(7, device=device)]))
    for gradients, words in (([], "number of gradients"), ([torch.zeros(6, 3, device=device)], "with 7 rows")):
        with pytest.raises(ValueError, match=words):
            drop_unseen(d_means, blocks, gradients)
