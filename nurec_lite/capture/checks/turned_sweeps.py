# SPDX-License-Identifier: Apache-2.0
"""Single sweeps that are turned about the lidar's axis against those before and after."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from nurec_lite.capture.checks.glimpses import SECTORS, glimpse, glimpse_runs
from nurec_lite.capture.checks.misplaced import REMEDY
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.types import SweepFrame

FEWEST = 9  # sweeps in a row that tell anything
MOST = 12  # sectors to each side that are tried
LEAST = 4  # sectors of the turn to the sweep and of the one back, together
BACK = 1  # sectors between these two


def turned_sweeps(sample: Sample, frames: Sequence[SweepFrame], check: str) -> Iterator[Verdict]:
    for run in glimpse_runs(sample, frames):
        copies = [copy for frame in run if (copy := glimpse(sample, frame)) is not None]
        k = _turned(copies) if len(copies) == len(run) >= FEWEST else None
        if k is not None:
            frame, shift = run[k[0]], 360 / SECTORS * k[1]
            sentence = f"Sweep {frame.index} of {frame.sensor} is turned by about {shift:.0f}° against those before and after it."
            yield Verdict(check, frame.sensor, Level.LIKELY, sentence, REMEDY, {"degrees": shift})


def _turned(copies: Sequence[Tensor]) -> tuple[int, float] | None:
    """The place of a sweep and its turn in sectors, if it alone is turned."""
    steps = [_step(a, b) for a, b in pairwise(copies)]
    odd = [k for k, step in enumerate(steps) if abs(step) > 1]
    if len(odd) != 2 or odd[1] != odd[0] + 1:
        return None
    there, back = steps[odd[0]], steps[odd[1]]
    turn = abs(there) + abs(back)
    return (odd[1], turn / 2) if turn >= LEAST and abs(there + back) <= BACK else None


def _step(a: Tensor, b: Tensor) -> int:
    """The turn in sectors that makes two copies most alike."""
    apart = torch.stack([(a - b.roll(k)).abs().mean() for k in range(-MOST, MOST + 1)])
    return int(apart.argmin()) - MOST
