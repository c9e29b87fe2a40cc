# SPDX-License-Identifier: Apache-2.0
"""Evidence of images for a guess about a camera, and the verdict that it allows.

Images of a camera share patterns: the horizon, the vehicle's own body, dark corners. Edges of a sweep can lie on such a pattern by chance,
in every image alike, so that the contrast of a wrong guess looks sure. The right guess agrees with the image of a moment better than with
images of other moments. That difference is the own contrast of a guess. It is 0 if all images are the same: they are evidence of one image.
Letters: V views.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nurec_lite.capture.checks.agreement import FASTEST
from nurec_lite.capture.checks.alignment import Fit, Views, fit, together, views_of
from nurec_lite.capture.checks.fine import speed_of
from nurec_lite.capture.checks.guesses import as_said
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.students import students
from nurec_lite.capture.checks.verdict import Level
from nurec_lite.capture.trajectory import Trajectory, trajectory_of
from nurec_lite.geometry.camera import Camera

IMAGES, POINTS = 6, 300  # images, and points in all of them, at least
STRONG = (0.06, 5.0)  # contrast, and its standard errors: sensors agree
SURE = (0.08, 6.0)  # of a guess that is named as certain
BETTER = (
    (1.25, 6.0),
    (1.5, 4.0),
)  # times the contrast as said, and standard errors above it: the guess is right instead
PERHAPS = (1.2, 3.5)
PAIRED = (1.25, 4.0)  # times the contrast as said in few images, and standard errors of the gain in more of them
APART = (1.5, 2.0)  # times the contrast as said, which does not agree: likely, certain
CLOSER = 24  # frames of a sensor that are looked at before a capture is called wrong
LIKELY, CERTAIN = 2.5, 3.5  # own contrasts above zero, in standard errors
GAIN = 2.0  # their gain over those as the capture says, in standard errors, where these are so much above 0
QUARTERS = (1, 2, 3)  # of all views: each view's edges meet the images that come so much later, in a circle


def agrees(found: Fit, bar: tuple[float, float] = STRONG) -> bool:
    contrast, errors = bar
    enough = found.images >= IMAGES and found.points >= POINTS
    return enough and found.contrast >= contrast and found.contrast >= errors * found.error


def level_of(
    sample: Sample,
    camera: Camera,
    best: Fit,
    said: Fit,
    holds: bool,  # edges agree as the capture says
) -> Level | None:  # None: the guess is not right, or nothing shows it
    plain = _apart(best, said, holds, APART[0]) or _above(best, said, PERHAPS)
    if not (agrees(best) and (plain or best.contrast >= PAIRED[0] * said.contrast)):
        return None
    sure = agrees(best, SURE) and (
        _apart(best, said, holds, APART[1]) or any(_above(best, said, bar) for bar in BETTER)
    )
    views, path = together(views_of(closer_look(sample), camera)), trajectory_of(sample.capture)
    if speed_of(sample.capture, camera, views.frames) <= FASTEST:  # all images show the same
        return Level.LIKELY if sure else None
    found = evidence(views, best, said, path)
    if not plain and not found.gains(PAIRED[1]):
        return None
    if sure and found.shows(CERTAIN):
        return Level.CERTAIN
    return Level.LIKELY if found.shows(LIKELY) else None


def closer_look(sample: Sample) -> Sample:
    """Returns a sample of more frames, for a capture that seems wrong."""
    images, sweeps = (None if most is None else max(most, CLOSER) for most in (sample.images, sample.sweeps))
    return sample.kept("closer", lambda: Sample(sample.capture, images, sweeps, sample.found))


def _apart(best: Fit, said: Fit, holds: bool, times: float) -> bool:
    """Whether the guess agrees and the capture does not."""
    return not holds and best.least >= times * said.least


def _above(best: Fit, said: Fit, bar: tuple[float, float]) -> bool:
    times, errors = bar
    return best.contrast >= times * said.contrast and best.above(said) >= errors


@dataclass(frozen=True)
class Evidence:
    """Own contrasts [V], NaN where too few edges fall into the image."""

    guess: Tensor
    said: Tensor  # of the capture as it is

    def shows(self, errors: float) -> bool:
        """Whether the guess is right by so many standard errors, and better than the capture as it is, if that agrees with its images."""
        better = self.gains(GAIN) if _sure(self.said, GAIN) else True
        return better and _sure(self.guess, errors)

    def gains(self, errors: float) -> bool:
        return _sure(self.guess - self.said, errors)


def evidence(views: Views, best: Fit, said: Fit, path: Trajectory) -> Evidence:
    return Evidence(_own(views, best, path), _own(views, said, path))


def _own(views: Views, found: Fit, path: Trajectory) -> Tensor:  # [V]
    shifts = sorted({max(1, len(views) * quarter // 4) for quarter in QUARTERS})
    others = [fit(replace(views, ranks=views.ranks.roll(k, 0)), found.guess, path).contrasts for k in shifts]
    return fit(views, found.guess, path).contrasts - torch.stack(others).mean(0)


def _sure(values: Tensor, errors: float) -> bool:
    """Whether the mean is positive by so many standard errors, or by as many more as few values need."""
    known = values[~values.isnan()]
    if len(known) < IMAGES:
        return False
    error = float(known.std()) / math.sqrt(len(known))
    return float(known.mean()) > students(errors, len(known) - 1) * error


def said_fit(sample: Sample, camera: Camera) -> Fit:
    """The fit of the capture's own data."""

    def make() -> Fit:
        return fit(together(views_of(sample, camera)), as_said(camera), trajectory_of(sample.capture))

    return sample.kept(("said", camera.name), make)
