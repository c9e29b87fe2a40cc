# SPDX-License-Identifier: Apache-2.0
"""Copies of many tensors in one launch."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]  # where to, and what


def copy_all(
    pairs: Iterable[Pair],
    numbers_at: Tensor | None = None,  # [n] float32
    numbers: Sequence[float] = (),  # [n] that are to lie there
) -> None:
    """As bytes, in one launch; `nurec_lite.native.ops.load` comes before. On a GPU a place may be page-locked memory of the host."""
    places, values = [], []
    for into, value in pairs:
        places.append(into)
        values.append(value.contiguous())
    torch.ops.nurec_lite.copy_all(places, values, numbers_at, numbers)
