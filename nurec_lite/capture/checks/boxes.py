# SPDX-License-Identifier: Apache-2.0
"""Compares boxes of moving objects with the returns at their times. If they disagree, other ways to read the boxes are tried."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch

from nurec_lite.capture.checks.box_guesses import BoxGuess, guesses
from nurec_lite.capture.checks.box_rays import FARTHEST, BoxFit, Rays, fit_boxes, rays_of, returned_rays
from nurec_lite.capture.checks.impossible import impossible_tracks
from nurec_lite.capture.checks.moving_boxes import (
    LITTLE,
    FitAt,
    a_little_late,
    fit_late,
    fit_moving,
    moving_elsewhere,
)
from nurec_lite.capture.checks.range_offset import OFFSET
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.single_tracks import may_be_odd, odd_tracks, sentences_of, some_right
from nurec_lite.capture.checks.track_motion import BACKWARDS, odd_motions
from nurec_lite.capture.checks.two_places import APART
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.capture.types import FOUND, Capture, CaptureError
from nurec_lite.geometry.tracks import Tracks

NAME = "boxes and sweeps"
DOUBTS = (Level.LIKELY, Level.CERTAIN)
BOXES, TRACKS = 10, 3  # at least, that tell anything
BETTER, SURELY = (0.1, 2.5), (0.15, 3.5)  # mean difference of shares, and standard errors: another reading fits
ALIKE = 0.1  # of shares: readings that differ less fit alike, and the first with about the most returns is taken
MANY = 0.9  # of the most returns
SAFE = 0.62  # share of boxes that no other reading of their places and sizes would fit better
GOOD = 0.35  # share that a reading that fits has at least
RATIO = 0.8  # of its share that the capture's boxes have at most
POOR, EMPTY = 0.3, 0.15  # shares of boxes that likely, and certainly, lie elsewhere
FAST = 2.0  # metres a second: objects that move
PERIOD = 0.1  # seconds, of a lidar of one sweep


def check_boxes(sample: Sample) -> Iterator[Verdict]:
    capture = labelled(sample.capture)
    if len(capture.tracks) == 0:
        return
    yield from impossible_tracks(capture)
    # labels of sensors jump with the poses
    odd = [] if sample.blamed("poses") or sample.jumps() else list(odd_motions(capture.tracks, capture.name))
    found = list(_against_sweeps(sample, capture, bool(odd)))
    elsewhere = any(verdict.level in DOUBTS for verdict in found)  # such boxes move along other axes, too
    yield from (verdict for verdict in odd if not (elsewhere and BACKWARDS in verdict.figures))
    yield from found


def _against_sweeps(
    sample: Sample,
    capture: Capture,
    odd: bool,  # whether single tracks are named already
) -> Iterator[Verdict]:
    if not capture.sweeps:
        yield _unknown(capture, "Without a lidar nothing says where the boxes lie.")
        return
    if any(APART in verdict.figures for verdict in sample.found):
        yield _unknown(
            capture, "While sensors put the rig at two places at one time, sweeps do not say where the boxes lie."
        )
        return
    rays = returned_rays(sample)
    said = fit_boxes(rays, capture.tracks)
    best = _best(sample, capture, rays, said)
    wrong = sample.blamed("poses", "rays") or any(OFFSET in verdict.figures for verdict in sample.found)
    wrong = wrong or (_doubted(sample, "poses") and _held_at_times(rays, capture.tracks))
    if best is not None and not wrong:
        yield _named(capture, said, *best)
    elif late := None if wrong else _late(sample, capture):
        yield Verdict(NAME, capture.name, Level.LIKELY, *late)
    elif few(said):
        yield _unknown(
            capture, f"Too few boxes lie within {FARTHEST:.0f} m of the lidar to compare them with its returns."
        )
    elif wrong and said.share < POOR:
        yield _unknown(capture, "While the poses or the rays seem wrong, sweeps do not say where the boxes lie.")
    else:
        yield from ([] if odd else _of_single_tracks(sample, capture, said)) or [_as_said(capture, said)]


def _doubted(sample: Sample, *checks: str) -> bool:
    return any(v.check.startswith(checks) and v.level in DOUBTS for v in sample.found)


def _held_at_times(rays: list[Rays], tracks: Tracks) -> bool:
    """Whether boxes lie on objects in some sweep, as where poses drift away from those that placed the boxes."""
    fits = [fit_boxes([one], tracks) for one in rays]
    return any(len(fit) >= TRACKS and fit.share >= SAFE for fit in fits)


def _late(sample: Sample, capture: Capture) -> tuple[str, str] | None:
    """A sentence and a remedy, if boxes that move have other times."""
    numbers = moving(capture.tracks)
    at = partial(fit_moving, sample, capture.tracks, numbers)
    return moving_elsewhere(at, numbers) or a_little_late(at, partial(_with_more, sample, capture, numbers), numbers)


def _with_more(sample: Sample, capture: Capture, numbers: list[int]) -> FitAt:
    return partial(fit_late, _more_rays(sample, capture), capture.tracks, numbers)


def _more_rays(sample: Sample, capture: Capture) -> list[Rays]:
    return [rays_of(sample, frame) for lidar in capture.lidars for frame in sample.decoded(lidar.name)]


def _of_single_tracks(sample: Sample, capture: Capture, said: BoxFit) -> list[Verdict]:
    """Findings about tracks that lie elsewhere, while most lie on objects."""
    doubted = _doubted(sample, "poses", "rays")
    tracks, those = capture.tracks, moving(capture.tracks)
    numbers = may_be_odd(tracks, said, those) if some_right(said) and not doubted else []
    if not numbers:
        return []
    found = [
        odd
        for odd in odd_tracks(_more_rays(sample, capture), tracks, numbers, those)
        if odd.meaning or said.share >= SAFE
    ]
    return [Verdict(NAME, name, Level.LIKELY, sentence, remedy) for name, sentence, remedy in sentences_of(found)]


def labelled(capture: Capture) -> Capture:
    """The capture without tracks from its sweeps, since these always agree with them."""
    kept = [k for k, name in enumerate(capture.tracks.ids) if not name.startswith(FOUND)]
    return replace(capture, tracks=capture.tracks.select(kept))


def few(found: BoxFit) -> bool:
    return found.fewer(BOXES, TRACKS)


def _unknown(capture: Capture, sentence: str) -> Verdict:
    return Verdict(NAME, capture.name, Level.UNKNOWN, sentence)


def _period(capture: Capture) -> float:  # seconds
    starts = [frame.time_mid for frame in capture.sweeps if frame.sensor == capture.sweeps[0].sensor]
    return float(torch.tensor(starts).diff().median()) if len(starts) > 1 else PERIOD


def moving_works(sample: Sample) -> Iterator[Callable[[], BoxFit]]:
    """Fits that the check needs in any case, if enough objects move."""
    capture = labelled(sample.capture)
    numbers = moving(capture.tracks)
    if capture.sweeps and len(numbers) >= TRACKS:
        late = [guess.late for guess in guesses(capture, trajectory_of(capture), _period(capture))]
        known = {round(seconds, 3): seconds for seconds in (0.0, *LITTLE, *late) if seconds is not None}
        yield from (partial(fit_moving, sample, capture.tracks, numbers, seconds) for seconds in known.values())


def _best(sample: Sample, capture: Capture, rays: list[Rays], said: BoxFit) -> tuple[BoxGuess, BoxFit] | None:
    """The reading that fits best, the first of those that fit alike, if it is better than the capture's."""
    safe = said.share >= SAFE and not few(said)
    those, found = moving(capture.tracks), list[tuple[float, BoxGuess, BoxFit]]()
    for guess in guesses(capture, trajectory_of(capture), _period(capture)):
        late = guess.late
        if (late is None and safe) or (late is not None and len(those) < TRACKS):
            continue
        numbers = list(range(len(capture.tracks))) if late is None else those
        if late is not None and not _may_fit(sample, capture, said, late, those):
            continue
        fit = _fitted(rays, guess)
        if fit is not None and not few(fit) and fit.share >= guess.least and _fits(fit, said, numbers, BETTER):
            found.append((fit.above(said, numbers)[0] if len(said) else fit.share, guess, fit))
    highest = max((score for score, _, _ in found), default=0.0)
    alike = [(guess, fit) for score, guess, fit in found if score >= highest - ALIKE]
    most = max((float(fit.returns.median()) for _, fit in alike), default=0.0)
    return next(((guess, fit) for guess, fit in alike if float(fit.returns.median()) >= MANY * most), None)


