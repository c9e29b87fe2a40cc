# SPDX-License-Identifier: Apache-2.0
"""All sweeps from above in the world, laid on each other by the poses: the whole drive and a close-up of its middle."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.deskew import poses_at
from nurec_lite.capture.evenly import spread
from nurec_lite.capture.trajectory import Trajectory, trajectory_of
from nurec_lite.capture.types import Capture
from nurec_lite.evaluation.pictures import Bar
from nurec_lite.geometry.se3 import invert, quat_rotate, transform
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.report.inspection.canvas import Canvas, time_bar
from nurec_lite.report.inspection.content import returned_points, short

MOST_SWEEPS = 200  # that are drawn, evenly over the drive
LONGEST_SIDE = 1200  # pixels of the whole drive
FINEST = 0.1  # metres a pixel
MARGIN = 60.0  # metres around the path
CROP_M = 5.0  # metres around the points of the whole drive
CLOSE_M = 30.0  # metres from the middle of the close-up to its edges
CLOSE_CELL = 0.1  # metres a pixel of the close-up
LOW, HIGH = 0.4, 4.0  # metres above the ground: walls, trunks and cars, without foliage over them
AROUND = 15.0  # metres around the rig that hold its ground
PATH, BOX, TEXT = (255, 80, 110), (120, 200, 90), (235, 235, 235)


@dataclass(frozen=True)
class MapPicture:
    picture: np.ndarray  # [H, W, 3] uint8
    across: float  # metres from the left edge to the right one
    bar: Bar  # of the seconds of points, from the start of the drive


def maps(sample: Sample, capture: Capture, start: float) -> tuple[MapPicture, MapPicture]:
    """The whole drive, and a close-up of its middle."""
    path = trajectory_of(capture)
    canvases = (_whole(path), _close(path))
    frames = spread(sorted(capture.sweeps, key=lambda frame: frame.time_start), MOST_SWEEPS)
    for frame in frames:
        _, points = returned_points(sample, capture, frame)
        raised = points[_raised(transform(invert(poses_at(frame, torch.tensor(0.5))), points))].numpy()
        for canvas in canvases:
            canvas.add(raised[:, :2], frame.time_mid - start)
    bar = time_bar(frames[0].time_mid - start, frames[-1].time_mid - start)
    cropped = canvases[0].cropped(path.poses[:, :2, 3].numpy(), CROP_M)
    whole, close = (_drawn(canvas, bar, path, capture.tracks) for canvas in (cropped, canvases[1]))
    return whole, close


def _whole(path: Trajectory) -> Canvas:
    places = path.poses[:, :2, 3].numpy()
    low, high = places.min(0) - MARGIN, places.max(0) + MARGIN
    return Canvas(low, high, max(FINEST, float((high - low).max()) / LONGEST_SIDE))


def _close(path: Trajectory) -> Canvas:
    middle = path.at(sum(path.span) / 2)[:2, 3].numpy()
    return Canvas(middle - CLOSE_M, middle + CLOSE_M, CLOSE_CELL)


def _raised(
    points: Tensor,  # [n, 3] metres, rig
) -> Tensor:  # [n] bool
    near = points[points[:, :2].norm(dim=1) < AROUND, 2]
    ground = near.sort().values[len(near) // 20] if len(near) else points.new_tensor(0.0)
    return (points[:, 2] > ground + LOW) & (points[:, 2] < ground + HIGH)


def _drawn(canvas: Canvas, bar: Bar, path: Trajectory, tracks: Tracks) -> MapPicture:
    image = Image.fromarray(canvas.painted(bar))
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(13)
    for k, (first, last) in enumerate(pairwise(tracks.offsets)):
        _track(draw, font, canvas, tracks, k, slice(first, last), path.span)
    places = [tuple(p) for p in canvas.pixels(path.poses[:, :2, 3].numpy()).tolist()]
    if len(places) > 1:
        draw.line(places, PATH, 2)
    column, row = places[0]
    draw.ellipse((column - 4, row - 4, column + 4, row + 4), outline=PATH, width=2)
    _scale_bar(draw, font, canvas, image.size)
    return MapPicture(np.asarray(image), image.width * canvas.cell, bar)


def _track(
    draw: ImageDraw.ImageDraw,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    canvas: Canvas,
    tracks: Tracks,
    k: int,
    rows: slice,
    span: tuple[float, float],  # seconds of the drive
) -> None:
    """The way of the box's centre, its outline in the middle of its time in the drive with a line to its front, and its id."""
    centres = [tuple(p) for p in canvas.pixels(tracks.translations[rows, :2].numpy()).tolist()]
    if len(centres) > 1:
        draw.line(centres, BOX, 1)
    middle = rows.start + _middle(tracks.times[rows], span)
    outline = _outline(canvas, tracks, k, middle)
    draw.line([*outline[:4], outline[0]], BOX, 1)
    draw.line([centres[middle - rows.start], outline[4]], BOX, 1)
    right, row = max(column for column, _ in outline) + 4, outline[4][1]
    draw.text((right, row), short(tracks.ids[k]), TEXT, font, anchor="lm", stroke_width=2, stroke_fill=(18, 18, 22))


def _middle(times: Tensor, span: tuple[float, float]) -> int:
    """Number of the keyframe in the middle of a track's time in the drive: labels may go on for longer than its sweeps."""
    wanted = (max(float(times[0]), span[0]) + min(float(times[-1]), span[1])) / 2
    return int((times - wanted).abs().argmin())


def _outline(canvas: Canvas, tracks: Tracks, k: int, row: int) -> list[tuple[float, float]]:
    """Four corners of the box at a keyframe, and the middle of its front."""
    signs = torch.tensor([[1, 1, 0], [1, -1, 0], [-1, -1, 0], [-1, 1, 0], [1, 0, 0]], dtype=torch.float64)
    corners = 0.5 * signs * tracks.sizes[k].double()
    placed = tracks.translations[row].double() + quat_rotate(tracks.quaternions[row].double(), corners)
    return [(column, r) for column, r in canvas.pixels(placed[:, :2].numpy()).tolist()]


def _scale_bar(
    draw: ImageDraw.ImageDraw,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    canvas: Canvas,
    size: tuple[int, int],
) -> None:
    """About a fifth of the width: 1, 2 or 5 times a power of ten metres."""
    wanted = 0.2 * size[0] * canvas.cell
    power = 10.0 ** np.floor(np.log10(wanted))
    metres = max(m * power for m in (1, 2, 5) if m * power <= wanted)
    row, right = size[1] - 12, 12 + metres / canvas.cell
    for line in (((12, row), (right, row)), ((12, row - 4), (12, row)), ((right, row - 4), (right, row))):
        draw.line(line, TEXT, 1)
    draw.text(
        ((12 + right) / 2, row - 4), f"{metres:g} m", TEXT, font, anchor="mb", stroke_width=2, stroke_fill=(18, 18, 22)
    )
