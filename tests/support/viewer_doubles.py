# SPDX-License-Identifier: Apache-2.0
"""A screen without a browser, and a worker whose jobs a test runs itself."""

from dataclasses import dataclass, field

from torch import Tensor

from nurec_lite.viewer.painter import Painted
from nurec_lite.viewer.worker import Key, Worker


@dataclass
class Screen:
    """Keeps the messages that a browser would get."""

    shown: list[Painted] = field(default_factory=list)
    looks: list[Tensor] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def show(self, painted: Painted, quality: int) -> None:
        self.shown.append(painted)

    def look(self, T_world_cam: Tensor, fov: float) -> None:
        self.looks.append(T_world_cam)

    def at(self, time: float) -> None:
        self.times.append(time)


class ByHand(Worker):
    """Jobs wait until the test runs them, with any delay."""

    def __init__(self) -> None:
        super().__init__(lambda: None, 1e9)

    def step(self) -> Key:
        """Runs the job that is due first; returns its key."""
        key = min(self._jobs, key=lambda key: self._jobs[key].due)
        self._jobs.pop(key).work()
        return key

    def all(self, most: int = 20) -> None:
        while self._jobs and (most := most - 1):
            self.step()
