# SPDX-License-Identifier: Apache-2.0
"""Poses that are a few percent longer or shorter than the motions that sweeps show: each motion is off by too little to be wrong alone."""

import math

from torch import Tensor

from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.motion import Motions
from nurec_lite.capture.checks.motions import more_motions
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.geometry.lidar import Lidar

PART, EACH = 0.007, 0.004  # of the way: the median is off by more, and so are most motions, on its side
MANY = 0.75  # share of these motions, at least
LEAST, WAY = 3, 15.0  # motions, and metres of all of them, that tell it
LONG = 3.0  # metres of a motion that tells anything


def stretched(sample: Sample, lidar: Lidar, motions: Motions, check: str) -> Verdict | None:
    """A finding about poses that seem right otherwise; twice as many motions confirm it."""
    part = _part(motions)
    more = more_motions(sample, lidar) if part is not None else []
    part = _part(Motions(more)) if more else None
    if part is None:
        return None
    side, sizes = ("less", ("large", "small")) if part < 1 else ("more", ("small", "large"))
    sentence = (
        f"By the sweeps {lidar.name} moves {side} than the poses say, by {100 * abs(1 - part):.1f} % or more: translations of the poses "
        f"are too {sizes[0]}, or ranges of {lidar.name} are too {sizes[1]}."
    )
    return Verdict(check, lidar.name, Level.LIKELY, sentence, f"correct the scale {MADE}", {"scale": part})


def _part(motions: Motions) -> float | None:
    """The part of the posed ways that the sweeps show; None: 1, or too little to tell."""
    posed, measured = (T[:, :3, 3] for T in (motions.posed, motions.measured))
    long = posed.norm(dim=1) > LONG
    ways, along = posed[long].square().sum(1), (posed * measured).sum(1)[long]
    if int(long.sum()) < LEAST or float(ways.sqrt().sum()) < WAY:
        return None
    off = along / ways - 1  # some fits stay at the posed motion that they begin with
    median = float(off.quantile(0.5))
    return 1 + median if abs(median) > PART and _one_sided(off, median) else None


def _one_sided(off: Tensor, median: float) -> bool:
    return float((math.copysign(1.0, median) * off > EACH).double().mean()) >= MANY
