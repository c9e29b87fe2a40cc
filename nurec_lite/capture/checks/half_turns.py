# SPDX-License-Identifier: Apache-2.0
"""Times of rays that are off by half a turn: rays of the first half of a sweep have times of the second half.

Edges of the sweeps then lie ahead of those of the images on one side of the lidar, and behind them on the other side.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from nurec_lite.capture.checks.alignment import (
    APART,
    Fit,
    Views,
    fit,
    look_aside,
    rays_at_edges,
    together,
    unmasked,
    views_of,
)
from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.corrected import half_a_turn_later, half_turns
from nurec_lite.capture.checks.edges import View
from nurec_lite.capture.checks.evidence import IMAGES, closer_look
from nurec_lite.capture.checks.guesses import as_said, clocks
from nurec_lite.capture.checks.placed import elsewhere
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.students import students
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.deskew import world_points
from nurec_lite.capture.trajectory import nearest, trajectory_of
from nurec_lite.capture.types import SweepFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.lidar import Lidar

NAME = "times of rays"
HALF_TURN = "half_turn_s"  # figure of these verdicts alone
PERHAPS, SURE = 1.0, 4.0  # standard errors that edges agree better by, in few images and in more of them
NO_OTHER = 3.5  # the same above a camera with another clock, direction or place


def half_turned(sample: Sample, lidar: Lidar) -> Verdict | None:
    """A finding; None: the times are right, or nothing tells it."""
    return sample.kept(("half turned", lidar.name), partial(_half_turned, sample, lidar))


def glance(sample: Sample, lidar: Lidar, camera: Camera) -> list[tuple[Fit, Fit]]:
    """A camera's fits as the capture says, and with times that are half a turn off; none where no sweep is of its moments."""
    return sample.kept(("half turn", lidar.name, camera.name), partial(_glance, sample, lidar, camera))


def _glance(sample: Sample, lidar: Lidar, camera: Camera) -> list[tuple[Fit, Fit]]:
    path, guess = trajectory_of(sample.capture), as_said(camera)
    return [(fit(said, guess, path), fit(half, guess, path)) for said, half in _views(sample, lidar, camera)]


def _half_turned(sample: Sample, lidar: Lidar) -> Verdict | None:
    cameras = sample.capture.cameras
    blamed = sample.blamed("poses", "rays") or not lidar.spins
    if blamed or not above(
        [(said, half) for camera in cameras for said, half in glance(sample, lidar, camera)], PERHAPS
    ):
        return None
    more = closer_look(sample)
    known = [fits for camera in cameras for fits in _with_rival(more, lidar, camera)]
    sure = above([(said, half) for said, half, _ in known], SURE)
    if not (sure and above([(rival, half) for _, half, rival in known], NO_OTHER)):
        return None
    said, guessed = (sum(fits[k].contrast for fits in known) / len(known) for k in (0, 1))
    return _verdict(sample, lidar, said, guessed)


def _verdict(sample: Sample, lidar: Lidar, said: float, guessed: float) -> Verdict:
    seconds = _seconds(sample, lidar)
    sentence = (
        f"Edges of {lidar.name} agree with those of the images if the times of its rays are half a turn off (contrast {guessed:.2f}), not "
        f"as the capture says ({said:.2f})."
    )
    remedy = f"add {seconds:.3f} s to the times of the first half of each sweep, and subtract it from those of the second half,"
    figures = {HALF_TURN: seconds, "said": said, "guessed": guessed}
    return Verdict(
        NAME, lidar.name, Level.LIKELY, sentence, f"{remedy} {MADE}", figures, partial(half_turns, lidar.name)
    )


def _with_rival(sample: Sample, lidar: Lidar, camera: Camera) -> list[tuple[Fit, Fit, Fit]]:
    """Fits of a glance, and the best one of a camera with another clock, direction or place."""
    path, said_guess = trajectory_of(sample.capture), as_said(camera)
    found = list[tuple[Fit, Fit, Fit]]()
    for views, half in _views(sample, lidar, camera):
        guesses = [look_aside(views, camera, path), *clocks(camera, 2 * _seconds(sample, lidar))]
        said, *others = (fit(views, guess, path) for guess in (said_guess, *guesses))
        rival = max((said, *others, elsewhere(views, camera, path)), key=lambda known: known.contrast)
        found.append((said, fit(half, said_guess, path), rival))
    return found


def above(pairs: Sequence[tuple[Fit, Fit]], errors: float) -> bool:
    """Whether contrasts of the second fits exceed those of the first ones by so many standard errors, or by as many more as few need."""
    gains = torch.cat([torch.zeros(0), *(second.contrasts - first.contrasts for first, second in pairs)])
    known = gains[~gains.isnan()]
    if len(known) < IMAGES:
        return False
    return float(known.mean()) > students(errors, len(known) - 1) * float(known.std()) / math.sqrt(len(known))


def _seconds(sample: Sample, lidar: Lidar) -> float:
    lengths = [frame.time_end - frame.time_start for frame in sample.of_lidar(lidar.name)]
    return 0.5 * float(torch.tensor(lengths).median())


def _views(sample: Sample, lidar: Lidar, camera: Camera) -> list[tuple[Views, Views]]:
    """Views with the edges of this lidar alone: as the capture says, and with times that are half a turn off."""
    sweeps = sample.of_lidar(lidar.name)
    seen = [both for view in views_of(sample, camera) if sweeps for both in _both(sample, lidar, camera, view, sweeps)]
    return [(together([said for said, _ in seen]), together([half for _, half in seen]))] if seen else []


def _both(
    sample: Sample, lidar: Lidar, camera: Camera, view: View, sweeps: Sequence[SweepFrame]
) -> list[tuple[View, View]]:
    sweep = nearest(sweeps, view.frame.time_mid)
    if abs(sweep.time_mid - view.frame.time_mid) > APART:
        return []
    rays = rays_at_edges(sample, sweep)
    points = (world_points(sweep, timed, lidar) for timed in (rays, half_a_turn_later(rays, sweep)))
    said, half = (replace(view, points=unmasked(camera, view.frame, seen)) for seen in points)
    return [(said, half)]
