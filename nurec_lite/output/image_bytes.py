# SPDX-License-Identifier: Apache-2.0
"""Pictures as bytes of a JPEG or a PNG. Pillow writes into a file in memory: other threads then run while it encodes."""

import os

import numpy as np
from PIL import Image

FAST = 1  # level of zlib


def jpeg_bytes(
    image: np.ndarray,  # [H, W, 3] uint8
    quality: int,  # 1 to 100
) -> bytes:
    return _written(image, "JPEG", quality=quality)


def png_bytes(
    image: np.ndarray,  # [H, W, 3] uint8
) -> bytes:
    """A PNG that takes little time rather than few bytes."""
    return _written(image, "PNG", compress_level=FAST)


def _written(image: np.ndarray, kind: str, **options: int) -> bytes:
    with open(os.memfd_create("image"), "w+b") as into:
        Image.fromarray(image).save(into, kind, **options)
        into.seek(0)
        return into.read()
