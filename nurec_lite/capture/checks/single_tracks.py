# SPDX-License-Identifier: Apache-2.0
"""Single tracks with empty boxes, while those of other tracks hold returns."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor

from nurec_lite.capture.checks.box_guesses import MADE, raised, turned
from nurec_lite.capture.checks.box_rays import BoxFit, Rays, fit_boxes
from nurec_lite.geometry.tracks import Tracks

FEWEST = 3  # boxes of a track that tell anything
SURE = 5  # boxes at least, where no other reading fits
EMPTY, NOTHING = 0.28, 0.12  # share of its boxes that are odd, and of those that lie elsewhere for sure
GOOD, BETTER = 0.62, 0.35  # share of another reading, at least, and its gain
LONG = 2.5  # metres: people are seen by few rays
STEPS = [0.1 * sign * k for k in range(1, 16) for sign in (1, -1)]  # seconds that a track's times may be off
SHORT = (0.1, -0.1, 0.2, -0.2)  # the same where boxes hold a part of their returns
LISTED = 3  # tracks in a sentence
THROUGH = 0.1  # share of rays that pass through boxes that are too small, at most: the object around them stops rays
HALF, TWICE = (1.6, 0.7), 5.0  # metres: length and width of half a car at least, and length of two
SURELY = 4  # boxes of a track that hold a part of their returns, at least
LARGE, LATE = (0.15, 3.5), (0.2, 2.5)  # gain of such boxes, and standard errors: half as large, and at other times
LEAST = 0.015  # of a mean difference: its standard error at least
RIGHT = 3, 0.3  # tracks that lie on objects, and their part of all, at least
Words = tuple[str, str]  # completes "they do if", and a remedy


@dataclass(frozen=True)
class OddTrack:
    name: str
    share: float  # of its boxes
    meaning: str  # completes "they do if"; empty: no known reading fits
    remedy: str
    guessed: float  # share by that reading


def may_be_odd(
    tracks: Tracks,
    said: BoxFit,
    moving: list[int],
) -> list[int]:
    """Numbers of tracks that deserve a closer look."""
    found = [(k, said.of(k)) for k in said.tracks.unique().tolist()]
    return [k for k, fit in found if _doubtful(tracks.sizes[k], fit, k in moving)]


def _doubtful(size: Tensor, said: BoxFit, moves: bool) -> bool:
    length, width = size[:2].tolist()
    empty, poor = said.share < EMPTY, said.share < GOOD
    return (empty and (length > LONG or (length > HALF[0] and width > HALF[1]))) or (poor and (moves or length > TWICE))


def some_right(said: BoxFit) -> bool:
    """Whether boxes of several tracks, and of enough of all, lie on objects."""
    means = [float(said.of(k).shares.mean()) for k in said.tracks.unique().tolist()]
    right = sum(mean >= GOOD for mean in means)
    return right >= RIGHT[0] and right >= RIGHT[1] * len(means)


def odd_tracks(
    rays: list[Rays],  # of more sweeps
    tracks: Tracks,
    numbers: list[int],
    moving: list[int],
) -> Iterator[OddTrack]:
    for k in numbers:
        alone = tracks.select([k])
        said, small = fit_boxes(rays, alone), float(alone.sizes[0][0]) <= LONG
        other = _empty(rays, alone, said, k in moving and not small, small) or _poor(rays, alone, said, k in moving)
        if other is not None:
            share, (meaning, remedy) = other
            yield OddTrack(tracks.ids[k], said.share, meaning, remedy, share)
        elif said.share < NOTHING and len(said) >= SURE and not small:
            yield OddTrack(tracks.ids[k], said.share, "", f"correct its places and times {MADE}, or leave it out", 0.0)


def _empty(rays: list[Rays], track: Tracks, said: BoxFit, moves: bool, small: bool) -> tuple[float, Words] | None:
    """The share and the words of the reading that fills empty boxes; `small`: only larger ones may."""
    if len(said) < (FEWEST - 1 if small else FEWEST) or said.share >= EMPTY:
        return None
    solid = float(said.passed.median()) <= THROUGH
    readings = ([_doubled(track)] if solid else []) + ([] if small else list(_readings(track, moves)))
    fits = [(fit_boxes(rays, other), words) for other, words in readings]
    share, words = max(((fit.share, words) for fit, words in fits if len(fit) >= FEWEST), default=(0.0, ("", "")))
    return (share, words) if share >= max(GOOD, said.share + BETTER) else None


def _poor(rays: list[Rays], track: Tracks, said: BoxFit, moves: bool) -> tuple[float, Words] | None:
    """The same for boxes that hold a part of their returns: box after box, the reading must hold more."""
    if len(said) < SURELY or said.share >= GOOD:
        return None
    readings = [(*_halved(track), LARGE)] if float(track.sizes[0][0]) > TWICE else []
    readings += [(*_late(track, seconds), LATE) for seconds in SHORT] if moves else []
    for other, words, (least, errors) in readings:
        fit = fit_boxes(rays, other)
        gain = float(fit.shares.mean() - said.shares.mean()) if len(fit) >= SURELY else 0.0
        if gain >= least and fit.share >= GOOD and gain >= errors * _error(fit, said):
            return fit.share, words
    return None


def _error(a: BoxFit, b: BoxFit) -> float:
    """Standard error of the difference of two means."""
    return math.sqrt(sum(float(fit.shares.var()) / len(fit) for fit in (a, b)) + LEAST**2)


def _doubled(track: Tracks) -> tuple[Tracks, Words]:
    return replace(track, sizes=2 * track.sizes), ("the sizes are 2 times too small", f"multiply sizes by 2 {MADE}")


def _halved(track: Tracks) -> tuple[Tracks, Words]:
    return replace(track, sizes=track.sizes / 2), ("the sizes are 2 times too large", f"divide sizes by 2 {MADE}")


def _late(track: Tracks, seconds: float) -> tuple[Tracks, Words]:
    way = f"{abs(seconds):.1f} s {'late' if seconds > 0 else 'early'}"
    return replace(track, times=track.times - seconds), (f"their times are {way}", f"correct the times {MADE}")


def _readings(track: Tracks, moves: bool) -> Iterator[tuple[Tracks, Words]]:
    yield turned(track, math.pi / 2), ("they are turned by 90 degrees", f"turn them {MADE}")
    yield raised(track, 0.5), ("their places are the middle of the bottom", f"raise them by half of the height {MADE}")
    yield raised(track, -0.5), ("their places are half of the height too high", f"lower them {MADE}")
    yield from (_late(track, seconds) for seconds in STEPS if moves)


def sentences_of(found: list[OddTrack]) -> Iterator[tuple[str, str, str]]:
    """The first track, a sentence and a remedy for each reading."""
    for meaning in dict.fromkeys(odd.meaning for odd in found):
        those = [odd for odd in found if odd.meaning == meaning]
        more = f" and {len(those) - LISTED} more" if len(those) > LISTED else ""
        names = f"{', '.join(odd.name for odd in those[:LISTED])}{more}"
        share, guessed = (
            sum(values) / len(those) for values in zip(*((o.share, o.guessed) for o in those), strict=True)
        )
        held = f"Boxes of track{'s' * (len(those) > 1)} {names} hold {100 * share:.0f} % of their returns"
        fits = f", and {100 * guessed:.0f} % if {meaning}" if meaning else ", while those of others hold theirs"
        yield those[0].name, f"{held}{fits}.", those[0].remedy
