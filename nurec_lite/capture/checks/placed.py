# SPDX-License-Identifier: Apache-2.0
"""A camera that sits or looks elsewhere than the capture says, along an axis of the rig, up or down, or about its view."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nurec_lite.capture.checks.alignment import Fit, Views, fit
from nurec_lite.capture.checks.guesses import Guess
from nurec_lite.capture.trajectory import Trajectory
from nurec_lite.geometry.camera import Camera

METRES, MOST_METRES = 0.5, 3.0  # step, and the farthest that is tried on either side
UP, ABOUT, MOST_DEGREES = (
    2.0,
    3.0,
    20.0,
)  # the same for a camera that is pitched, and for one that is rolled
ROUNDS = 2  # each halves the step about the best one


@dataclass(frozen=True)
class Kind:
    """One way in which a mounting can be off."""

    words: tuple[str, str]  # for a positive and a negative amount, which stands in the braces
    step: float
    most: float
    placed: Callable[[Tensor, float], Tensor]  # T_rig_cam [4, 4] and the amount -> T_rig_cam


def _along(axis: int) -> Callable[[Tensor, float], Tensor]:
    def placed(T_rig_cam: Tensor, metres: float) -> Tensor:
        T = T_rig_cam.clone()
        T[axis, 3] += metres
        return T

    return placed


def _about(axis: int) -> Callable[[Tensor, float], Tensor]:
    """A turn about one of the camera's own axes."""

    def placed(T_rig_cam: Tensor, degrees: float) -> Tensor:
        c, s, i, j = math.cos(math.radians(degrees)), math.sin(math.radians(degrees)), (axis + 1) % 3, (axis + 2) % 3
        turn = torch.eye(4, dtype=torch.float64)
        turn[i, i], turn[i, j], turn[j, i], turn[j, j] = c, -s, s, c
        return T_rig_cam @ turn

    return placed


AHEAD = Kind(("sits {:.1f} m farther ahead", "sits {:.1f} m farther back"), METRES, MOST_METRES, _along(0))
ABOUT_VIEW = ("is turned {:.0f}° about its view, clockwise", "is turned {:.0f}° about its view, counter-clockwise")
KINDS = (
    Kind(("looks {:.0f}° farther up", "looks {:.0f}° farther down"), UP, MOST_DEGREES, _about(0)),
    Kind(ABOUT_VIEW, ABOUT, MOST_DEGREES, _about(2)),
    AHEAD,
    Kind(("sits {:.1f} m farther left", "sits {:.1f} m farther right"), METRES, MOST_METRES, _along(1)),
    Kind(("sits {:.1f} m farther up", "sits {:.1f} m farther down"), METRES, MOST_METRES, _along(2)),
)


def elsewhere(views: Views, camera: Camera, path: Trajectory, kinds: tuple[Kind, ...] = KINDS) -> Fit:
    """Fit of the place at which edges agree best."""
    return max((_best_amount(views, camera, path, kind) for kind in kinds), key=lambda found: found.least)


def _best_amount(views: Views, camera: Camera, path: Trajectory, kind: Kind) -> Fit:
    def fitted(amount: float) -> tuple[float, float]:
        found = fit(views, _guess(camera, kind, amount), path, quick=True)
        seen = 2 * found.images > len(views)  # a few images agree by chance
        return found.least if seen else -1.0, amount

    steps, step = range(1, int(kind.most / kind.step) + 1), kind.step
    best = max(fitted(sign * k * step) for k in steps for sign in (1, -1))
    for _ in range(ROUNDS):
        step /= 2
        best = max([best, *(fitted(best[1] + way) for way in (-step, step) if best[1] + way)])
    return fit(views, _guess(camera, kind, best[1]), path)


def _guess(camera: Camera, kind: Kind, amount: float) -> Guess:
    name = f"the camera {kind.words[int(amount < 0)].format(abs(amount))}"
    return Guess(name, replace(camera, T_rig_cam=kind.placed(camera.T_rig_cam, amount)), "correct its mounting")
