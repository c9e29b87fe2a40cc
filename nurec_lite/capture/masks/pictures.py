# SPDX-License-Identifier: Apache-2.0
"""Masks as PNG files. White pixels are left out, black ones are used, as in the masks of `serve`; where a picture has transparency, opaque
pixels are left out."""

import io

import numpy as np
import torch
from PIL import Image
from PIL.PngImagePlugin import PngImageFile
from torch import Tensor

from nurec_lite.capture.images import decoding
from nurec_lite.capture.types import CaptureError

PNG = b"\x89PNG\r\n\x1a\n"
BETWEEN = 0.05  # of the pixels: more that are neither black nor white are no mask, but for example a photo
LEAST = 0.05  # of an image that a mask leaves at least


def decode_mask(
    data: bytes,  # of a PNG
    name: str,  # of its file, for messages
    size: tuple[int, int],  # width, height of the images
    owner: str,  # owner of the images, for messages: the camera front
) -> Tensor | None:  # [H, W] bool, True where pixels are left out; None: nowhere
    if not data.startswith(PNG):
        raise CaptureError(f"{name} is no PNG; save the mask as a PNG in black and white")
    with decoding(name):
        picture = PngImageFile(io.BytesIO(data))
        _check_size(picture.size, name, size, owner)
        values = _values(picture)
    mask = torch.from_numpy(_left_out(values, name))
    check_mask(mask, name, owner)
    return mask if bool(mask.any()) else None


def _check_size(found: tuple[int, int], name: str, size: tuple[int, int], owner: str) -> None:
    if found != size:
        raise CaptureError(
            f"{name} is {found[0]}x{found[1]} pixels, but the images of {owner} are {size[0]}x{size[1]}; "
            "make the mask as large as the images in their files"
        )


def _values(picture: Image.Image) -> np.ndarray:  # [H, W] 0 where pixels are used
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        colours = np.asarray(picture.convert("RGBA"))
        clear = bool((colours[..., 3] < colours[..., 3].max()).any())
        return colours[..., 3] if clear else colours[..., :3].max(-1)
    if picture.mode in ("P", "RGB"):
        return np.asarray(picture.convert("RGB")).max(-1)
    return np.asarray(picture)  # 1, L or 16 bits of grey


def _left_out(values: np.ndarray, name: str) -> np.ndarray:  # [H, W] bool
    top = values.max()
    between = float(((values > 0) & (values < top)).mean())
    if between > BETWEEN:
        raise CaptureError(
            f"{name} is no mask: {100 * between:.0f} % of its pixels are neither black nor white; save it in black and white, "
            "white where pixels are left out"
        )
    return values > 0


def check_mask(
    mask: Tensor,  # [H, W] bool
    name: str,  # of the mask, for messages
    owner: str,  # for messages: the camera front
) -> None:
    """Raises CaptureError where next to nothing is left of an image."""
    left = 1 - float(mask.double().mean())
    if left < LEAST:
        raise CaptureError(
            f"{name} leaves {100 * left:.2g} % of the images of {owner}; white pixels are left out: draw the vehicle white and the rest "
            "black"
        )


def encode_mask(
    mask: Tensor,  # [H, W] bool
) -> bytes:  # a PNG of one bit a pixel
    with io.BytesIO() as file:
        mask_picture(mask).save(file, "PNG", optimize=True)
        return file.getvalue()


def mask_picture(mask: Tensor) -> Image.Image:  # [H, W] bool -> white where pixels are left out
    return Image.fromarray(mask.numpy())
