# SPDX-License-Identifier: Apache-2.0
"""Capacity of a view's lists before their length is known.

Only entries are sorted and read, so unused capacity costs memory alone; a new size costs more where work is recorded for each.
"""

from collections import deque
from typing import Protocol

RECENT_LISTS = 256  # remembered lengths of lists, for a kind of views
SHRINK_FROM = 2  # a capacity is too large at this multiple of the present need
_DIGITS = 4  # binary ones that a size keeps: few sizes, so that the allocator finds memory that was used before


class Listed(Protocol):
    """A view with its lists, or a message as long as a step needs it."""

    @property
    def kind(self) -> str: ...


class CapacityTracker:
    """Capacity of the lists of a kind of views: the need of the longest recent list, times a slack. All views of the
    kind share it, so that recorded work of one view can be replayed for another. It changes when the longest list comes
    near to it, or falls far below."""

    def __init__(
        self,
        slack: float,  # multiple of the need of the longest list
    ) -> None:
        self.slack, self._near = slack, 1 + (slack - 1) / 4
        self._needed: dict[str, deque[int]] = {}  # entries by View.kind
        self._capacities: dict[str, int] = {}  # entries by View.kind

    def of(self, view: Listed) -> int | None:
        """Returns the capacity in entries; None: no view of its kind was rendered before."""
        return self._capacities.get(view.kind)

    def learn(self, kind: str, needed: int) -> None:
        recent = self._needed.setdefault(kind, deque(maxlen=RECENT_LISTS))
        recent.append(needed)
        most, known = max(recent), self._capacities.get(kind)
        anew = rounded_up(int(self.slack * most))
        if known is None or known < self._near * most or known > SHRINK_FROM * anew:
            self._capacities[kind] = anew

    def expect(
        self,
        more: float,  # multiple of the Gaussians until now
    ) -> None:
        """Enlarges capacities for as many times longer lists. Otherwise the first lists would overflow."""
        for kind, needed in self._needed.items():
            enlarged = rounded_up(int(self.slack * more * max(needed)))
            self._capacities[kind] = max(self._capacities[kind], enlarged)


def rounded_up(n: int) -> int:
    """Rounds up to a number with only four binary digits before zeros; at most an eighth more."""
    unit = 1 << max(0, n.bit_length() - _DIGITS)
    return -(-n // unit) * unit
