# SPDX-License-Identifier: Apache-2.0
"""A white sheet for charts: units are pixels of an ordinary screen, the file has twice as many, so that it stays sharp.

Not matplotlib: names are cut to the pixels that they have, and labels stand where they fit, which would have to be measured there, too; it
brings nine packages, and takes 1.2 s for a chart of bars that takes 0.2 s here.
"""

from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from nurec_lite.base.nvtx import STAGES
from nurec_lite.evaluation.pictures import save_png

Colour = tuple[int, int, int]
SCALE = 2
INK, FAINT, RULE, PAPER = (32, 34, 40), (110, 114, 124), (222, 225, 230), (255, 255, 255)
WAIT, GREY = (214, 39, 40), (190, 194, 200)
PALETTE: tuple[Colour, ...] = (
    (38, 110, 176), (235, 137, 44), (58, 150, 88), (150, 108, 190), (0, 158, 168), (226, 106, 150),
    (150, 116, 70), (196, 176, 40), (96, 118, 140), (118, 160, 220), (176, 84, 60), (120, 170, 60),
)  # fmt: skip
OTHER_STAGES: tuple[Colour, ...] = (  # that NVTX has no colour for
    (164, 38, 96), (84, 74, 160), (30, 110, 60), (200, 60, 200), (120, 90, 20), (60, 60, 70),
)  # fmt: skip


@lru_cache(maxsize=8)
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size * SCALE)


class Canvas:
    def __init__(self, width: float, height: float) -> None:
        self.image = Image.new("RGB", (round(width * SCALE), round(height * SCALE)), PAPER)
        self.draw = ImageDraw.Draw(self.image)

    def text(
        self,
        x: float,
        y: float,  # of the middle of the line
        text: str,
        size: int = 13,
        colour: Colour = INK,
        anchor: str = "l",  # which side of the text x is: l, m or r
        width: float | None = None,  # at most; a longer text loses its middle
    ) -> None:
        shown = text if width is None else self.fitting(text, size, width)
        self.draw.text((x * SCALE, y * SCALE), shown, colour, _font(size), anchor=f"{anchor}m")

    def length(self, text: str, size: int = 13) -> float:
        return self.draw.textlength(text, _font(size)) / SCALE

    def fitting(self, text: str, size: int, width: float) -> str:
        keep = len(text)
        shown = text
        while keep > 1 and self.length(shown, size) > width:
            keep -= 1
            shown = f"{text[: (keep + 1) // 2]}…{text[len(text) - keep // 2 :]}"
        return shown

    def box(self, x0: float, y0: float, x1: float, y1: float, colour: Colour) -> None:
        """Draws a box at least one pixel wide, so that nothing vanishes."""
        left, right = round(x0 * SCALE), round(x1 * SCALE) - 1
        self.draw.rectangle((left, round(y0 * SCALE), max(left, right), round(y1 * SCALE) - 1), colour)

    def line(self, x0: float, y0: float, x1: float, y1: float, colour: Colour = RULE) -> None:
        self.draw.line((x0 * SCALE, y0 * SCALE, x1 * SCALE, y1 * SCALE), colour, 1)

    def legend(self, x: float, y: float, entries: dict[str, Colour], width: float) -> None:
        """Squares with their names, in lines of at most `width`."""
        at = x
        for name, colour in entries.items():
            if at > x and at + 18 + self.length(name, 12) > x + width:
                at, y = x, y + 20
            self.box(at, y - 5, at + 11, y + 6, colour)
            self.text(at + 16, y, name, 12)
            at += 34 + self.length(name, 12)

    def save(self, path: Path) -> None:
        save_png(path, np.asarray(self.image))


def stage_of(
    name: str | None,  # step/render_camera/blend
) -> str:  # render_camera
    """The stage of a range, for the choice of colours."""
    parts = (name or "").split("/")
    return parts[1] if len(parts) > 1 else "rest of the step" if parts[0] else "outside ranges"


def stage_colours(
    names: list[str | None],  # of ranges
) -> dict[str, Colour]:
    """The colour of each stage, in the order of their first appearance: the one that NVTX shows, the same in every picture. Other stages
    take those of another palette in turn."""
    stages = [s for s in dict.fromkeys(map(stage_of, names)) if s not in ("rest of the step", "outside ranges")]
    others = [stage for stage in stages if stage not in STAGES]
    chosen = {stage: _colour(STAGES[stage].colour) for stage in stages if stage in STAGES}
    chosen |= {stage: OTHER_STAGES[i % len(OTHER_STAGES)] for i, stage in enumerate(others)}
    return {stage: chosen[stage] for stage in stages} | {"rest of the step": GREY, "outside ranges": (140, 144, 150)}


def _colour(
    value: int,  # 0xAARRGGBB
) -> Colour:
    return value >> 16 & 255, value >> 8 & 255, value & 255


def tint(colour: Colour, share: float) -> Colour:
    """Mixes a colour with a share of the paper's white."""
    r, g, b = (round(c + (255 - c) * share) for c in colour)
    return r, g, b


def readable_on(colour: Colour) -> Colour:
    r, g, b = colour
    return INK if 0.3 * r + 0.59 * g + 0.11 * b > 150 else PAPER
