# SPDX-License-Identifier: Apache-2.0
"""Single images that differ from those before and after in view or colours, by small copies.

From an image to the next the view moves to a side. Copies are compared at the shift where they are most alike.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from nurec_lite.capture.checks.glimpses import COLUMNS, ROWS, copy_of, glimpse, glimpse_runs
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.tones import NEXT, OPPOSITE, cosine, look_of
from nurec_lite.capture.types import ImageFrame

FEWEST = 5  # neighbouring images that tell anything
SHIFT = 10  # columns to each side that are tried
MIRRORED = 0.85  # of the difference of an image to its neighbours: once turned round. Right images have 1.2 and more
STRANGE, UNUSUAL = 1.2, 1.5  # times the difference of the images around it, and of most neighbours: usual are 0.9 and 1
DIFFERENT = 0.3  # of the scatter of an image: least difference from its neighbours


def views_and_colours(sample: Sample, frames: Sequence[ImageFrame]) -> dict[int, str]:
    """Words about odd images of one camera by their places, each between two that agree with one another."""
    numbers, found = {frame.index: k for k, frame in enumerate(frames)}, dict[int, str]()
    for run in glimpse_runs(sample, frames):
        images = [frame for frame in run if isinstance(frame, ImageFrame)]
        copies = [glimpse(sample, frame) for frame in images]
        known = [copy.view(ROWS, COLUMNS) for copy in copies if copy is not None]
        if len(known) < max(FEWEST, len(images)):
            continue
        near = torch.tensor([frame.time_mid for frame in images], dtype=torch.float64).diff() <= NEXT
        odd = {**other_views(torch.stack(known)), **dict(_exchanged(sample, images))}
        found |= {numbers[images[k].index]: words for k, words in odd.items() if bool(near[k - 1] & near[k])}
    return found


def other_views(
    copies: Tensor,  # [n, ROWS, COLUMNS] of neighbours, five or more, without their mean brightness
) -> dict[int, str]:
    one, two = _apart(copies[:-1], copies[1:]), _apart(copies[:-2], copies[2:])
    least = torch.minimum(one[:-1], one[1:])
    turned = copies[1:-1].flip(2)
    most = torch.maximum(_apart(copies[:-2], turned), _apart(turned, copies[2:]))
    mirrored = (most < MIRRORED * least) & (least > DIFFERENT)
    strange = (least > STRANGE * two) & (least > UNUSUAL * one.median()) & (least > DIFFERENT)
    words = {k + 1: "shows another view than" for k in strange.nonzero()[:, 0].tolist()}
    return words | {k + 1: "is mirrored against" for k in mirrored.nonzero()[:, 0].tolist()}


def _apart(
    first: Tensor,  # [n, h, w]
    second: Tensor,  # [n, h, w]
) -> Tensor:  # [n] mean difference, at the shift to a side with the least one
    width, found = first.shape[2], list[Tensor]()
    for shift in range(-SHIFT, SHIFT + 1):
        a, b = (x[:, :, max(0, s) : width + min(0, s)] for x, s in ((first, shift), (second, -shift)))
        found.append((a - b).abs().mean((1, 2)))
    return torch.stack(found).amin(0)


def _exchanged(sample: Sample, images: Sequence[ImageFrame]) -> Iterator[tuple[int, str]]:
    """Places of images with other colours than both neighbours, as where red and blue are exchanged."""
    looks = [look_of(copy.pixels) for image in images if (copy := copy_of(sample, image)) is not None]
    opposite = [cosine(a, b) < OPPOSITE[1] for a, b in pairwise(looks)]
    for k, (before, after) in enumerate(pairwise(opposite), 1):
        if before and after:
            yield k, "has red and blue exchanged against"
