# SPDX-License-Identifier: Apache-2.0
"""A choice of some frames that spreads over all of them."""

from collections.abc import Sequence

_GOLDEN = 0.6180339887498949  # its multiples spread over the drive, however many there are


def spread(indices: Sequence[int], most: int) -> list[int]:
    """Returns some of them in such an order that every beginning spreads over all."""
    places = (int(len(indices) * ((0.5 + k * _GOLDEN) % 1)) for k in range(4 * most if indices else 0))
    return [indices[place] for place in dict.fromkeys(places)][:most]
