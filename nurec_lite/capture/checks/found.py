# SPDX-License-Identifier: Apache-2.0
"""Findings about single cameras, and one verdict for cameras with the same finding."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from nurec_lite.capture.checks.alignment import Fit
from nurec_lite.capture.checks.guesses import READINGS, Guess, corrected
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.geometry.camera import Camera


@dataclass(frozen=True)
class Found:
    """A finding about one camera."""

    camera: Camera
    level: Level
    said: Fit  # as the capture says
    sentence: str  # {cameras} stands for names
    remedy: str | None = None
    figures: dict[str, float] = field(default_factory=dict)
    guess: Guess | None = None  # that fits instead


def verdicts_of(check: str, all_found: list[Found]) -> list[Verdict]:
    alike = defaultdict[tuple[Level, str, str | None], list[Found]](list)
    for found in _as_sure(list(_exchanged(all_found))):
        alike[found.level, found.sentence, found.remedy].append(found)
    return [_verdict(check, *key, group) for key, group in alike.items()]


def _as_sure(all_found: list[Found]) -> list[Found]:
    """Findings; those of the same reading are as sure as the surest one."""
    certain = {f.guess.name for f in all_found if f.guess and f.guess.kind in READINGS and f.level is Level.CERTAIN}
    return [replace(f, level=Level.CERTAIN) if f.guess and f.guess.name in certain else f for f in all_found]


def _exchanged(all_found: list[Found]) -> Iterator[Found]:
    """Makes the findings of two cameras certain that each have the other's place."""
    places = {found.camera.name: found.guess.place for found in all_found if found.guess is not None}
    for found in all_found:
        place = places.get(found.camera.name)
        if place is not None and places.get(place) == found.camera.name:
            sentence = (
                "The mountings of {cameras} are exchanged: edges agree so (contrast {guessed:.2f}) better than as "
                "the capture says ({said:.2f})."
            )
            remedy = "exchange their mountings, or their images"
            yield replace(found, level=Level.CERTAIN, sentence=sentence, remedy=remedy)
        else:
            yield found


def _verdict(check: str, level: Level, sentence: str, remedy: str | None, group: list[Found]) -> Verdict:
    """The verdict of cameras with the same finding, with their mean figures."""
    names, guesses = [found.camera.name for found in group], [found.guess for found in group if found.guess]
    listed = " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else names[0]
    common = [key for key in group[0].figures if all(key in f.figures for f in group)]
    figures = {key: sum(f.figures[key] for f in group) / len(group) for key in common}
    text = sentence.format(cameras=listed, **figures)
    return Verdict(
        check, ", ".join(names), level, text, remedy, figures, partial(corrected, guesses) if guesses else None
    )
