# SPDX-License-Identifier: Apache-2.0
"""A camera that sits or looks elsewhere than the capture says, along an axis of the rig, up or down, or about its view, or that has
another focal length."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from nurec_lite.capture.checks.alignment import Fit, Views, fit
from nurec_lite.capture.checks.guesses import ZOOMED, Guess, as_said
from nurec_lite.capture.trajectory import Trajectory
from nurec_lite.geometry.camera import Camera

METRES, MOST_METRES = 0.5, 3.0  # step, and the farthest that is tried on either side
UP, ABOUT, MOST_DEGREES = 2.0, 3.0, 20.0  # the same for a camera that is pitched, and for one that is rolled
LONGER, MOST_OCTAVES = 0.2, 1.0  # the same for a focal length, in powers of 2
GLANCE = 1.1  # times the contrast as said that a glance shows
ROUNDS = 2  # each halves the step about the best one


@dataclass(frozen=True)
class Kind:
    """One possible error of a camera."""

    name: str
    words: tuple[str, str]  # for a positive and a negative amount, which stands in the braces
    step: float
    most: float
    changed: Callable[[Camera, float], Camera]  # by an amount
    remedy: str = "correct its mounting"

    def guess(self, camera: Camera, amount: float) -> Guess:
        meaning = self.words[int(amount < 0)].format(abs(amount), 2.0**amount)
        return Guess(meaning, self.changed(camera, amount), self.remedy, kind=self.name, amount=amount)


def _along(axis: int) -> Callable[[Camera, float], Camera]:
    def placed(camera: Camera, metres: float) -> Camera:
        T = camera.T_rig_cam.clone()
        T[axis, 3] += metres
        return replace(camera, T_rig_cam=T)

    return placed


def _about(axis: int) -> Callable[[Camera, float], Camera]:
    """A turn about one of the camera's own axes."""

    def placed(camera: Camera, degrees: float) -> Camera:
        c, s, i, j = math.cos(math.radians(degrees)), math.sin(math.radians(degrees)), (axis + 1) % 3, (axis + 2) % 3
        turn = torch.eye(4, dtype=torch.float64)
        turn[i, i], turn[i, j], turn[j, i], turn[j, j] = c, -s, s, c
        return replace(camera, T_rig_cam=camera.T_rig_cam @ turn)

    return placed


def _zoomed(camera: Camera, octaves: float) -> Camera:
    return replace(camera, fx=camera.fx * 2**octaves, fy=camera.fy * 2**octaves)


def _words(text: str, *ways: str) -> tuple[str, str]:
    return f"the camera {text}{ways[0]}", f"the camera {text}{ways[1]}"


AHEAD = Kind("ahead", _words("sits {:.1f} m farther ", "ahead", "back"), METRES, MOST_METRES, _along(0))
ABOUT_VIEW = _words("is turned {:.0f}° about its view, ", "clockwise", "counter-clockwise")
ZOOM = Kind(
    ZOOMED,
    ("fx and fy are {1:.2f} times those of the capture",) * 2,
    LONGER,
    MOST_OCTAVES,
    _zoomed,
    "correct fx and fy",
)
PITCH = Kind("pitch", _words("looks {:.0f}° farther ", "up", "down"), UP, MOST_DEGREES, _about(0))
KINDS = (
    PITCH,
    Kind("roll", ABOUT_VIEW, ABOUT, MOST_DEGREES, _about(2)),
    AHEAD,
    Kind("left", _words("sits {:.1f} m farther ", "left", "right"), METRES, MOST_METRES, _along(1)),
    Kind("up", _words("sits {:.1f} m farther ", "up", "down"), METRES, MOST_METRES, _along(2)),
    ZOOM,
)


def elsewhere(
    views: Views, camera: Camera, path: Trajectory, kinds: tuple[Kind, ...] = KINDS, quick: bool = True
) -> Fit:
    """Fit of the place with the best agreement of edges."""
    return max((_best_amount(views, camera, path, kind, quick) for kind in kinds), key=lambda found: found.least)


def worth_a_look(
    views: Views,
    camera: Camera,
    path: Trajectory,
) -> bool:
    """Whether edges agree better a step to some side: a glance at few amounts, for cameras with edges that agree well enough."""
    said = fit(views, as_said(camera), path, quick=True)
    near = (kind.guess(camera, sign * kind.step) for kind in KINDS for sign in (1, -1))
    return any(fit(views, guess, path, quick=True).contrast > GLANCE * said.contrast for guess in near)


def _best_amount(views: Views, camera: Camera, path: Trajectory, kind: Kind, quick: bool) -> Fit:
    def fitted(amount: float) -> tuple[float, float]:
        found = fit(views, kind.guess(camera, amount), path, quick=quick)
        seen = 2 * found.images > len(views)  # a few images agree by chance
        return found.least if seen else -1.0, amount

    steps, step = range(1, round(kind.most / kind.step) + 1), kind.step
    best = max(fitted(sign * k * step) for k in steps for sign in (1, -1))
    for _ in range(ROUNDS):
        step /= 2
        best = max([best, *(fitted(best[1] + way) for way in (-step, step) if best[1] + way)])
    return fit(views, kind.guess(camera, best[1]), path)
