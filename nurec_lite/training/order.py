# SPDX-License-Identifier: Apache-2.0
"""The order of training frames: each once an epoch, one or several a step. A step's frames follow from (seed, step) alone."""

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import torch


@dataclass(frozen=True, eq=False)
class Order:
    """The order of shots for all steps."""

    frames: tuple[int, ...]  # one or more, to be put in order
    moments: tuple[int, ...]  # of each frame: those of one moment join the same step
    seed: int
    most: int  # frames a step, if there are as many

    def of(self, step: int) -> tuple[int, ...]:
        """The next frame of the epoch's order and the others of its moment, as they stand in `frames`; then the next one, until the step
        is full. If an epoch does not end with a step, several epochs together do."""
        n, size = len(self.frames), self.size
        together = size // gcd(n, size)
        block, place = divmod(step, n * together // size)
        return tuple(self.frames[k] for k in _steps(self, block, together)[place])

    def epoch(self, step: int) -> int | None:
        """The epoch that all frames of a step belong to; None: one ends within the step."""
        first, last = (place // len(self.frames) for place in (step * self.size, (step + 1) * self.size - 1))
        return first if first == last else None

    @property
    def size(self) -> int:
        """Frames a step: no step has one twice."""
        return min(self.most, len(self.frames))


@lru_cache(maxsize=16)
def _steps(order: Order, block: int, epochs: int) -> list[tuple[int, ...]]:
    """All steps of so many epochs, by places in `frames`."""
    found: list[tuple[int, ...]] = []
    step: list[int] = []
    for epoch in range(block * epochs, (block + 1) * epochs):
        shuffled = _shuffled(len(order.frames), order.seed, epoch)
        unseen = set(shuffled)
        # frames that a step under way has from the epoch before come last
        for first in sorted(shuffled, key=step.__contains__):
            if first in unseen:
                group = _group(order, first, unseen, step)
                unseen.difference_update(group)
                step += group
            if len(step) == order.size:
                found.append(tuple(step))
                step = []
    assert not step
    return found


def _group(order: Order, first: int, unseen: set[int], step: list[int]) -> list[int]:
    """Frames that join a step at once: the frame, and others of its moment. The same sensors come together at all moments where possible:
    each new combination costs a recording of `cuda_graph`."""
    same = _by_moment(order)[order.moments[first]]
    part = {k: place // order.size for place, k in enumerate(same)}
    others = [k for k in same if k != first and k in unseen and k not in step]
    others.sort(key=lambda k: part[k] != part[first])
    return sorted([first, *others][: order.size - len(step)])


@lru_cache(maxsize=4)
def _by_moment(order: Order) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for k, moment in enumerate(order.moments):
        found[moment].append(k)
    return found


def _shuffled(n: int, seed: int, epoch: int) -> list[int]:
    return torch.randperm(n, generator=generator(seed, epoch)).tolist()


def generator(seed: int, number: int) -> torch.Generator:
    """Random numbers of a step or of an epoch."""
    return torch.Generator().manual_seed((seed * 1_000_003 + number) % (1 << 62))
