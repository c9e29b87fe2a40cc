# SPDX-License-Identifier: Apache-2.0
"""Cameras with rolling shutters that read rows, or columns, the other way.

Edges of sweeps then lie ahead of those of the images in one half of an image, and behind them in the other half.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch.nn import functional as F

from nurec_lite.capture.checks.alignment import Fit, Views, fit, look_aside, seen_at, together, views_of
from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.ends import BACK
from nurec_lite.capture.checks.evidence import agrees, closer_look, said_fit
from nurec_lite.capture.checks.found import Found
from nurec_lite.capture.checks.guesses import Guess, as_said
from nurec_lite.capture.checks.half_turns import above
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level
from nurec_lite.capture.trajectory import Trajectory, trajectory_of
from nurec_lite.geometry.camera import Camera

OTHER_WAY = {
    "top_to_bottom": "bottom_to_top",
    "bottom_to_top": "top_to_bottom",
    "left_to_right": "right_to_left",
    "right_to_left": "left_to_right",
}
LITTLE, ALONE = 0.05, 0.1  # degrees that edges move in the mean, at least: of cameras that agree, and of one alone
SOME = 8  # one of so many edges tells how they move
PERHAPS, SURE = 1.0, 4.0  # standard errors that edges agree better by, in few images and in more of them
NO_OTHER = 2.5  # the same above a camera with another direction or clock
SECONDS = (-0.02, -0.01, 0.01, 0.02)  # that clocks are off in those


@dataclass(frozen=True)
class Read:
    """Fits of one camera."""

    camera: Camera
    said: Fit
    other: Fit  # of the shutter that reads the other way
    degrees: float  # that edges move in the mean


def reversed_shutters(sample: Sample, found: Sequence[Found]) -> list[Found]:
    """The findings, with one for each camera that reads the other way instead of those about it."""
    reads = [read for camera in sample.capture.cameras for read in glance(sample, camera)]
    if any(BACK in verdict.figures for verdict in sample.found):
        return list(found)
    if not any(above([(read.said, read.other)], PERHAPS) for read in reads) or sample.blamed("poses", "rays"):
        return list(found)
    more = closer_look(sample)
    looks = [look for read in reads for look in _with_rival(more, read.camera)]
    sure = [read for read, _ in looks] if len(looks) > 1 and _all(looks) else []
    sure = sure or [read for read, rival in looks if read.degrees >= ALONE and _all([(read, rival)])]
    odd = {read.camera.name: _found(read) for read in sure}
    return [known for known in found if known.camera.name not in odd] + list(odd.values())


def glance(sample: Sample, camera: Camera) -> list[Read]:
    """Fits in few images; none of a camera with a global shutter, or where its edges do not agree or hardly move."""
    return sample.kept(("shutter", camera.name), partial(_glance, sample, camera))


def _glance(sample: Sample, camera: Camera) -> list[Read]:
    views = views_of(sample, camera) if camera.shutter in OTHER_WAY else []
    if not views or not agrees(said_fit(sample, camera)):
        return []
    stacked, path = together(views), trajectory_of(sample.capture)
    degrees = _degrees(stacked, camera, path)
    return [_read(stacked, camera, path, degrees, said_fit(sample, camera))] if degrees >= LITTLE else []


def _read(views: Views, camera: Camera, path: Trajectory, degrees: float, said: Fit) -> Read:
    return Read(camera, said, fit(views, as_said(_other_way(camera)), path), degrees)


def _other_way(camera: Camera) -> Camera:
    return replace(camera, shutter=OTHER_WAY[camera.shutter])


def _degrees(views: Views, camera: Camera, path: Trajectory) -> float:
    """Mean angle between the directions of edges in the image as its rows are read one way and the other."""
    some = replace(views, points=views.points[:, ::SOME])
    one, other = (seen_at(some, as_said(c), path) for c in (camera, _other_way(camera)))
    apart = torch.rad2deg((F.normalize(one[0], dim=-1) - F.normalize(other[0], dim=-1)).norm(dim=-1))[one[1]]
    return float(apart.mean()) if len(apart) else 0.0


def _with_rival(sample: Sample, camera: Camera) -> list[tuple[Read, Fit]]:
    """The fits in more images, and the best one of a camera with another direction or clock that reads as it says."""
    views, path = together(views_of(sample, camera)), trajectory_of(sample.capture)
    said = said_fit(sample, camera)
    guesses = [look_aside(views, camera, path), *(Guess("", camera, seconds=seconds) for seconds in SECONDS)]
    rival = max((said, *(fit(views, guess, path) for guess in guesses)), key=lambda known: known.contrast)
    return [(_read(views, camera, path, _degrees(views, camera, path), said), rival)]


def _all(looks: Sequence[tuple[Read, Fit]]) -> bool:
    """Whether all cameras agree better with edges if they read the other way."""
    gain = all(read.other.contrast > read.said.contrast for read, _ in looks)
    sure = gain and above([(read.said, read.other) for read, _ in looks], SURE)
    return sure and above([(rival, read.other) for read, rival in looks], NO_OTHER)


def _found(read: Read) -> Found:
    said, other = (c.shutter.replace("_", " ") for c in (read.camera, _other_way(read.camera)))
    sentence = (
        f"Edges of the lidar agree with those of the images of {{cameras}} if the shutter reads from {other} (contrast {{guessed:.3f}}), "
        f"not from {said} ({{said:.3f}})."
    )
    remedy = f"set the shutter to {_other_way(read.camera).shutter} {MADE}"
    figures = {"said": read.said.contrast, "guessed": read.other.contrast, "degrees_by_rows": read.degrees}
    guess = Guess(f"the shutter reads from {other}", _other_way(read.camera), remedy)
    return Found(read.camera, Level.LIKELY, read.said, sentence, remedy, figures, guess)
