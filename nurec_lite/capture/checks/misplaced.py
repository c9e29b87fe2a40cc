# SPDX-License-Identifier: Apache-2.0
"""Frames that stand in another place than in time: neighbours are alike, and those two frames apart less so."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from nurec_lite.capture.checks.glimpses import Shown, glimpse, glimpse_runs
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.unordered import unordered
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.without import leave_out

FEWEST = 5  # neighbouring frames that tell anything
MOVED = 0.2  # metres from a frame to the next that change the view
ORDERED = 1.25  # times as different as neighbours are frames that are two apart, in the median, where order shows
AROUND = 8  # frames before and after that show whether order shows: at a corner the view changes too much
EXCHANGED = 0.85  # times as different as neighbours are those two apart at most, around two frames that are exchanged
STRANGE = 1.2  # times as different as the frames around it are from each other is a strange frame from both, at least
CUT = 2.5  # times as different as the neighbours before and after are two frames with a cut between them, at least
UNUSUAL = 2.0  # times as different as most neighbours, at least
GAP = 1.5  # usual steps in time: across a longer one frames may differ
SAME = 1e-6  # sum of the differences of two copies of one frame
LISTED = 3  # numbers in a sentence
EXCHANGE = "{} seem to be exchanged: each is less like its neighbours than the other is."
OTHER = "The frames before and after show another view than {}."
SUDDEN = "Between {} the view changes at once."
REMEDY = "restore their order or their files, or choose frames without them by data.frames"


@dataclass(frozen=True)
class Places:
    """Places in a run of frames that are wrong."""

    exchanged: list[int]  # k: with frame k + 1
    strange: list[int]
    cuts: list[int]  # k: between frame k and frame k + 1


def misplaced(sample: Sample, frames: Sequence[Shown], check: str, what: str) -> Iterator[Verdict]:
    """Verdicts about frames of one sensor; `what`: images or sweeps."""
    found: dict[str, list[str]] = {sentence: [] for sentence in (EXCHANGE, OTHER, SUDDEN)}
    runs = list(_known_runs(sample, frames))
    if mixed := unordered(sample, frames, [copies for _, copies in runs], check, what):
        yield from mixed
        return
    if again := [(run[k].index, run[j].index) for run, copies in runs for k, j in _repeated(run, copies)]:
        yield _repeats(again, frames[0].sensor, check, what)
        return
    strange: list[int] = []
    for run, copies in runs:
        places = wrong_places(copies, *_moves(run))
        found[EXCHANGE] += [f"{run[k].index} and {run[k + 1].index}" for k in places.exchanged]
        strange += [run[k].index for k in places.strange]
        found[SUDDEN] += [f"{run[k].index} and {run[k + 1].index}" for k in places.cuts]
    found[OTHER] = [str(index) for index in strange]
    for sentence, numbers in found.items():
        if numbers:
            more = f" ({len(numbers) - LISTED} more)" if len(numbers) > LISTED else ""
            name = what if len(numbers) > 1 or sentence != OTHER else what.removesuffix("s")
            said = sentence.format(f"{name} {', '.join(numbers[:LISTED])}{more} of {frames[0].sensor}")
            figures = {"frames": float(len(numbers))}
            remedy = f"restore their files, or {leave_out(frames[0].sensor, strange)}" if sentence == OTHER else REMEDY
            yield Verdict(check, frames[0].sensor, Level.LIKELY, said[0].upper() + said[1:], remedy, figures)


def _repeats(again: Sequence[tuple[int, int]], sensor: str, check: str, what: str) -> Verdict:
    name = what if len(again) > 1 else what.removesuffix("s")
    more = f" ({len(again) - LISTED} more)" if len(again) > LISTED else ""
    copied, firsts = (", ".join(map(str, numbers[:LISTED])) for numbers in zip(*again, strict=True))
    sentence = (
        f"The content of {name} {copied}{more} of {sensor} is that of {name} {firsts}, although the vehicle moves."
    )
    return Verdict(check, sensor, Level.LIKELY, sentence, REMEDY, {"frames": float(len(again))})


def _repeated(run: Sequence[Shown], copies: Tensor) -> Iterator[tuple[int, int]]:
    """Places of frames with the copy of another one that is no neighbour: first the frame that is less like its neighbours."""
    apart = torch.cdist(copies.double(), copies.double(), p=1.0)
    places = torch.stack([frame.T_world_rig_start[:3, 3].double() for frame in run])
    same = (apart < SAME) & (torch.cdist(places, places) > MOVED)
    beside = apart.diagonal(1)
    frozen = torch.cat([beside[:1], torch.minimum(beside[:-1], beside[1:]), beside[-1:]]) < SAME
    for i, j in same.triu(2).nonzero().tolist():
        if not bool(frozen[[i, j]].any()):
            strange = [float(beside[max(0, k - 1) : k + 1].amin()) for k in (i, j)]
            yield (i, j) if strange[0] > strange[1] else (j, i)


def _known_runs(sample: Sample, frames: Sequence[Shown]) -> Iterator[tuple[list[Shown], Tensor]]:  # [n, m] their copies
    """Runs of neighbouring frames, cut at those without a copy."""
    for run in glimpse_runs(sample, frames):
        seen = [(frame, glimpse(sample, frame)) for frame in run]
        for known, part in groupby(seen, lambda pair: pair[1] is not None):
            pairs = list(part)
            if known and len(pairs) >= FEWEST:
                yield [frame for frame, _ in pairs], torch.stack([copy for _, copy in pairs if copy is not None])


def _moves(run: Sequence[Shown]) -> tuple[Tensor, Tensor]:  # [n - 1] bool each
    """Steps of a vehicle that moves, and those of a usual length in time."""
    places = torch.stack([frame.T_world_rig_start[:3, 3] for frame in run])
    steps = torch.tensor([frame.time_mid for frame in run], dtype=torch.float64).diff()
    return places.diff(dim=0).norm(dim=1) > MOVED, steps < GAP * steps.median()


def wrong_places(
    copies: Tensor,  # [n, m] of neighbouring frames, five or more
    moved: Tensor,  # [n - 1] bool
    near: Tensor,  # [n - 1] bool: in time
) -> Places:
    apart = torch.cdist(copies.double(), copies.double(), p=1.0)
    one, two = apart.diagonal(1), apart.diagonal(2)
    return Places(_exchanged(one, two, moved), _strange(one, two), _cuts(one, near))


def _exchanged(one: Tensor, two: Tensor, moved: Tensor) -> list[int]:
    ratio = (two[:-1] + two[1:]) / (one[:-2] + one[2:]).clamp(min=1e-12)
    driving = moved[:-2] & moved[1:-1] & moved[2:]
    ordered = _usual(ratio) >= ORDERED
    return [k + 1 for k in ((ratio < EXCHANGED) & ordered & driving).nonzero()[:, 0].tolist()]


def _usual(values: Tensor) -> Tensor:  # [n], n > 0 -> [n] the median of those around each
    width = min(len(values), 2 * AROUND + 1)
    medians = values.unfold(0, width, 1).median(1).values
    return medians[(torch.arange(len(values)) - width // 2).clamp(0, len(values) - width)]


def _strange(one: Tensor, two: Tensor) -> list[int]:
    least = torch.minimum(one[:-1], one[1:])
    return [k + 1 for k in ((least > STRANGE * two) & (least > UNUSUAL * one.median())).nonzero()[:, 0].tolist()]


def _cuts(one: Tensor, near: Tensor) -> list[int]:
    """Large differences among small ones; not those on either side of one strange frame."""
    found = list[int]()
    for k in range(len(one)):
        beside = [float(one[i]) for i in (k - 2, k - 1, k + 1, k + 2) if 0 <= i < len(one)]
        if bool(near[k]) and float(one[k]) > max(CUT * max(beside), UNUSUAL * float(one.median())):
            found.append(k)
    return found
