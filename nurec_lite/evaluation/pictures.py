# SPDX-License-Identifier: Apache-2.0
"""Renders and measurements as pictures that a person can look at, and their files.

A picture is a uint8 array [H, W, 3]. Files are written under a temporary name and renamed, so that a viewer never sees half of one.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from nurec_lite.base.files import written
from nurec_lite.evaluation.metrics import NEVER_CROSSED_M, as_unit, psnr
from nurec_lite.geometry.lidar import Lidar, Sweep, azimuth_elevation
from nurec_lite.splat.render import LidarReturns

# Anchors at equal steps of OKLab lightness (Ottosson 2020), hue turning steadily: blue, teal, yellow; and purple, red, cream.
RANGE_MAP = np.array(
    [(27, 25, 103), (0, 60, 120), (0, 91, 126), (0, 119, 137), (0, 149, 145), (28, 180, 140), (112, 204, 122),
     (183, 222, 98), (255, 235, 78)]
)  # fmt: skip
ERROR_MAP = np.array(
    [(12, 1, 57), (57, 7, 80), (110, 13, 81), (162, 28, 62), (206, 55, 42), (230, 105, 36), (245, 153, 52),
     (252, 201, 93), (254, 247, 149)]
)  # fmt: skip
MEASURED, RENDERED = (176, 78, 12), (120, 225, 255)  # points of a lidar, in every picture: orange and blue
RANGE_ERROR_M = 2.0  # the brightest colour of the map of range errors
COLOUR_ERROR = 0.3  # the same for images: mean of the channels' absolute errors, of values in 0..1
_WIDTH = 1000  # pixels that a picture should have, about
_MAX_WIDTH = 2048  # columns of a range image at most
_STRIP = 192  # pixels of height that a range image should have, about
_FILL = 2  # columns that the value of a ray may cross to an empty cell
_HEADER, _FONT, _GAP = 24, 14, 6  # pixels
_STRIPE, _HATCHES = 4, (96, 128)  # pixels of a stripe over masked pixels, and its grey levels
_STEPS = 256  # colours of a scale between two of its anchors
# Runs of equal bytes (Z_RLE): a third of the time of zlib's level 6, files of about the same size.
_PNG: dict[str, Any] = {"compress_level": 1, "compress_type": 3}
_DARK, _LIGHT = (24, 24, 28), (230, 230, 230)


@dataclass(frozen=True)
class Bar:
    """A colour scale: values from `low` to `high` take the colours of `colours`, values beyond them the outermost."""

    colours: np.ndarray  # [anchors, 3]
    low: float
    high: float
    unit: str = ""

    def paint(
        self,
        values: np.ndarray,  # [...]; NaN becomes black
    ) -> np.ndarray:  # [..., 3] uint8
        steps = _STEPS * (len(self.colours) - 1)
        at = np.nan_to_num((values - self.low) / (self.high - self.low)).clip(0, 1)
        row = np.where(np.isnan(values), steps + 1, np.rint(at * steps)).astype(np.int16)
        return self._table(steps)[row]

    def _table(self, steps: int) -> np.ndarray:  # [steps + 2, 3] uint8: the colours between low and high, then black
        at, anchors = np.linspace(0, len(self.colours) - 1, steps + 1), np.arange(len(self.colours))
        painted = np.stack([np.interp(at, anchors, channel) for channel in self.colours.T], axis=-1)
        return np.append(painted.round(), [[0, 0, 0]], axis=0).astype(np.uint8)


def to_picture(
    image: Tensor | np.ndarray,  # [H, W, 3] uint8, or floating point 0 to 1 (clipped)
) -> np.ndarray:  # [H, W, 3] uint8
    tensor = torch.as_tensor(image).detach()
    pixels = tensor if tensor.dtype == torch.uint8 else (as_unit(tensor) * 255).round().to(torch.uint8)
    return pixels.cpu().numpy()


def hatched(
    picture: np.ndarray,  # [H, W, 3] uint8
    mask: Tensor | None,  # [H, W] bool
) -> np.ndarray:  # [H, W, 3] uint8, with grey stripes over masked pixels
    if mask is None:
        return picture
    stripes = np.add.outer(np.arange(mask.shape[0]), np.arange(mask.shape[1])) // _STRIPE % 2
    grey = np.where(stripes, *_HATCHES)[..., None].astype(np.uint8)
    return np.where(mask.numpy()[..., None], grey, picture)


def comparison(
    truth: Tensor,  # [H, W, 3] uint8 or 0 to 1
    rendered: Tensor,  # [H, W, 3] 0 to 1
    decibels: float | None = None,  # PSNR that is written; None: of all pixels
) -> np.ndarray:  # [h, w, 3]
    """Ground truth, render and absolute error: side by side, or one above the other if the image is wide."""
    truth, rendered = truth.cpu(), rendered.detach().cpu()
    bar = Bar(ERROR_MAP, 0, COLOUR_ERROR)
    error = bar.paint((as_unit(truth) - as_unit(rendered)).abs().mean(-1).numpy())
    wide = truth.shape[1] > 1.5 * truth.shape[0]
    factor = max(1, round(_WIDTH / (1 if wide else 3) / truth.shape[1]))
    decibels = psnr(rendered, truth) if decibels is None else decibels
    panels = [
        panel(enlarged(to_picture(truth), factor, factor), "ground truth"),
        panel(enlarged(to_picture(rendered), factor, factor), f"rendered, {decibels:.2f} dB"),
        panel(enlarged(error, factor, factor), "absolute error", bar),
    ]
    return joined(panels, axis=0 if wide else 1)


def pair(
    captured: Tensor,  # [H, W, 3] uint8 or 0 to 1
    rendered: Tensor,  # [H, W, 3] 0 to 1
    title: str,  # of the render
) -> np.ndarray:  # [h, w, 3]
    """The captured image above the render, which need not show the same."""
    factor = max(1, round(_WIDTH / captured.shape[1]))
    upper, lower = (enlarged(to_picture(image), factor, factor) for image in (captured, rendered))
    return joined([panel(upper, "captured"), panel(lower, title)], axis=0)


def range_picture(
    sweep: Sweep,  # R rays
    returns: LidarReturns,  # the same rays
    lidar: Lidar,
    far: float | None = None,  # metres: end of the scale; None: of this sweep
) -> np.ndarray:  # [h, w, 3]
    """Measured range, rendered range (median) and its absolute error, one above the other; black where nothing returned or, in the
    error, nothing was measured. Rays that never cross 0.5 count as 80 m."""
    returned, ranges, median, drop = (
        t.detach().cpu().numpy() for t in (sweep.returned, sweep.ranges, returns.median, returns.drop)
    )
    error = np.abs(np.where(median > 0, median, NEVER_CROSSED_M) - ranges)
    scale = Bar(RANGE_MAP, 0, far or round_range(ranges[returned]), "m")
    wrong = Bar(ERROR_MAP, 0, RANGE_ERROR_M, "m")
    strips = [
        (np.where(returned, ranges, np.nan), "measured range (black: no return)", scale),
        (np.where((median > 0) & (drop <= 0.5), median, np.nan), "rendered range (black: no return)", scale),
        (np.where(returned, error, np.nan), "absolute error of the range (black: no return)", wrong),
    ]
    return _strips(strips, sweep, lidar)


def sweep_picture(
    sweep: Sweep,  # R rays, with the values to show
    lidar: Lidar,
    title: str,
    far: float | None = None,  # metres: end of the scale; None: of this sweep
) -> np.ndarray:  # [h, w, 3]
    """Range above intensity; black where nothing returned."""
    returned, ranges, intensities = (t.cpu().numpy() for t in (sweep.returned, sweep.ranges, sweep.intensities))
    scale = Bar(RANGE_MAP, 0, far or round_range(ranges[returned]), "m")
    strips = [
        (np.where(returned, ranges, np.nan), f"{title}: range (black: no return)", scale),
        (np.where(returned, intensities, np.nan), "intensity", Bar(RANGE_MAP, 0, 1)),
    ]
    return _strips(strips, sweep, lidar)


def _strips(
    strips: list[tuple[np.ndarray, str, Bar]],  # values of the rays [R], title, colours
    sweep: Sweep,  # R rays
    lidar: Lidar,
) -> np.ndarray:  # [h, w, 3] range images, one above the other
    rings, azimuths = sweep.rings.cpu().numpy(), azimuth_elevation(sweep.directions.cpu())[:, 0].numpy()
    elevations, width = lidar.elevations.cpu().numpy(), min(lidar.azimuth_steps, _MAX_WIDTH)
    images = [range_image(values, rings, azimuths, elevations, width) for values, _, _ in strips]
    panels = [
        panel(_strip(bar.paint(image)), title, bar) for image, (_, title, bar) in zip(images, strips, strict=True)
    ]
    return joined(panels, axis=0)


def range_image(
    values: np.ndarray,  # [R] anything of the rays
    rings: np.ndarray,  # [R] index of the beam
    azimuths: np.ndarray,  # [R] radians
    elevations: np.ndarray,  # [B] radians, of the beams
    width: int,  # columns
) -> np.ndarray:  # [B, width]; NaN where no ray is near
    """The highest beam on top, azimuth from pi on the left down to -pi. Every ray lies in the cell that it falls into (NaN gives way
    to a value); an empty cell takes the nearest ray of its row."""
    row = np.argsort(np.argsort(-elevations, kind="stable"))[rings]
    column = np.floor((math.pi - azimuths) / (2 * math.pi) * width).astype(np.int64) % width
    order = np.argsort(~np.isnan(values), kind="stable")
    ray = np.full((len(elevations), width), -1)
    ray[row[order], column[order]] = order
    filled = ray
    for step in range(1, _FILL + 1):
        for shifted in (np.roll(ray, step, axis=1), np.roll(ray, -step, axis=1)):
            filled = np.where(filled < 0, shifted, filled)
    return np.where(filled >= 0, np.append(values, np.nan)[filled], np.nan)


def round_range(
    ranges: np.ndarray,  # [n] metres
) -> float:  # metres: the next multiple of ten beyond most of them
    return 10 * math.ceil(max(float(np.quantile(ranges, 0.95)), 1) / 10) if len(ranges) else 10


def _strip(
    picture: np.ndarray,  # [B, W, 3] of a range image
) -> np.ndarray:  # [h, w, 3] of a size to look at
    height, width = picture.shape[:2]
    return enlarged(picture, max(1, round(_STRIP / height)), max(1, round(_WIDTH / width)))


def enlarged(
    picture: np.ndarray,  # [H, W, 3]
    vertical: int,
    horizontal: int,
) -> np.ndarray:  # [H * vertical, W * horizontal, 3]
    """Every pixel as a block, so that pixels stay visible as they are."""
    return picture.repeat(vertical, axis=0).repeat(horizontal, axis=1)


def panel(
    picture: np.ndarray,  # [H, W, 3]
    title: str,
    bar: Bar | None = None,
) -> np.ndarray:  # [H + _HEADER, W, 3] with a line above: the title, and the colour scale if there is one
    width = picture.shape[1]
    header = Image.new("RGB", (width, _HEADER), _DARK)
    draw = ImageDraw.Draw(header)
    font = ImageFont.load_default(_FONT)
    draw.text((_GAP, _HEADER // 2), title, _LIGHT, font, anchor="lm")
    if bar is not None:
        right = width - _GAP
        high, low = (f"{value:g} {bar.unit}".rstrip() for value in (bar.high, bar.low))
        draw.text((right, _HEADER // 2), high, _LIGHT, font, anchor="rm")
        right -= round(draw.textlength(high, font)) + _GAP
        length = min(160, width // 4)
        scale = bar.paint(np.linspace(bar.low, bar.high, length)[None].repeat(_HEADER // 2, axis=0))
        header.paste(Image.fromarray(scale), (right - length, _HEADER // 4))
        draw.text((right - length - _GAP, _HEADER // 2), low, _LIGHT, font, anchor="rm")
    return np.concatenate([np.asarray(header), picture])


def joined(
    panels: list[np.ndarray],  # [H, W, 3], of one size
    axis: int,
) -> np.ndarray:  # one below (axis 0) or to the right of (axis 1) another
    shape = list(panels[0].shape)
    shape[axis] = _GAP // 2
    gap = np.full(shape, _DARK, np.uint8)
    return np.concatenate([part for panel in panels for part in (gap, panel)][1:], axis=axis)


def parted(
    picture: np.ndarray,  # [H, W, 3] as `joined` made it of panels
    count: int,  # of panels
) -> list[np.ndarray] | None:  # the panels without their headers; None if these are not so many panels
    gap = _GAP // 2
    for axis in (0, 1):
        size, rest = divmod(picture.shape[axis] - (count - 1) * gap, count)
        along = np.moveaxis(picture, axis, 0)
        gaps = [along[k * size + (k - 1) * gap : k * (size + gap)] for k in range(1, count)]
        if rest == 0 and size > 0 and all((strip == _DARK).all() for strip in gaps):
            panels = (along[k * (size + gap) : k * (size + gap) + size] for k in range(count))
            return [np.moveaxis(panel, 0, axis)[_HEADER:] for panel in panels]
    return None


def save_png(
    path: Path,
    picture: np.ndarray,  # [H, W, 3] uint8
) -> None:
    with written(path) as file:
        imageio.imwrite(file, picture, plugin="pillow", extension=".png", is_batch=False, **_PNG)
