# SPDX-License-Identifier: Apache-2.0
"""The bundled street with some of its sweeps changed, and findings about them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from tiny_capture import ROOT
from torch import Tensor

from nurec_lite.capture.checks.rays import check_rays
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Capture, SweepFrame
from nurec_lite.geometry.lidar import Sweep

Change = Callable[[Sweep], Sweep]


@dataclass(frozen=True)
class Stored:
    """Loads a sweep as a pack does, changed."""

    load: Callable[[], Sweep]
    change: Change

    def __call__(self) -> Sweep:
        return self.change(self.load())

    def returns(self, every: int = 1) -> tuple[Tensor, Tensor]:
        sweep = self()
        some = sweep.returned.nonzero()[::every, 0]
        return (sweep.directions[some] * sweep.ranges[some, None]).double(), sweep.times[some]


@lru_cache(maxsize=1)
def street() -> Capture:
    return read_pack(ROOT / "data/street.pack")


def with_sweeps(change: Change, *numbers: int) -> Capture:
    def other(frame: SweepFrame) -> SweepFrame:
        return replace(frame, load=Stored(frame.load, change if frame.index in numbers else lambda sweep: sweep))

    return replace(street(), sweeps=tuple(map(other, street().sweeps)))


def doubts(capture: Capture) -> list[Verdict]:
    return [v for v in check_rays(Sample(capture)) if v.level not in (Level.RIGHT, Level.UNKNOWN)]
