# SPDX-License-Identifier: Apache-2.0
"""Single images that differ from those before and after: sizes of files, which change little from image to image, say where to look.
Small copies show more of them."""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise

import torch
from torch import Tensor

from nurec_lite.base.errors import UserError
from nurec_lite.capture.checks.glimpses import glimpse
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.single_views import views_and_colours
from nurec_lite.capture.checks.tones import BLACK, BRIGHTER, NEXT, OPPOSITE, Look, cosine, look, turns_grey
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.types import Glanced, ImageFrame
from nurec_lite.capture.without import leave_out

FEWEST = 9  # images with sizes that show the usual change
LEAST, USUAL = 0.1, 4.0  # change of the logarithm of a size, and times that of nine in ten images: more is looked at
RARE, MOST = 0.1, 3  # part of the images that may be so at most, and images that are looked at, or named
STRANGE = 0.95  # of the difference of the images around it: its own from both, at least; usual images have 0.8


def single_images(sample: Sample, frames: Sequence[ImageFrame], check: str) -> Iterator[Verdict]:
    """Verdicts about images of one camera."""
    sized = {k: words for k in _suspects(frames) if (words := _of_size(sample, frames, k)) is not None}
    found = views_and_colours(sample, frames) | sized
    for k in sorted(found)[:MOST]:
        sentence = f"Image {frames[k].index} of {frames[k].sensor} {found[k]} the images before and after it."
        remedy = f"restore it, or {leave_out(frames[k].sensor, [frames[k].index])}"
        yield Verdict(check, frames[k].sensor, Level.LIKELY, sentence, remedy, {"image": float(frames[k].index)})


def _of_size(sample: Sample, frames: Sequence[ImageFrame], k: int) -> str | None:
    """Words about an image with a file of an odd size; None: it is like its neighbours."""
    near = frames[max(0, k - 1) : k + 2]
    if len(near) < 3 or any(b.time_mid - a.time_mid > NEXT for a, b in pairwise(near)):
        return None
    with suppress(UserError):  # another check reports it
        return _words(*(look(sample, frame) for frame in near)) or _other_view([glimpse(sample, f) for f in near])
    return None


def _suspects(frames: Sequence[ImageFrame]) -> list[int]:
    """Places of a few images with files that are far smaller or larger than those of their neighbours."""
    sizes = [size for frame in frames if (size := file_size(frame)) is not None]
    if len(sizes) < max(FEWEST, len(frames)):
        return []
    logs = torch.tensor(sizes, dtype=torch.float64).clamp(min=1).log()
    beside = torch.stack([logs.roll(k) for k in (-2, -1, 1, 2)])[:, 2:-2].median(0).values
    off = (logs[2:-2] - beside).abs()
    bar = max(LEAST, USUAL * float(off.quantile(0.9)))
    odd = (off > bar).nonzero()[:, 0].tolist()
    if len(odd) > max(1, RARE * len(frames)):
        return []
    return sorted(2 + k for k in sorted(odd, key=lambda k: -float(off[k]))[:MOST])


def file_size(frame: ImageFrame) -> int | None:  # bytes
    return frame.load.glance().size if isinstance(frame.load, Glanced) else None


def _words(before: Look, own: Look, after: Look) -> str | None:
    """Words where both neighbours differ in tone from an image, and agree with each other."""
    if min(before.level, own.level, after.level) < BLACK or turns_grey(before, after):
        return None
    if turns_grey(before, own) and turns_grey(own, after):
        return "is grey, unlike" if own.colour < before.colour else "is in colour, unlike"
    if max(cosine(before, own), cosine(own, after)) < OPPOSITE[1]:
        return "has red and blue exchanged against"
    steps = own.level - before.level, own.level - after.level
    if (
        min(map(abs, steps)) < BRIGHTER[1]
        or steps[0] * steps[1] < 0
        or abs(after.level - before.level) > BRIGHTER[0] / 2
    ):
        return None
    return f"is {math.exp(sum(steps) / 2):.2g} times as bright as"


def _other_view(copies: Sequence[Tensor | None]) -> str | None:
    known = [copy.double() for copy in copies if copy is not None]
    if len(known) < len(copies):
        return None
    before, own, after = known
    apart = [float((a - b).abs().mean()) for a, b in ((before, own), (own, after), (before, after))]
    return "shows another view than" if min(apart[:2]) > STRANGE * apart[2] else None
