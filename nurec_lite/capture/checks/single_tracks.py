# SPDX-License-Identifier: Apache-2.0
"""Single tracks with empty boxes, while those of other tracks hold returns."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from nurec_lite.capture.checks.box_guesses import MADE, raised, turned
from nurec_lite.capture.checks.box_rays import BoxFit, Rays, fit_boxes
from nurec_lite.geometry.tracks import Tracks

FEWEST = 3  # boxes of a track that tell anything
SURE = 5  # boxes at least, where no other reading fits
EMPTY, NOTHING = 0.28, 0.12  # share of its boxes that are odd, and of those that lie elsewhere for sure
GOOD, BETTER = 0.62, 0.35  # share of another reading, at least, and its gain
LONG = 2.5  # metres: people are seen by few rays
STEPS = [0.1 * sign * k for k in range(1, 16) for sign in (1, -1)]  # seconds that a track's times may be off
LISTED = 3  # tracks in a sentence


@dataclass(frozen=True)
class OddTrack:
    name: str
    share: float  # of its boxes
    meaning: str  # completes "they do if"; empty: no known reading fits
    remedy: str
    guessed: float  # share by that reading


def may_be_odd(tracks: Tracks, said: BoxFit) -> list[int]:
    """Numbers of tracks that deserve a closer look."""
    found = [(k, said.of(k)) for k in said.tracks.unique().tolist()]
    return [k for k, fit in found if fit.share < EMPTY and float(tracks.sizes[k][0]) > LONG]


def odd_tracks(
    rays: list[Rays],  # of more sweeps
    tracks: Tracks,
    numbers: list[int],
    moving: list[int],
) -> Iterator[OddTrack]:
    for k in numbers:
        alone = tracks.select([k])
        said = fit_boxes(rays, alone)
        if len(said) < FEWEST or said.share >= EMPTY:
            continue
        fits = [(fit_boxes(rays, other), words) for other, words in _readings(alone, k in moving)]
        share, (meaning, remedy) = max(
            ((fit.share, words) for fit, words in fits if len(fit) >= FEWEST), default=(0.0, ("", ""))
        )
        if share >= max(GOOD, said.share + BETTER):
            yield OddTrack(tracks.ids[k], said.share, meaning, remedy, share)
        elif said.share < NOTHING and len(said) >= SURE:
            yield OddTrack(tracks.ids[k], said.share, "", f"correct its places and times {MADE}, or leave it out", 0.0)


def _readings(track: Tracks, moves: bool) -> Iterator[tuple[Tracks, tuple[str, str]]]:
    yield turned(track, math.pi / 2), ("they are turned by 90 degrees", f"turn them {MADE}")
    doubled = replace(track, sizes=2 * track.sizes)
    yield doubled, ("the sizes are 2 times too small", f"multiply sizes by 2 {MADE}")
    yield raised(track, 0.5), ("their places are the middle of the bottom", f"raise them by half of the height {MADE}")
    yield raised(track, -0.5), ("their places are half of the height too high", f"lower them {MADE}")
    for seconds in STEPS if moves else ():
        way = f"{abs(seconds):.1f} s {'late' if seconds > 0 else 'early'}"
        shifted = replace(track, times=track.times - seconds)
        yield shifted, (f"their times are {way}", f"correct the times {MADE}")


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
