# SPDX-License-Identifier: Apache-2.0
"""Sweeps whose ranges have another scale than those before: all around the lidar, distances change at once by the same factor."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.glimpses import Shown, glimpse, glimpse_runs
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.types import SweepFrame
from nurec_lite.capture.without import leave_out

FEWEST = 5  # sweeps that tell anything
LEAST, USUAL = 0.05, 8.0  # change of the logarithm, and times the usual change: surroundings change by less
BACK = 0.2  # of the change that is left where the next sweep takes it back
RARE = 0.1  # of the steps: if more change so much, surroundings do
ALIKE = 0.6  # of the sectors that change by the median, within a half of it, at least
SEEN = 0.5  # of the sectors that hold points in both sweeps, at least


def rescaled(sample: Sample, frames: Sequence[SweepFrame], check: str) -> Iterator[Verdict]:
    for run in glimpse_runs(sample, frames):
        copies = [glimpse(sample, frame) for frame in run]
        if len(run) >= FEWEST and all(copy is not None for copy in copies):
            yield from _of_run(run, torch.stack([copy for copy in copies if copy is not None]), check)


def _of_run(
    run: Sequence[Shown],
    copies: Tensor,  # [n, sectors]
    check: str,
) -> Iterator[Verdict]:
    steps = [_change(a, b) for a, b in pairwise(copies)]
    changes = [change for change, _ in steps]
    bar = max(LEAST, USUAL * float(torch.tensor(changes).abs().median()))
    odd = [k for k, (change, part) in enumerate(steps) if abs(change) > bar and part > ALIKE]
    if not odd or len(odd) > 2 * max(1, round(RARE * len(changes))):
        return
    k = odd[0]
    back = k + 1 < len(changes) and abs(changes[k] + changes[k + 1]) < BACK * abs(changes[k])
    sensor, index, factor = (
        run[k + 1].sensor,
        run[k + 1].index,
        math.exp(0.5 * (changes[k] - changes[k + 1]) if back else changes[k]),
    )
    times = f"{factor:.2f}" if factor < 10 else f"{factor:.0f}"
    if back:
        sentence = (
            f"Ranges of sweep {index} of {sensor} are {times} times as long as those of the sweeps before and after it."
        )
    else:
        sentence = f"From sweep {index} on, ranges of {sensor} are {times} times as long as before."
    others = leave_out(sensor, [index]) if back else "choose frames without them by data.frames"
    remedy = f"correct their scale {MADE}, or {others}"
    yield Verdict(check, sensor, Level.LIKELY, sentence, remedy, {"scale": factor})


def _change(a: Tensor, b: Tensor) -> tuple[float, float]:
    """Median over sectors of the change of the logarithm of distances, 0 if few hold points, and the share of those that change alike."""
    both = (a > 0) & (b > 0)
    if float(both.double().mean()) <= SEEN:
        return 0.0, 0.0
    changes = (b - a)[both]
    median = float(changes.median())
    alike = (changes - median).abs() < 0.5 * max(abs(median), LEAST)
    return median, float(alike.double().mean())
