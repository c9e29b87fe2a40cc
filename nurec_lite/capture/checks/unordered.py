# SPDX-License-Identifier: Apache-2.0
"""Frames of a sensor that stand in no order: other frames are more alike than those before and after."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nurec_lite.capture.checks.glimpses import Shown, glimpse
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict

DOUBTFUL = 0.85  # of the difference of any two frames: neighbours are so different that more frames are looked at
MOST, FEWEST = 60, 16  # frames of such a look, in a row
MOVED = 0.2  # metres from most frames to the next
APART = 1.3, 1.6  # times as different from the more similar neighbour as from the most similar frame: likely, certain
BESIDE = 0.35  # of the frames whose most similar frame is a neighbour, at most
MIXED = "unordered"  # figure of these verdicts alone
REMEDY = "restore the order of their files"


def unordered(
    sample: Sample, frames: Sequence[Shown], copies: Sequence[Tensor], check: str, what: str
) -> list[Verdict]:
    """Returns at most one verdict; `copies`: those of each run of neighbours."""
    if not any(_doubtful(run) for run in copies):
        return []
    some = frames[:MOST]
    seen = [(frame, copy) for frame in some if (copy := glimpse(sample, frame)) is not None]
    if len(seen) < FEWEST:
        return []
    ratio, beside = _order(torch.stack([copy for _, copy in seen]))
    places = torch.stack([frame.T_world_rig_start[:3, 3] for frame, _ in seen])
    if ratio < APART[0] or beside > BESIDE or float(places.diff(dim=0).norm(dim=1).median()) < MOVED:
        return []
    name = frames[0].sensor
    sentence = f"{what.capitalize()} of {name} stand in no order: neighbours are {ratio:.1f} times as different as the most similar ones."
    return [Verdict(check, name, Level.CERTAIN if ratio > APART[1] else Level.LIKELY, sentence, REMEDY, {MIXED: ratio})]


def _doubtful(copies: Tensor) -> bool:  # [n, m]
    apart = torch.cdist(copies.double(), copies.double(), p=1.0)
    several = apart[apart > 0]
    return len(several) > 0 and float(apart.diagonal(1).median()) > DOUBTFUL * float(several.median())


def _order(copies: Tensor) -> tuple[float, float]:
    """Medians of the difference from the more similar neighbour and from the most similar frame, as a ratio, and the share of frames that
    have it as a neighbour."""
    n = len(copies)
    apart = torch.cdist(copies.double(), copies.double(), p=1.0).fill_diagonal_(torch.inf)
    one = torch.nn.functional.pad(apart.diagonal(1), (1, 1), value=torch.inf)
    least, place = apart.min(1)
    beside = float(((place - torch.arange(n)).abs() == 1).double().mean())
    return float(torch.minimum(one[:-1], one[1:]).median() / least.median().clamp(min=1e-12)), beside
