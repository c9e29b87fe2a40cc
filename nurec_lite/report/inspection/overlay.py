# SPDX-License-Identifier: Apache-2.0
"""An image with the lidar's points on it, coloured by range, and with the boxes of the tracks."""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.deskew import poses_at, project_world_points
from nurec_lite.capture.trajectory import nearest
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.evaluation.metrics import box_corners
from nurec_lite.evaluation.pictures import RANGE_MAP, Bar, round_range, to_picture
from nurec_lite.geometry.camera import Camera, distort, view_limits
from nurec_lite.geometry.se3 import invert, transform
from nurec_lite.report.inspection.content import returned_points, short

NEAR = 0.5  # metres in front of the camera
LONGEST_GAP = 0.5  # seconds between an image and the sweep that is drawn on it
TANGENTS, BEYOND = 20.0, 1.05  # of the angle from the axis at most; how much farther a point may lie, as shutters roll
COVERED = 0.2  # share of the picture that dots cover, about
BOX, FRONT = (170, 235, 120), (255, 255, 255)
PIECES = 24  # of an edge, which bends in a lens
LABELLED = 20  # least pixels of height of a box with its name
WIDE = 800  # least pixels of a picture with lines of two pixels
# Corners are numbered by the bits front, left and up; edges join corners that differ in one bit.
EDGES = [(a, b) for a, b in product(range(8), range(8)) if a < b and (a ^ b) in (1, 2, 4)]
CROSS = [(4, 7), (5, 6)]  # over the front


@dataclass(frozen=True)
class Overlay:
    picture: np.ndarray  # [h, w, 3] uint8
    bar: Bar | None  # of the ranges; None: no points
    points: int
    boxes: int
    late: float | None  # seconds from the image to the sweep


def overlay(
    sample: Sample,
    capture: Capture,
    frame: ImageFrame,
    width: int,  # of the picture, pixels
) -> Overlay:
    """Draws points and boxes on an image. Every point goes to the world at its own time, and from there into the image at the time when its
    pixel is read."""
    camera = capture.camera(frame.sensor)
    canvas = _background(sample.image(frame), width, bool(capture.sweeps))
    scale = np.array([canvas.width / camera.width, canvas.height / camera.height])
    sweeps = _sweeps(capture, frame)
    parts = [_projected(camera, frame, *_points(sample, capture, sweep)) for sweep in sweeps]
    pixels, ranges = (np.concatenate([part[k] for part in parts]) if parts else np.zeros((0, 2))[:, k] for k in (0, 1))
    bar = Bar(RANGE_MAP[1:], 0, round_range(ranges), "m") if len(ranges) else None
    shown = np.asarray(canvas).copy()
    if bar is not None:
        _dots(shown, pixels * scale, bar.paint(ranges))
    canvas = Image.fromarray(shown)
    boxes = _boxes(canvas, capture, frame, scale)
    late = min((s.time_mid - frame.time_mid for s in sweeps), key=abs, default=None)
    return Overlay(np.asarray(canvas), bar, len(ranges), boxes, late)


def _background(image: Tensor, width: int, grey: bool) -> Image.Image:
    """The image, darker and with less colour where points are drawn on it."""
    picture = Image.fromarray(to_picture(image))
    height = max(1, round(picture.height * width / picture.width))
    smooth = Image.Resampling.LANCZOS if picture.width >= width else Image.Resampling.NEAREST
    picture = picture.resize((width, height), smooth)
    if not grey:
        return picture
    return Image.blend(picture, picture.convert("L").convert("RGB"), 0.7).point(lambda v: round(0.8 * v))


def _sweeps(capture: Capture, frame: ImageFrame) -> list[SweepFrame]:
    """The nearest sweep of each lidar, if there is one near in time."""
    by_lidar = ([s for s in capture.sweeps if s.sensor == lidar.name] for lidar in capture.lidars)
    found = [nearest(sweeps, frame.time_mid) for sweeps in by_lidar if sweeps]
    return [sweep for sweep in found if abs(sweep.time_mid - frame.time_mid) <= LONGEST_GAP]


def _points(sample: Sample, capture: Capture, sweep: SweepFrame) -> tuple[Tensor, Tensor]:  # world [n, 3], range [n]
    rays, points = returned_points(sample, capture, sweep)
    return points, rays.ranges


def _projected(
    camera: Camera,
    frame: ImageFrame,
    points: Tensor,  # [n, 3] metres, world
    ranges: Tensor,  # [n] metres
) -> tuple[np.ndarray, np.ndarray]:  # pixels [m, 2] and ranges [m] of the points in the image, the farthest first
    pixels, depth = project_world_points(camera, frame, points)
    size = torch.tensor([camera.width, camera.height])
    seen = (depth > NEAR) & (pixels >= 0).all(1) & (pixels < size).all(1) & _in_view(camera, frame, points)
    order = torch.argsort(ranges[seen], descending=True)
    return pixels[seen][order].numpy(), ranges[seen][order].double().numpy()


