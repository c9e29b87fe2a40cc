# SPDX-License-Identifier: Apache-2.0
"""A choice of some items that spreads over all of them."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def spread(
    items: Sequence[T],
    most: int | None,  # None: all
) -> list[T]:
    """A number of items at most, evenly spaced, the first and the last among them."""
    if most is None or len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / max(1, most - 1))] for i in range(most)]
