# SPDX-License-Identifier: Apache-2.0
"""The backward epilogue of a list of visible blocks, on CUDA alone. All Gaussians: test_backward_epilogue.py."""

from typing import Any

import pytest
import torch
from block_lists import any_of_blocks, listed
from operators import check_schema
from parity import DEVICES
from test_backward_epilogue import arguments_of
from torch import Tensor
from warp_tile_scenes import driven

from nurec_lite.native.operators.visible_blocks import BLOCK


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return driven(request.param)


def epilogue_arguments(
    device: torch.device, n: int, moving: int, stored: bool, own: bool, with_pose_delta: bool
) -> tuple[list[Any], Tensor]:
    """Arguments of gaussian_backward without `seen_only`, and [N] bool, false for blocks without any gradient: every
    other one of those that stand still."""
    *args, _ = arguments_of(device, n, stored, own, with_pose_delta, moving)
    there = torch.arange(n, device=device) // BLOCK % 2 == 1
    there[(n - moving) // BLOCK * BLOCK :] |= moving > 0
    seen = there & (torch.arange(n, device=device) % 3 > 0)
    for one in args[3]:
        one.view(torch.uint8)[64 * n : 65 * n] = seen.byte()
    args[7] = [args[7][0].masked_fill(~seen[: n - moving, None], 0), None, *args[7][2:]]
    return args, there


def with_unwritten(args: list[Any], there: Tensor) -> list[Any]:
    """Activations are not written out of the blocks: all but means and opacities may be any number there."""
    scene = list(args[0])
    for k in (1, 2, 5):
        scene[k] = scene[k].masked_fill(~there[:, None], 7)
    return [scene, *args[1:]]


def blocks_from(rows: Tensor) -> Tensor:
    return listed(any_of_blocks(rows))


@pytest.mark.parametrize("with_pose_delta", [False, True])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(("n", "moving"), [(513, 0), (1024, 0), (1100, 300), (1300, 20)])
def test_gradients_of_visible_blocks(
    n: int, moving: int, stored: bool, own: bool, with_pose_delta: bool, device: torch.device
) -> None:
    """They are those of a call that looks for blocks without a gradient itself."""
    args, there = epilogue_arguments(device, n, moving, stored, own, with_pose_delta)
    blocks = blocks_from(there)
    assert 0 < int(blocks[0]) < len(blocks) - 1
    plain = torch.ops.nurec_lite.gaussian_backward(*args, True)
    found = torch.ops.nurec_lite.gaussian_backward(*with_unwritten(args, there), True, blocks)
    still = torch.arange(n, device=device) < n - moving  # others have no means and quaternions
    for k, (a, b) in enumerate(zip(found[0], plain[0], strict=True)):
        rows = there & still if k < 2 else there
        assert a.shape == b.shape and (not len(a) or a[rows].equal(b[rows]))
    assert found[0][3][there].any() and found[0][0][there & still].any()
    assert all(a.equal(b) for a, b in zip(found[1], plain[1], strict=True))
    torch.testing.assert_close(found[2], plain[2], rtol=1e-5, atol=1e-3)  # sums of other rows
    assert bool(found[2].any()) == with_pose_delta


def test_all_blocks_visible_and_none_of_them(device: torch.device) -> None:
    """With all, the call is the plain one, where idle blocks are written, too; with none, poses get zeros."""
    args, there = epilogue_arguments(device, 700, 0, True, True, True)
    plain = torch.ops.nurec_lite.gaussian_backward(*args, True)
    found = torch.ops.nurec_lite.gaussian_backward(*args, True, blocks_from(torch.ones_like(there)))
    assert all(a.equal(b) for a, b in zip(found[0], plain[0], strict=True)) and found[2].equal(plain[2])
    poses = torch.ops.nurec_lite.gaussian_backward(*args, True, blocks_from(torch.zeros_like(there)))[2]
    assert plain[2].any() and not poses.any()


def test_the_epilogue_s_own_checks_with_blocks(device: torch.device) -> None:
    args, there = epilogue_arguments(device, 700, 20, True, True, True)
    check_schema(torch.ops.nurec_lite.gaussian_backward.default, (*args, True, blocks_from(there)))
    for wrong in (torch.ones(5), torch.ones(3)):
        with pytest.raises(ValueError, match="blocks has shape"):
            torch.ops.nurec_lite.gaussian_backward(*args, True, wrong.int().to(device))
