# SPDX-License-Identifier: Apache-2.0
"""Frames that checks look at. Each is decoded once, however many checks ask for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock
from typing import Generic, TypeVar

from torch import Tensor

from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.geometry.lidar import Sweep

T = TypeVar("T")
IMAGES = 8  # of a camera, before training
SWEEPS = 12  # of a lidar, likewise; pairs of neighbours, see Sample.sweep_pairs


@dataclass(eq=False)
class Sample:
    """A capture and the frames of it that are decoded for its checks."""

    capture: Capture
    images: int | None = IMAGES  # of a camera at most; None: all
    sweeps: int | None = SWEEPS  # of a lidar at most; None: all
    _kept: dict[object, "_Once"] = field(default_factory=dict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def images_of(self, camera: str) -> list[ImageFrame]:
        """Frames of a camera, spread evenly over the drive."""
        return spread([frame for frame in self.capture.images if frame.sensor == camera], self.images)

    def sweep_pairs(self, lidar: str) -> list[tuple[SweepFrame, SweepFrame]]:
        """Pairs of neighbouring sweeps of a lidar, spread evenly over the drive; half as many as sweeps are allowed."""
        frames = [frame for frame in self.capture.sweeps if frame.sensor == lidar]
        pairs = list(pairwise(frames))
        return spread(pairs, None if self.sweeps is None else self.sweeps // 2)

    def image(self, frame: ImageFrame) -> Tensor:  # [H, W, 3] uint8
        return self._once(frame.load)

    def sweep(self, frame: SweepFrame) -> Sweep:
        return self._once(frame.load)

    def _once(self, load: Callable[[], T]) -> T:
        with self._lock:
            kept = self._kept.setdefault(id(load), _Once(load))
        return kept.value()


class _Once(Generic[T]):
    """Calls a function once, also when several threads ask."""

    def __init__(self, load: Callable[[], T]) -> None:
        self._load, self._lock, self._found = load, Lock(), list[T]()

    def value(self) -> T:
        with self._lock:
            if not self._found:
                self._found.append(self._load())
            return self._found[0]


def spread(items: Sequence[T], most: int | None) -> list[T]:
    """At most so many items, evenly spaced, the first and the last among them."""
    if most is None or len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / max(1, most - 1))] for i in range(most)]
