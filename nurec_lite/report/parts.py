# SPDX-License-Identifier: Apache-2.0
"""Elements of the page: escaped text, embedded pictures, tables. A text that is passed as `html` is already escaped."""

import base64
import html
import re
from collections.abc import Iterable
from typing import Any

import imageio.v3 as imageio
import numpy as np
from PIL import Image

from nurec_lite.base.texts import displayed
from nurec_lite.evaluation.pictures import Bar

MAX_WIDTH = 1280  # pixels that an embedded picture has at most
_LOSSLESS = 100_000  # most pixels of an image that is embedded as it is
_QUALITY = 90  # of JPEG
_PNG = {"compress_level": 6}  # a sixth of the time of level 9, and 6 % more bytes


def escaped(value: object) -> str:
    return html.escape(displayed(str(value)))


def with_code(text: str) -> str:
    """Returns a text as HTML, with words between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped(text))


def image(
    picture: np.ndarray,  # [H, W, 3] uint8
    alt: str,
    exact: bool = False,  # every pixel as it is
    fine: bool = False,  # colours change from pixel to pixel, and JPEG keeps that
) -> str:
    """PNG for small pictures and exact ones, JPEG for others; wide ones are reduced unless they are exact."""
    shown = Image.fromarray(picture)
    if shown.width > MAX_WIDTH and not exact:
        shown = shown.resize((MAX_WIDTH, round(shown.height * MAX_WIDTH / shown.width)), Image.Resampling.LANCZOS)
    kind = "png" if exact or shown.width * shown.height <= _LOSSLESS else "jpeg"
    lossy = {"quality": _QUALITY, "subsampling": 0 if fine else 2}
    settings: dict[str, Any] = _PNG if kind == "png" else lossy
    encoded = imageio.imwrite("<bytes>", np.asarray(shown), plugin="pillow", extension=f".{kind}", **settings)
    data = base64.b64encode(encoded).decode()
    size = f'width="{shown.width}" height="{shown.height}"'
    return f'<img src="data:image/{kind};base64,{data}" alt="{escaped(alt)}" {size}>'


def legend(bar: Bar) -> str:
    """The colour scale between its outermost values."""
    stops = ",".join("#" + bytes(int(c) for c in colour).hex() for colour in bar.colours)
    scale = f'<span class="scale" style="background:linear-gradient(to right,{stops})"></span>'
    return f'<span class="legend">{bar.low:g}{scale}{bar.high:g}\u202f{escaped(bar.unit)}</span>'


def swatch(colour: tuple[int, int, int], label: str) -> str:
    return f'<span class="legend"><span class="swatch" style="background:rgb{colour}"></span>{escaped(label)}</span>'


def table(
    heads: tuple[str, ...],
    rows: Iterable[tuple[str, ...]],  # html; the first of each is the row's head
    kind: str = "",  # class
) -> str:
    """Table whose cells carry the name of their column; narrow screens show it next to them."""
    head = "".join(f'<th scope="col">{escaped(name)}</th>' for name in heads)
    lines = []
    for first, *rest in rows:
        cells = "".join(f'<td data-head="{escaped(h)}">{c}</td>' for h, c in zip(heads[1:], rest, strict=True))
        lines.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>'


def section(
    name: str,  # of the anchor
    title: str,
    body: str,  # html
    note: str = "",  # a line below the title
) -> str:
    below = f'<p class="note">{escaped(note)}</p>' if note else ""
    return f'<section id="{name}"><h2>{escaped(title)}</h2>{below}{body}</section>'
