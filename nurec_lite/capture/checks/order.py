# SPDX-License-Identifier: Apache-2.0
"""Images of a camera in another order than in time, and images that agree with the sweeps in one part of the drive only.

Letters: G guesses, V views in the order of time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nurec_lite.capture.checks.agreement import FASTEST
from nurec_lite.capture.checks.alignment import VIEWS, Fit, fit, together, view_of, views_of
from nurec_lite.capture.checks.edges import View, image_edges, ranks
from nurec_lite.capture.checks.evidence import STRONG, SURE, agrees, closer_look
from nurec_lite.capture.checks.fine import speed_of
from nurec_lite.capture.checks.found import Found
from nurec_lite.capture.checks.guesses import CLOCK, YAW, Guess, all_others, as_said
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level
from nurec_lite.capture.evenly import spread
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.capture.types import ImageFrame
from nurec_lite.geometry.camera import Camera

CLEARLY = 1.3  # times the contrast as said
ELSEWHERE = 2.0  # the same for images of another camera: chance has given 1.6, images of a neighbour that looks the same way 2.8
FEW, MANY = 2, 4  # views of each part at least, at first and at a closer look
GAIN, LOSS = 0.03, 0.02  # of the contrast by a guess: in the part that it is right for at least, and in the other part
FIRST, SIGMAS = 1.5, 4.0  # standard errors between the gains of both parts, at first and at a closer look
# times the contrast as said of the other part, at most, at first and at a closer look, unless another camera's place fits
POOR, LESS = 0.75, 0.8
FRAMES = " frame"  # in the names of guesses about whole frames
NOWHERE = 0.035  # contrast of sensors that do not agree
LEAST = 0.01  # of the contrast: standard error of a mean at least
REMEDY = "restore the order of its files, or choose frames without them by data.frames"


# ---- all images


def other_order(sample: Sample, camera: Camera, said: Fit) -> Found | None:
    """Finding for images that agree with edges in another order of their files."""
    frames = [frame for frame in sample.capture.images if frame.sensor == camera.name]
    if len(frames) < 2 * MANY or speed_of(sample.capture, camera, frames) <= FASTEST:
        return None
    found = [(words, _fit_of(sample, camera, frames, order)) for words, order in _orders(len(frames)).items()]
    words, best = max(found, key=lambda pair: pair[1].contrast)
    if not agrees(best, STRONG) or best.contrast < CLEARLY * said.contrast:
        return None
    level = Level.CERTAIN if agrees(best, SURE) else Level.LIKELY
    sentence = (
        f"Images of {{cameras}} are {words}: edges agree so (contrast {{guessed:.2f}}), not as they are ({{said:.2f}})."
    )
    figures = {"said": said.contrast, "guessed": best.contrast}
    return Found(camera, level, said, sentence, "restore the order of its files", figures)


def _orders(count: int) -> dict[str, list[int]]:
    """Place of the file that belongs to each place."""
    as_text = sorted(range(count), key=str)
    return {
        "in reverse order": list(range(count))[::-1],
        "sorted as text (1, 10, 11, 2)": sorted(range(count), key=as_text.__getitem__),
    }


def _fit_of(sample: Sample, camera: Camera, frames: Sequence[ImageFrame], order: Sequence[int]) -> Fit:
    place, views = {frame.index: k for k, frame in enumerate(frames)}, list[View]()
    for frame in spread(sample.images_of(camera.name), VIEWS):
        for view in view_of(sample, camera, frame):
            strengths = image_edges(sample.image(frames[order[place[frame.index]]]), camera)
            views.append(replace(view, strengths=strengths, ranks=ranks(strengths)))
    return fit(together(views), as_said(camera), trajectory_of(sample.capture))


# ---- one part of the drive


@dataclass(frozen=True)
class Part:
    """The views that a guess is right for: those from a place on, or those before it."""

    guess: Guess
    place: int
    later: bool


def of_a_part(sample: Sample, camera: Camera, said: Fit, fits: Sequence[Fit]) -> Found | None:
    """Finding for images that a guess explains in one part of the drive, while the other part agrees as the capture says."""
    # files are lost in whole frames, and lenses stay
    able = [f for f in fits if f.guess.place or f.guess.kind == YAW or FRAMES in f.guess.name]
    part = _part(able, said, FEW, FIRST, POOR) or (
        _part(_others(sample, camera), said, FEW, FIRST, POOR) if _lost(said) else None
    )
    if part is None:
        return None
    views, path = together(views_of(closer_look(sample), camera)), trajectory_of(sample.capture)
    closer = fit(views, as_said(camera), path)
    guessed = fit(views, part.guess, path)
    part = _part([guessed], closer, MANY, SIGMAS, LESS)
    if part is None:
        return None
    rows = slice(part.place, None) if part.later else slice(None, part.place)
    figures = {"said": _mean(closer.contrasts[rows]), "guessed": _mean(guessed.contrasts[rows])}
    least = max(STRONG[0], ELSEWHERE * figures["said"] if part.guess.place else 0.0)
    if figures["guessed"] < least:
        return None
    index = views.frames[part.place if part.later else part.place - 1].index
    where = f"From about image {index} on" if part.later else f"Up to about image {index}"
    contrasts = "(contrast {guessed:.2f}), not as the capture says ({said:.2f})"
    sentence = f"{where}, edges of the lidar agree with the images of {{cameras}} if {_words(part.guess)} {contrasts}."
    return Found(camera, Level.LIKELY, said, sentence, _remedy(part.guess), figures)


def _lost(said: Fit) -> bool:
    """Whether one part of the drive agrees and the other does not."""
    for k in range(FEW, len(said.contrasts) - FEW + 1):
        low, high = sorted((_mean(said.contrasts[:k]), _mean(said.contrasts[k:])))
        if low < NOWHERE and high > STRONG[0] and _apart(said.contrasts, k) > SIGMAS:
            return True
    return False


def _others(sample: Sample, camera: Camera) -> list[Fit]:
    views, path = together(views_of(sample, camera)), trajectory_of(sample.capture)
    return [fit(views, guess, path) for guess in all_others(sample.capture, camera)]


def _words(guess: Guess) -> str:
    words = f"these are images of {guess.place}" if guess.place else guess.name
    return words.replace("{", "{{").replace("}", "}}")


def _remedy(guess: Guess) -> str:
    return f"{REMEDY}, or {guess.remedy}" if guess.kind == CLOCK or not guess.place else REMEDY


def _part(fits: Sequence[Fit], said: Fit, least: int, errors: float, poor: float) -> Part | None:
    """The guess with the clearest change, and its place."""
    if not fits:
        return None
    gains = torch.stack([f.contrasts for f in fits]) - said.contrasts  # [G, V]
    heads, tails = _parts(gains)
    before, after = _parts(said.contrasts[None])
    other = torch.tensor([f.guess.place is not None for f in fits])[:, None]
    right = [
        (tails > GAIN) & (heads < -LOSS) & (other | (after < poor * before)),
        (heads > GAIN) & (tails < -LOSS) & (other | (before < poor * after)),
    ]
    inside = torch.arange(gains.shape[1])
    inside = (inside >= least) & (inside <= gains.shape[1] - least)
    found = [
        (_apart(gains[g], k), Part(fits[g].guess, k, later))
        for later, chosen in zip((True, False), right, strict=True)
        for g, k in (chosen & inside).nonzero().tolist()
    ]
    sure, part = max(found, key=lambda pair: pair[0], default=(0.0, None))
    return part if sure >= errors else None


def _parts(
    values: Tensor,
) -> tuple[Tensor, Tensor]:  # [G, V] -> [G, V] each: means of those before each, and from it on
    return _means(values).roll(1, 1), _means(values.flip(1)).flip(1)


def _means(gains: Tensor) -> Tensor:  # [G, V] -> [G, V]: of the values up to each, NaN left out
    return gains.nan_to_num().cumsum(1) / (~gains.isnan()).cumsum(1).clamp(min=1)


def _apart(gains: Tensor, k: int) -> float:  # [V] -> difference of the means of both parts, in standard errors
    parts = [part[~part.isnan()] for part in (gains[:k], gains[k:])]
    if min(map(len, parts)) < 2:
        return 0.0
    error = math.sqrt(sum(float(part.var()) / len(part) for part in parts)) + LEAST
    return abs(float(parts[1].mean() - parts[0].mean())) / error


def _mean(values: Tensor) -> float:
    return float(values.nanmean())
