# SPDX-License-Identifier: Apache-2.0
"""What tests of the viewer share: the tiny drive, opened, a screen without a browser, and a worker whose jobs a test runs itself."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from tiny_capture import tiny_capture, tiny_scene
from torch import Tensor

from nurec_lite.cli.reconstruction import Reconstruction
from nurec_lite.config import ViewConfig
from nurec_lite.training.baseline import reference_stages
from nurec_lite.viewer.painter import Painted
from nurec_lite.viewer.worker import Key, Worker


@pytest.fixture
def run() -> Reconstruction:
    config = ViewConfig(checkpoint="none.pt", device="cpu")
    return Reconstruction(
        config, reference_stages(), tiny_scene(), tiny_capture(), torch.device("cpu"), {"step": 7}, []
    )


@dataclass
class Screen:
    """Keeps what a browser would get."""

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
    """Jobs wait until the test runs them, whatever their delay."""

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


@pytest.fixture
def screen() -> Screen:
    return Screen()


@pytest.fixture
def by_hand() -> ByHand:
    return ByHand()


Call = Callable[[], None]
