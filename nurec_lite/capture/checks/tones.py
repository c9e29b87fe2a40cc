# SPDX-License-Identifier: Apache-2.0
"""Images of a camera that change at once, from one to the next, while the view stays: to grey, to other channels, to another brightness.

Looks are those of images that are decoded in any case. Between two that differ, a few more images show whether one step makes the change.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor
from torch.nn import functional as F

from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.thumbnails import thumbnail
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.types import ImageFrame

ROWS, COLUMNS = 12, 20  # of a look
PLAIN = 4.0  # grey levels that are added to the mean, so that noise on a dark image stays small
BLACK = math.log(PLAIN + 3)  # of a level: another check reports black images
GREY, COLOUR = 1e-3, 0.02  # of the mean level: difference of channels of grey images at most, of others at least
OPPOSITE = 0.0, -0.5  # cosine of two images' colours where they may be exchanged: of distant ones, and of neighbours
BRIGHTER = math.log(1.4), math.log(1.6)  # change of the level: of distant images, and of neighbours
ONE_STEP = 0.8  # part of the whole change that one step makes
HALF = 0.6, 0.3  # part of the change, at least, and cosine of the colours, at most, of the half that has the step
STEADY = 3.0  # times the changes of the steps beside it
NEXT = 1.0  # seconds from an image to the next, at most
REMEDY = "take all images from one source, or choose frames without them by data.frames"


@dataclass(frozen=True)
class Look:
    level: float  # logarithm of the mean
    blue: Tensor  # [ROWS, COLUMNS] blue above red, relative to the mean
    colour: float  # largest usual difference of two channels, relative to the mean


def look_of(thumbnail: Tensor) -> Look:  # [h, w, 3] uint8
    cells = F.adaptive_avg_pool2d(thumbnail.permute(2, 0, 1).float()[None], (ROWS, COLUMNS))[0]
    mean = float(cells.mean()) + PLAIN
    apart = (cells.amax(0) - cells.amin(0)).square().mean().sqrt()
    return Look(math.log(mean), (cells[2] - cells[0]) / mean, float(apart) / mean)


def changed_at_once(sample: Sample, camera: str, check: str) -> Iterator[Verdict]:
    """One verdict about the first change."""
    found = first_step(sample, camera)
    if found is not None:
        index, words = found
        sentence = f"From image {index} on, images of {camera} {words}."
        yield Verdict(check, camera, Level.LIKELY, sentence, REMEDY, {"from": float(index)})


def first_step(sample: Sample, camera: str) -> tuple[int, str] | None:
    """Index of the first image after a change, and words that say how it differs; None: no change, or a slow one."""
    return sample.kept(("step of tones", camera), lambda: _first_step(sample, camera))


def _first_step(sample: Sample, camera: str) -> tuple[int, str] | None:
    frames = [frame for frame in sample.capture.images if frame.sensor == camera]
    places = {frame.index: k for k, frame in enumerate(frames)}
    seen = [places[frame.index] for frame in sample.images_of(camera)]
    found = (_step(sample, frames, a, b) for a, b in pairwise(seen))
    return next(((frames[k].index, words) for k, words in filter(None, found)), None)


def _step(sample: Sample, frames: Sequence[ImageFrame], a: int, b: int) -> tuple[int, str] | None:
    """The same between two images, with the place instead of the index."""
    first, last = (look(sample, frames[k]) for k in (a, b))
    if min(first.level, last.level) < BLACK or not _differ(first, last, distant=True):
        return None
    low, high = a, b
    while high - low > 1:
        middle = (low + high) // 2
        seen = look(sample, frames[middle])
        low, high = (middle, high) if _apart(seen, last) > _apart(first, seen) else (low, middle)
        if not _may_hold_step(look(sample, frames[low]), look(sample, frames[high]), last.level - first.level):
            return None  # a slow change, which no further image is decoded for
    if frames[high].time_mid - frames[low].time_mid > NEXT:
        return None
    looks = [look(sample, frames[k]) for k in range(max(0, low - 1), min(len(frames), high + 2))]
    return None if (words := _words(looks, min(1, low), first, last)) is None else (high, words)


def look(sample: Sample, frame: ImageFrame) -> Look:
    return sample.kept(("look of", frame.sensor, frame.index), lambda: look_of(thumbnail(sample, frame)))


def _differ(a: Look, b: Look, distant: bool) -> bool:
    return turns_grey(a, b) or cosine(a, b) < OPPOSITE[not distant] or abs(b.level - a.level) > BRIGHTER[not distant]


def _may_hold_step(a: Look, b: Look, whole: float) -> bool:
    """Whether one step may make most of the whole change of the level, grey images, or other colours."""
    brighter = abs(b.level - a.level) > max(BRIGHTER[0], HALF[0] * abs(whole))
    return brighter or turns_grey(a, b) or cosine(a, b) < HALF[1]


def turns_grey(a: Look, b: Look) -> bool:
    low, high = sorted((a.colour, b.colour))
    return low < GREY and high > COLOUR


def cosine(a: Look, b: Look) -> float:
    if min(a.colour, b.colour) < COLOUR:
        return 1.0
    return float(F.cosine_similarity(a.blue.flatten(), b.blue.flatten(), dim=0))


def _apart(a: Look, b: Look) -> float:
    return 9.0 * turns_grey(a, b) + (1 - cosine(a, b)) + abs(b.level - a.level)


def _words(
    looks: Sequence[Look],  # of two neighbours, and of those beside them
    k: int,  # place of the first neighbour
    first: Look,
    last: Look,
) -> str | None:
    a, b = looks[k], looks[k + 1]
    if turns_grey(a, b):
        return "are grey, those before in colour" if b.colour < a.colour else "are in colour, those before grey"
    if cosine(a, b) < OPPOSITE[1]:
        return "have red and blue exchanged against those before"
    step, whole = b.level - a.level, last.level - first.level
    beside = max((abs(y.level - x.level) for n, (x, y) in enumerate(pairwise(looks)) if n != k), default=0.0)
    if abs(step) < max(BRIGHTER[1], ONE_STEP * abs(whole), STEADY * beside):
        return None
    return f"are {math.exp(step):.2f} times as bright as those before"
