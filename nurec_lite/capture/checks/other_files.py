# SPDX-License-Identifier: Apache-2.0
"""Other readings of a drive's files, or a place that is missing, instead of a finding about one camera: a mounting that is wrong in the
files looks like a camera that is off by some amount, or like a clock."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from nurec_lite.capture.checks.alignment import Fit, Views, fit, together, views_of
from nurec_lite.capture.checks.evidence import agrees, closer_look
from nurec_lite.capture.checks.found import Found
from nurec_lite.capture.checks.guesses import READINGS, Guess, as_said, missing_places, mountings, read_otherwise
from nurec_lite.capture.checks.placed import KINDS, elsewhere
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.trajectory import Trajectory, trajectory_of
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.camera import Camera

SAME = 0.999  # of another guess's contrast: no worse
ALIKE = 0.9  # of it, where another camera shows the reading
GAIN = 1.03  # times the contrast as the capture says, at least
# of another guess's contrast: zeros in a file that never has any, and in a mounting that may have them
ZEROS, PERHAPS = 0.9, 1.12
PLACES = tuple(kind for kind in KINDS if kind.name in ("ahead", "left", "up"))
ROUNDS = 4  # each moves a missing place along one axis
DOUBTS = (Level.CERTAIN, Level.LIKELY)
# checks that the lidar's mounting misleads, and checks of boxes, which stand in a camera's axes in their file
ON_THE_LIDAR, LABELS = ("rays and beams", "poses and driving", "poses and sweeps"), ("boxes and sweeps", "tracks")


def instead(
    capture: Capture,
    camera: Camera,
    views: Views,
    path: Trajectory,
    said: Fit,  # of the capture's own data
    found: Fit,  # of the guess, which agrees better
) -> Fit | None:
    """The reading that agrees no worse than another guess; None: there is none, or the guess is such a reading."""
    if found.guess.kind in READINGS:
        return None
    known = [f for part, f in _readings(capture, camera, views, path) if f.contrast >= part * found.contrast]
    known = [f for f in known if agrees(f) and f.contrast >= GAIN * said.contrast]
    return max(known, key=lambda f: f.contrast, default=None)


def _readings(capture: Capture, camera: Camera, views: Views, path: Trajectory) -> Iterator[tuple[float, Fit]]:
    """Fits, each with the part of another guess's contrast that it needs."""
    known = chain(mountings(capture, camera), read_otherwise(capture, camera))
    yield from ((SAME, fit(views, guess, path)) for guess in known)
    part = ZEROS if capture.mountings else PERHAPS
    yield from ((part, _placed(views, guess, path)) for guess in missing_places(capture, camera))


def _placed(views: Views, guess: Guess, path: Trajectory) -> Fit:
    """The fit at the best place near a guess's, within some metres along each axis of the rig."""
    best = fit(views, guess, path)
    for _ in range(ROUNDS):
        other = elsewhere(views, best.guess.camera, path, PLACES)
        if other.contrast <= best.contrast:
            break
        best = other
    return replace(best, guess=replace(guess, camera=best.guess.camera))


def as_others(sample: Sample, found: Found, every: Sequence[Found]) -> Found:
    """The finding, or the reading of the files that another camera shows if it agrees about as well."""
    names = {f.guess.name for f in every if f.level in DOUBTS and f.guess and f.guess.kind in READINGS}
    own = found.guess
    if not names or found.level not in DOUBTS or (own and own.kind in READINGS):
        return found
    views, path = together(views_of(closer_look(sample), found.camera)), trajectory_of(sample.capture)
    least = ALIKE * fit(views, own or as_said(found.camera), path).contrast
    known = [f for _, f in _readings(sample.capture, found.camera, views, path) if f.guess.name in names]
    best = max((f for f in known if agrees(f) and f.contrast >= least), key=lambda f: f.contrast, default=None)
    if best is None:
        return found
    like = next(f for f in every if f.guess and f.guess.name == best.guess.name)
    figures = {"said": fit(views, as_said(found.camera), path).contrast, "guessed": best.contrast}
    return replace(like, camera=found.camera, level=found.level, figures=figures, guess=best.guess)


def without_what_follows(capture: Capture, check: str, verdicts: Sequence[Verdict]) -> list[Verdict] | None:
    """The verdicts without those that follow from the readings of the files that cameras show; None: they show none."""
    doubted = [v.sentence for v in verdicts if v.check == check and v.level in DOUBTS]
    read = [m for m in capture.mountings if any(m.meaning in sentence for sentence in doubted)]
    if not read:
        return None
    lidar, boxes = any(m.of_lidar for m in read), bool(capture.labels) and any(m.of_labels for m in read)
    following = (*(ON_THE_LIDAR if lidar else ()), *(LABELS if boxes else ()))
    return [v for v in verdicts if v.level not in DOUBTS or v.check not in following]