def _may_fit(sample: Sample, capture: Capture, said: BoxFit, late: float, those: list[int]) -> bool:
    """Whether the boxes that move fit better. They are few, and boxes that stand fit any such guess alike."""
    return len(said) < BOXES or _above(fit_moving(sample, capture.tracks, those, late), said, those, BETTER)


def _fitted(rays: list[Rays], guess: BoxGuess) -> BoxFit | None:
    try:
        return fit_boxes(rays, guess.tracks())
    except CaptureError:  # frames that the drive has not
        return None


def _fits(fit: BoxFit, said: BoxFit, numbers: list[int], bar: tuple[float, float]) -> bool:
    if fit.share < GOOD or said.share > RATIO * fit.share:
        return False
    return len(said) < BOXES or _above(fit, said, numbers, bar)


def _above(fit: BoxFit, said: BoxFit, numbers: list[int], bar: tuple[float, float]) -> bool:
    apart, errors = fit.above(said, numbers)
    return apart >= bar[0] and errors >= bar[1]


def moving(tracks: Tracks) -> list[int]:
    rows = [slice(a, b) for a, b in zip(tracks.offsets, tracks.offsets[1:], strict=False)]
    ways = [float((tracks.translations[r][-1] - tracks.translations[r][0]).norm()) for r in rows]
    spans = [float(tracks.times[r][-1] - tracks.times[r][0]) for r in rows]
    return [
        k for k, (way, span) in enumerate(zip(ways, spans, strict=True)) if way > FAST * max(span, 1e-9) and span > 0
    ]


