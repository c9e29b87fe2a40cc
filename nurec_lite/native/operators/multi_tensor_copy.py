# SPDX-License-Identifier: Apache-2.0
"""The operator multi_tensor_copy: copies of many tensors in one launch."""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]  # destination, source


def multi_tensor_copy(
    pairs: Iterable[Pair],
    numbers_at: Tensor | None = None,  # [n] float32
    numbers: Sequence[float] = (),  # [n] that are to lie there
) -> None:
    """Copies the bytes of all values in one launch, after `nurec_lite.native.ops.load`. On a GPU a place may be page-locked host memory."""
    places, values = [], []
    for into, value in pairs:
        places.append(into)
        values.append(value.contiguous())
    torch.ops.nurec_lite.multi_tensor_copy(places, values, numbers_at, numbers)


def filled(
    place: Tensor,  # [M, ...]
    values: Tensor,  # [N, ...] of no more rows
    rest: Tensor,  # [at least M - N, ...]
) -> Iterator[Pair]:
    """The values, then the first rows of the rest."""
    n = len(values)
    yield place[:n], values
    yield place[n:], rest[: len(place) - n]
