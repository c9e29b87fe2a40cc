# SPDX-License-Identifier: Apache-2.0
"""How much room the lists of a view get before it is known how much they need."""

from collections import deque

from nurec_lite.splat.views import CameraView, LidarView

RECENT = 256  # lists of a kind of views whose lengths are remembered
_DIGITS = 4  # binary ones that a size keeps: few sizes, so that the allocator finds memory that was used before


class Rooms:
    """What the longest recent list of a kind of views needed, and some more: one size for all of them, so that work which was recorded for
    one view can be replayed for another."""

    def __init__(
        self,
        slack: float,  # how many times what the longest list needed
    ) -> None:
        self.slack = slack
        self._needed: dict[str, deque[int]] = {}  # entries by View.kind

    def of(self, view: CameraView | LidarView) -> int | None:
        """Entries; None: no view of its kind was rendered before."""
        known = self._needed.get(view.kind)
        return None if known is None else rounded_up(int(self.slack * max(known)))

    def learn(self, kind: str, needed: int) -> None:
        self._needed.setdefault(kind, deque(maxlen=RECENT)).append(needed)


def rounded_up(n: int) -> int:
    """To a number of which only the first four binary digits are not 0; at most an eighth more."""
    unit = 1 << max(0, n.bit_length() - _DIGITS)
    return -(-n // unit) * unit