def _figures(found: BoxFit) -> dict[str, float]:
    returns = float(found.returns.median()) if len(found) else 0.0
    return {"returns": returns, "share": found.share, "boxes": float(len(found))}


def _named(capture: Capture, said: BoxFit, guess: BoxGuess, fit: BoxFit) -> Verdict:
    numbers = list(range(len(capture.tracks))) if guess.late is None else moving(capture.tracks)
    sure = guess.late is None and _fits(fit, said, numbers, SURELY)
    own, other = _figures(said), _figures(fit)
    sentence = (
        f"The boxes of the tracks do not lie where the lidar sees objects: they hold {own['returns']:.0f} returns in the median "
        f"and {100 * own['share']:.0f} % of their returns; they hold {other['returns']:.0f} and {100 * other['share']:.0f} % "
        f"if {guess.meaning}."
    )
    return Verdict(NAME, capture.name, Level.CERTAIN if sure else Level.LIKELY, sentence, guess.remedy, own)


def _as_said(capture: Capture, said: BoxFit) -> Verdict:
    own = _figures(said)
    held = f"{own['returns']:.0f} returns in the median and {100 * own['share']:.0f} % of their returns"
    if said.share >= POOR:
        return Verdict(NAME, capture.name, Level.RIGHT, f"The boxes of the tracks hold {held}.", figures=own)
    sentence = f"The boxes of the tracks do not lie where the lidar sees objects: they hold {held}."
    level = Level.CERTAIN if said.share < EMPTY else Level.LIKELY
    return Verdict(
        NAME, capture.name, level, sentence, "give the tracks of this drive, in its axes and at its times", own
    )
