# SPDX-License-Identifier: Apache-2.0
"""How much room the lists of a view get before it is known how much they need."""

from collections.abc import Hashable

from nurec_lite.splat.views import CameraView, LidarView

_DIGITS = 4  # binary ones that a size keeps: few sizes, so that the allocator finds memory that was used before


class Rooms:
    """What each view needed when it was last rendered, and some more. A view that was never rendered gets what the largest of its kind
    needed, and some more."""

    def __init__(
        self,
        slack: float,  # how many times what a view needed
    ) -> None:
        self.slack = slack
        self._needed: dict[type, dict[Hashable, int]] = {CameraView: {}, LidarView: {}}  # entries by view

    def of(self, view: CameraView | LidarView) -> int | None:
        """Entries; None: no view of that kind was rendered before."""
        known = self._needed[type(view)]
        if not known:
            return None
        key = key_of(view)
        return rounded_up(int(self.slack * (known[key] if key in known else max(known.values()))))

    def learn(self, key: tuple[type, Hashable], needed: int) -> None:
        self._needed[key[0]][key] = needed


def key_of(view: CameraView | LidarView) -> tuple[type, Hashable]:
    sensor = view.camera.name if isinstance(view, CameraView) else view.lidar.name
    return type(view), (sensor, view.time_start)


def rounded_up(n: int) -> int:
    """To a number of which only the first four binary digits are not 0; at most an eighth more."""
    unit = 1 << max(0, n.bit_length() - _DIGITS)
    return -(-n // unit) * unit
