# SPDX-License-Identifier: Apache-2.0
"""Runs of consecutive numbers."""

from collections.abc import Iterable
from itertools import groupby


def consecutive(
    numbers: Iterable[int],  # rising
) -> list[list[int]]:
    return [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
