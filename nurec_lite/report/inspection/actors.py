# SPDX-License-Identifier: Apache-2.0
"""The content of each box: the returns of all sweeps in the axes of the box, at the time of each ray, from above and from the side."""

from dataclasses import dataclass, field

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.evenly import spread
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.se3 import quat_conjugate, quat_rotate
from nurec_lite.geometry.tracks import interpolate, poses_of
from nurec_lite.report.inspection.above import MOST_SWEEPS
from nurec_lite.report.inspection.canvas import BACK, Canvas
from nurec_lite.report.inspection.content import returned_points

WIDTH, HEIGHT = 240, 120  # pixels of a view
SHOWN = 1.6  # times the box's size
ABOVE_GROUND = 0.2  # metres over the lower face: points below are ground
OUTLINE = (150, 220, 110)


@dataclass
class HeldBy:
    """The returns around one track's box."""

    track: int  # its number
    above: Canvas
    side: Canvas
    inside: int = 0  # returns within the box
    sweeps: int = field(default=0)  # that the track exists in


def held(sample: Sample, capture: Capture) -> list[HeldBy]:
    """One for each track, those with most returns first."""
    found = [_empty(k, size) for k, size in enumerate(capture.tracks.sizes.tolist())]
    for frame in spread(sorted(capture.sweeps, key=lambda frame: frame.time_start), MOST_SWEEPS):
        poses = interpolate(capture.tracks, torch.tensor([frame.time_mid], dtype=torch.float64))
        rays, points = returned_points(sample, capture, frame)
        for k in poses.valid[0].nonzero()[:, 0].tolist():
            reach = float(capture.tracks.sizes[k].norm()) + 2 * float(poses.velocities[0, k].norm()) * 0.1
            near = (points - poses.translations[0, k]).norm(dim=1) < reach
            _add(found[k], capture, points[near], rays.times[near])
    return sorted(found, key=lambda one: -one.inside)


def _empty(k: int, size: list[float]) -> HeldBy:
    length, width, height = size
    cell = SHOWN * max(length / WIDTH, width / HEIGHT, height / HEIGHT)
    half = 0.5 * cell * np.array([WIDTH, HEIGHT])
    return HeldBy(k, Canvas(-half, half, cell), Canvas(-half, half, cell))


def _add(one: HeldBy, capture: Capture, points: Tensor, times: Tensor) -> None:
    tracks = capture.tracks
    q, t = poses_of(tracks, torch.full((len(points),), one.track), times)
    own, half = quat_rotate(quat_conjugate(q.double()), points - t), 0.5 * tracks.sizes[one.track].double()
    one.inside += int((own.abs() <= half).all(1).sum())
    one.sweeps += 1
    raised = own[own[:, 2] > -half[2] + ABOVE_GROUND].numpy()
    one.above.add(raised[:, [0, 1]])
    beside = own[(own[:, 1].abs() <= SHOWN * half[1])].numpy()
    one.side.add(beside[:, [0, 2]])


def picture(
    one: HeldBy,
    size: list[float],  # length, width, height in metres
) -> np.ndarray:  # [2 HEIGHT + 2, WIDTH, 3] uint8: from above, front on the right; and from the right side
    length, width, height = size
    views = [_view(one.above, length, width), _view(one.side, length, height)]
    return np.concatenate([views[0], np.full((2, WIDTH, 3), 60, np.uint8), views[1]])


def _view(canvas: Canvas, length: float, width: float) -> np.ndarray:
    image = Image.fromarray(canvas.painted())
    draw = ImageDraw.Draw(image)
    half = 0.5 * np.array([length, width])
    (left, top), (right, bottom) = canvas.pixels(np.array([[-half[0], half[1]], [half[0], -half[1]]])).tolist()
    draw.rectangle((left, top, right, bottom), outline=OUTLINE)
    middle = 0.5 * (top + bottom)
    draw.line((0.5 * (left + right), middle, right, middle), OUTLINE)
    shown = np.full((HEIGHT, WIDTH, 3), BACK, np.uint8)
    drawn = np.asarray(image)[:HEIGHT, :WIDTH]
    shown[: drawn.shape[0], : drawn.shape[1]] = drawn
    return shown
