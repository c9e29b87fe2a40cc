# SPDX-License-Identifier: Apache-2.0
"""A sweep from above, in the axes of the vehicle: rendered points over measured ones, and the boxes of actors with their ids.

A picture is a uint8 array [H, W, 3]; forward is to the right, left is up.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from nurec_lite.evaluation.metrics import box_corners
from nurec_lite.evaluation.pictures import MEASURED, RENDERED, panel
from nurec_lite.geometry.se3 import invert, transform
from nurec_lite.geometry.tracks import Tracks

SCALE = 16  # pixels a metre
AHEAD_M, BEHIND_M, ASIDE_M = 45.0, 30.0, 20.0  # metres that the picture reaches
_BAR_M = 10  # metres
_BACK, _LINE, _TEXT = (18, 18, 22), (120, 120, 128), (230, 230, 230)
_BOX, _WAY = (150, 200, 110), (90, 120, 70)
_MARGIN, _FONT = 12, 14  # pixels


@dataclass(frozen=True)
class Above:
    """Points and boxes of one moment, to draw."""

    rendered: Tensor  # [n, 3] metres, world
    measured: Tensor  # [m, 3] metres, world
    T_world_rig: Tensor  # [4, 4] of the rendered moment
    tracks: Tracks  # with poses of the rendered moment
    hidden: frozenset[int]  # numbers of tracks of absent actors
    time: float  # seconds


def birds_eye(
    above: Above,
    title: str,
    legend: str,  # of the measured points
) -> np.ndarray:  # [H, W, 3]
    size = round((AHEAD_M + BEHIND_M) * SCALE), round(2 * ASIDE_M * SCALE)
    T_rig_world = invert(above.T_world_rig.double())
    canvas = np.full((size[1], size[0], 3), _BACK, np.uint8)
    _dots(canvas, _pixels(transform(T_rig_world, above.measured.double())), MEASURED, range(-1, 2))
    _dots(canvas, _pixels(transform(T_rig_world, above.rendered.double())), RENDERED, range(2))
    image = Image.fromarray(canvas)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(_FONT)
    _boxes(draw, font, above, T_rig_world)
    _vehicle(draw)
    _scale_bar(draw, font, size)
    _legend(draw, font, legend, boxes=len(above.tracks) > len(above.hidden))
    return panel(np.asarray(image), title)


def _pixels(
    points: Tensor,  # [..., 3] metres, rig
) -> np.ndarray:  # [..., 2] column and row
    x, y, _ = points.unbind(-1)
    return (torch.stack([x + BEHIND_M, ASIDE_M - y], dim=-1) * SCALE).numpy()


def _dots(
    canvas: np.ndarray,  # [H, W, 3], drawn into
    pixels: np.ndarray,  # [n, 2]
    colour: tuple[int, int, int],
    block: range,  # pixels of a dot, down and to the right of its own
) -> None:
    height, width = canvas.shape[:2]
    column, row = np.floor(pixels).astype(np.int64).T
    for down, right in product(block, block):
        r, c = row + down, column + right
        inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
        canvas[r[inside], c[inside]] = colour


def _boxes(
    draw: ImageDraw.ImageDraw, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, above: Above, T_rig_world: Tensor
) -> None:
    """Outlines of the lower faces, with the ways of their centres; the front of an actor is marked by a line to its centre."""
    if len(above.tracks) == 0:
        return
    (corners,), (valid,) = box_corners(above.tracks, [above.time])
    for k in (k for k in range(len(above.tracks)) if valid[k] and k not in above.hidden):
        back_right, back_left, front_right, front_left = _pixels(transform(T_rig_world, corners[k, ::2])).tolist()
        outline = [back_right, back_left, front_left, front_right, back_right]
        draw.line([tuple(p) for p in outline], _BOX)
        way = above.tracks.translations[above.tracks.offsets[k] : above.tracks.offsets[k + 1]].double()
        if len(way) > 1:
            draw.line([tuple(p) for p in _pixels(transform(T_rig_world, way)).tolist()], _WAY)
        middle = np.mean(outline[:4], axis=0)
        draw.line([tuple(middle), tuple(np.mean(outline[2:4], axis=0))], _BOX)
        right = max(column for column, _ in outline) + 4
        draw.text((right, middle[1]), above.tracks.ids[k], _TEXT, font, anchor="lm", stroke_width=2, stroke_fill=_BACK)


def _vehicle(draw: ImageDraw.ImageDraw) -> None:
    """A triangle about the rig's origin, its tip forward."""
    tip, left, right = _pixels(torch.tensor([[2.0, 0, 0], [-1.0, 0.9, 0], [-1.0, -0.9, 0]]))
    draw.polygon([tuple(tip), tuple(left), tuple(right)], outline=_TEXT)


def _scale_bar(
    draw: ImageDraw.ImageDraw, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, size: tuple[int, int]
) -> None:
    left, row = _MARGIN, size[1] - _MARGIN
    right = left + _BAR_M * SCALE
    for line in (((left, row), (right, row)), ((left, row - 4), (left, row)), ((right, row - 4), (right, row))):
        draw.line(line, _TEXT, 1)
    draw.text(((left + right) / 2, row - 4), f"{_BAR_M} m", _TEXT, font, anchor="mb")


def _legend(
    draw: ImageDraw.ImageDraw, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, measured: str, boxes: bool
) -> None:
    rows = [(RENDERED, "rendered"), (MEASURED, measured)] + [(_BOX, "boxes of actors, with their ids")] * boxes
    for n, (colour, text) in enumerate(rows):
        row = _MARGIN + 18 * n + 6
        draw.rectangle((_MARGIN, row - 4, _MARGIN + 8, row + 4), fill=colour)
        draw.text((_MARGIN + 16, row), text, _TEXT, font, anchor="lm")
