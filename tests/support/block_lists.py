# SPDX-License-Identifier: Apache-2.0
"""Lists of visible blocks, as visible_blocks makes them and others take them."""

import torch
from torch import Tensor

from nurec_lite.native.operators.visible_blocks import BLOCK


def listed(flags: Tensor) -> Tensor:  # [1 + blocks] int32 from [blocks]
    """The rest of a list may be any number; here it is one that is no block."""
    numbers = flags.nonzero().flatten().int()
    rest = numbers.new_full((len(flags) - len(numbers),), -7)
    return torch.cat([numbers.new_tensor([len(numbers)]), numbers, rest])


def flags_of(found: Tensor) -> Tensor:  # [blocks] bool
    """Checks that numbers ascend and fit, too."""
    assert found.dtype == torch.int32
    n, numbers = int(found[0]), found[1:].tolist()
    assert 0 <= n <= len(numbers) and numbers[:n] == sorted(set(numbers[:n]))
    flags = torch.zeros(len(numbers), dtype=torch.bool, device=found.device)
    flags[numbers[:n]] = True
    return flags


def any_of_blocks(rows: Tensor) -> Tensor:
    """[blocks] bool from [N] bool."""
    return torch.stack([part.any() for part in rows.split(BLOCK)])