def _in_view(camera: Camera, frame: ImageFrame, points: Tensor) -> Tensor:  # [n] bool
    """Whether a point is not much farther from the axis than the image reaches: a lens model folds farther points into it."""
    inside = transform(invert(poses_at(frame, torch.tensor(0.5)) @ camera.T_rig_cam.double()), points.double())
    if not camera.is_plain:
        angles = torch.atan2(inside[:, :2].norm(dim=1), inside[:, 2])
        return angles <= min(BEYOND * view_limits(camera)[1], math.pi)
    return inside[:, :2].norm(dim=1) <= BEYOND * _widest(camera) * inside[:, 2].clamp(min=0)


@lru_cache(maxsize=64)
def _widest(camera: Camera) -> float:
    """The tangent of the angle from the axis to the image's farthest corner, or to where the lens model turns back."""
    corners = torch.tensor(list(product((0, camera.width), (0, camera.height))), dtype=torch.float64)
    middle, focal = corners.new_tensor([camera.cx, camera.cy]), corners.new_tensor([camera.fx, camera.fy])
    corner = ((corners - middle) / focal).norm(dim=1).max()
    tangents = torch.linspace(0, TANGENTS, 2001, dtype=torch.float64)
    seen = distort(camera, torch.stack([tangents, torch.zeros_like(tangents)], dim=1))[:, 0]
    ends = ((seen[1:] >= corner) | (seen.diff() <= 0)).nonzero()
    return float(tangents[ends[0, 0] + 1]) if len(ends) else TANGENTS


def _dots(picture: np.ndarray, pixels: np.ndarray, colours: np.ndarray) -> None:
    """Draws squares of a size that covers some of the picture."""
    height, width = picture.shape[:2]
    side = min(6, max(1, round(math.sqrt(COVERED * height * width / max(1, len(pixels))))))
    column, row = np.floor(pixels).astype(np.int64).T
    for down, right in product(range(side), repeat=2):
        r, c = row + down - side // 2, column + right - side // 2
        inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
        picture[r[inside], c[inside]] = colours[inside]


def _boxes(canvas: Image.Image, capture: Capture, frame: ImageFrame, scale: np.ndarray) -> int:
    """Draws the boxes that exist at the image's time, with a cross over the front; returns how many are in view."""
    if len(capture.tracks) == 0:
        return 0
    camera, ((corners,), (valid,)) = capture.camera(frame.sensor), box_corners(capture.tracks, [frame.time_mid])
    draw, font, seen = ImageDraw.Draw(canvas), ImageFont.load_default(13), 0
    for k in _farthest_first(corners, valid, frame):
        runs = [r for r in _runs(camera, frame, corners[k], scale) if _touches(r[0], canvas.size)]
        for run, colour in runs:
            draw.line([tuple(p) for p in run], colour, 1 + (canvas.width >= WIDE and colour == BOX))
        places = np.concatenate([run for run, _ in runs]) if runs else np.zeros((0, 2))
        seen += bool(runs)
        if runs and np.ptp(places[:, 1]) >= LABELLED:
            (left, top), label = places.min(0).clip(0), f"{short(capture.tracks.ids[k])} {capture.tracks.classes[k]}"
            draw.text((left, max(top - 2, 13)), label, BOX, font, anchor="lb", stroke_width=2, stroke_fill=(0, 0, 0))
    return seen


def _farthest_first(corners: Tensor, valid: Tensor, frame: ImageFrame) -> list[int]:
    """Numbers of the tracks that exist, so that near boxes are drawn over far ones."""
    distances = (corners.mean(1) - frame.T_world_rig_start[:3, 3]).norm(dim=1)
    return [k for k in distances.argsort(descending=True).tolist() if valid[k]]


def _runs(
    camera: Camera,
    frame: ImageFrame,
    corners: Tensor,  # [8, 3] metres, world
    scale: np.ndarray,  # [2] pixels of the picture a pixel of the image
) -> list[
    tuple[np.ndarray, tuple[int, int, int]]
]:  # pixels [n, 2] of pieces of lines that are in view, and their colours
    ends = torch.tensor([*EDGES, *CROSS])
    weight = torch.linspace(0, 1, PIECES + 1, dtype=torch.float64)[:, None]
    points = torch.lerp(corners[ends[:, :1]], corners[ends[:, 1:]], weight)
    pixels, depth = project_world_points(camera, frame, points.flatten(0, 1))
    good = (depth > NEAR) & _in_view(camera, frame, points.flatten(0, 1))
    lines = zip((pixels.numpy() * scale).reshape(len(ends), -1, 2), good.view(len(ends), -1).numpy(), strict=True)
    return [(run, BOX if i < len(EDGES) else FRONT) for i, line in enumerate(lines) for run in _split(*line)]


def _split(pixels: np.ndarray, good: np.ndarray) -> list[np.ndarray]:
    """The parts of a line that are in view."""
    breaks = np.flatnonzero(np.diff(good.astype(int))) + 1
    runs = zip(np.split(pixels, breaks), np.split(good, breaks), strict=True)
    return [run for run, kept in runs if kept[0] and len(run) > 1]


def _touches(run: np.ndarray, size: tuple[int, int]) -> bool:
    return bool(((run >= 0) & (run < np.array(size))).all(1).any())
