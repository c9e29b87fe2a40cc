# SPDX-License-Identifier: Apache-2.0
"""The best turn of a camera to the side, and delay of its clock, by edges, near the capture's own values.

Letters: V views, P points, T turns, K offsets.
"""

import math

import torch
from torch import Tensor

from nurec_lite.capture.checks.agreed import ERRORS, Agreement
from nurec_lite.capture.checks.alignment import FEWEST, MOST
from nurec_lite.capture.checks.edges import View, edges_at, in_camera, pixel_degrees, thinned, turned
from nurec_lite.capture.checks.students import students
from nurec_lite.capture.trajectory import velocities
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.camera import Camera

VIEWS = 6  # at least
GROUPS = 8  # of views: the change without one of them shows how sure a figure is
FASTEST = 1.0  # metres a second: of a slower vehicle nothing tells the time
VARIES = 1.3  # times the speed of the slower images that the faster ones have at least, for the speed to tell anything
HALF = 3  # images of each half
STRONGEST = 6.0  # of an edge, relative to the mean edge: a stronger one counts no more
FARTHEST = 12.0  # degrees
DEGREES = torch.arange(-8, 9) * 0.1
SECONDS = torch.arange(-10, 11) * 0.01


def agreement(
    capture: Capture,
    camera: Camera,
    views: list[View],
) -> Agreement | None:  # None: too little to tell
    """Rotation and clock offset of a camera against the lidars, with the poses and mountings of the capture."""
    seen = [(view, in_camera(camera, view.frame, view.points)) for view in views]
    seen = [(view, thinned(points, MOST)) for view, points in seen if len(points) >= FEWEST]
    if len(seen) < VIEWS:
        return None
    about, degrees = _about(camera, seen), DEGREES * max(1.0, 2 * pixel_degrees(camera))
    degrees = degrees if abs(about) < float(degrees[-2]) else degrees + about
    scores = _of_one_size([_scores(capture, camera, view, points, degrees) for view, points in seen])
    groups, number = min(GROUPS, len(scores)), torch.arange(len(scores))
    left_out = [scores[number % groups != k].mean(0) for k in range(groups)]
    peaks = [_peak(mean, degrees) for mean in (scores.mean(0), *left_out)]
    if any(peak is None for peak in peaks):
        return None
    turns, offsets = torch.tensor(peaks, dtype=torch.float64).T
    (turn, turn_error), (offset, offset_error) = (_with_error(values) for values in (turns, offsets))
    few = students(ERRORS, groups - 1) / ERRORS
    if scores.shape[2] == 1:
        return Agreement(turn, turn_error, offset, math.inf, few=few)
    speeds = torch.tensor([_speed(capture, camera, view) for view, _ in seen], dtype=torch.float64)
    speeds = torch.cat([speeds[speeds > FASTEST], speeds[speeds <= FASTEST]])  # in the order of the scores
    return Agreement(turn, turn_error, offset, offset_error, _by_speed(scores, speeds, degrees), few)


def _about(camera: Camera, seen: list[tuple[View, Tensor]]) -> float:
    """The best of all turns that are tried, to a fifth of a degree."""
    degrees = torch.linspace(-FARTHEST, FARTHEST, 121)
    return float(
        degrees[torch.stack([edges_at(camera, v.ranks, turned(p, degrees))[0] for v, p in seen]).mean(0).argmax()]
    )


def _scores(
    capture: Capture, camera: Camera, view: View, points: Tensor, degrees: Tensor
) -> Tensor:  # [T, K], or [T, 1] if the vehicle stands
    """Mean strengths of the image's edges where those of the sweeps fall, zero outside of the image."""
    turn, way = velocities(capture, camera.name).at(view.frame.time_mid).split(3)
    seconds = SECONDS if way.norm() > FASTEST else torch.zeros(1)
    later = points + seconds[:, None, None] * (-way - torch.linalg.cross(turn.expand_as(points), points))  # [K, P, 3]
    moved = torch.stack([turned(at, degrees) for at in later], dim=1)
    means, inside = edges_at(camera, view.strengths.clamp(max=STRONGEST), moved)
    return means * inside


def _of_one_size(
    found: list[Tensor],  # [T, K] or [T, 1]
) -> Tensor:  # [V, T, K], or [V, T, 1] where too few images tell the time
    """Scores of one size. A camera at rest sees the same at every clock offset, so its images show rotations alone."""
    moving = [scores for scores in found if scores.shape[1] > 1]
    standing = [scores for scores in found if scores.shape[1] == 1]
    if len(moving) >= VIEWS:
        return torch.stack([*moving, *(scores.expand(-1, len(SECONDS)) for scores in standing)])
    now = int(SECONDS.abs().argmin())
    return torch.stack([*(scores[:, now : now + 1] for scores in moving), *standing])


def _by_speed(
    scores: Tensor,  # [V, T, K]
    speeds: Tensor,  # [V] metres a second
    degrees: Tensor,  # [T]
) -> tuple[float, float] | None:
    """Growth in seconds of the offset, in metres of the way, from the slower half of the images to the faster half, with
    its standard error (jackknife). None: the speed varies too little, or a half tells nothing."""
    moving = (speeds > FASTEST).nonzero()[:, 0]
    order = moving[speeds[moving].argsort()]
    halves = [order[: len(order) // 2], order[len(order) - len(order) // 2 :]]
    if len(halves[0]) < HALF or float(speeds[halves[1]].mean()) < VARIES * float(speeds[halves[0]].mean()):
        return None
    number = torch.arange(len(halves[0]))
    slopes = [_slope(scores, speeds, degrees, [half[number != k] for half in halves]) for k in (-1, *number.tolist())]
    known = [slope for slope in slopes if slope is not None]
    if len(known) < len(slopes):
        return 0.0, math.inf
    return _with_error(torch.tensor(known, dtype=torch.float64))


def _slope(scores: Tensor, speeds: Tensor, degrees: Tensor, halves: list[Tensor]) -> float | None:
    peaks, means = (
        [_peak(scores[half].mean(0), degrees) for half in halves],
        [float(speeds[half].mean()) for half in halves],
    )
    if peaks[0] is None or peaks[1] is None:
        return None
    return (peaks[1][1] * means[1] - peaks[0][1] * means[0]) / (means[1] - means[0])


def _speed(capture: Capture, camera: Camera, view: View) -> float:  # metres a second
    return float(velocities(capture, camera.name).at(view.frame.time_mid)[3:].norm())


def _with_error(values: Tensor) -> tuple[float, float]:
    """The first value, of all views, and its standard error by the others, each without one group (jackknife)."""
    left = values[1:]
    spread = (left - left.mean()).square().sum() * (len(left) - 1) / len(left)
    return float(values[0]), float(spread.sqrt())


def _peak(scores: Tensor, degrees: Tensor) -> tuple[float, float] | None:  # [T, K] -> degrees and seconds
    """Place of the highest score, between cells by a parabola along each axis; None: it lies at the border of the tried values."""
    row, column = divmod(int(scores.argmax()), scores.shape[1])
    turn = _vertex(scores[:, column], row, degrees)
    seconds = 0.0 if scores.shape[1] == 1 else _vertex(scores[row], column, SECONDS)
    return None if turn is None or seconds is None else (turn, seconds)


def _vertex(values: Tensor, i: int, at: Tensor) -> float | None:
    if i in (0, len(values) - 1):
        return None
    before, top, after = values[i - 1 : i + 2].tolist()
    bend = before - 2 * top + after
    return float(at[i]) + (0.5 * (before - after) / bend if bend < 0 else 0.0) * float(at[1] - at[0])
