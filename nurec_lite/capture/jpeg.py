# SPDX-License-Identifier: Apache-2.0
"""JPEG files: the fast decoder, and the files that it decodes as all others do; files that lack pixels."""

import re
import struct
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

from nurec_lite.capture.types import Encoded

Pixels = np.ndarray[Any, np.dtype[np.uint8]]  # [H, W, 3]
EIGHTH = {"min_height": 1, "min_width": 1, "min_factor": 8}  # libjpeg's smallest scale
FILLED = 16  # bytes before the end of a file that may be anything
_BASELINE, _SCAN, _ADOBE = 0xFFC0, 0xFFDA, 0xFFEE  # markers of segments (ITU-T T.81, table B.1)


@cache
def turbo() -> Callable[..., Pixels] | None:
    """The decoder of simplejpeg, as Pillow sets libjpeg-turbo; it raises ValueError for warnings, too. None: it is not installed."""
    try:
        from simplejpeg import decode_jpeg
    except ImportError:
        return None
    return partial(decode_jpeg, fastdct=False, fastupsample=False)


def plain_jpeg(image: Encoded) -> bool:
    """Whether it is a whole baseline JPEG of the size that is demanded, luma and two chromas in one scan: all decoders agree on it up
    to rounding. `decode_image` reads any other file, or names its damage.

    Grey, CMYK and progressive files are none, nor is a file with Adobe's segment, which may say that its three components are RGB.
    """
    if not (image.data.startswith(b"\xff\xd8") and image.data.endswith(b"\xff\xd9")):  # another file, or cut off
        return False
    found, (width, height) = dict(_segments(image.data)), image.size
    frame, scan = found.get(_BASELINE, b""), found.get(_SCAN, b"")
    sized = len(frame) == 15 and struct.unpack(">BHHB", frame[:6]) == (8, height, width, 3)
    return sized and frame[6::3] == b"\1\2\3" and scan[:1] == b"\3" and _ADOBE not in found


def _segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields marker and content of each segment of a JPEG before its pixels."""
    at, marker = 2, 0
    while marker != _SCAN and at + 4 <= len(data):
        marker, length = struct.unpack_from(">HH", data, at)
        yield marker, data[at + 4 : at + 2 + length]
        at += 2 + length


def damage_of(image: Encoded) -> str | None:
    """The words of libjpeg about a JPEG that lacks pixels; None for a whole one, for other files, and without simplejpeg."""
    decode = turbo()
    try:
        if decode is not None and image.data.startswith(b"\xff\xd8"):
            decode(image.data, **EIGHTH)
    except ValueError as error:
        return _damage(error, image.data)
    return None


def _damage(error: ValueError, data: bytes) -> str | None:
    """The words of a warning of libjpeg if they tell of lost pixels: codes that end early, that do not exist, or that leave bytes over.
    Some cameras fill a file up before its end, with a few bytes or with equal ones."""
    words = str(error).removeprefix("Corrupt JPEG data: ")
    over = re.match(r"(\d+) extraneous bytes before marker 0xd9", words)
    if over:
        rest = data.removesuffix(b"\xff\xd9")[-int(over[1]) :]
        return words if len(rest) > FILLED and len(set(rest)) > 1 else None
    return words if re.search("premature end|bad Huffman|instead of RST|extraneous", words, re.IGNORECASE) else None
