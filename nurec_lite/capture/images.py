# SPDX-License-Identifier: Apache-2.0
"""Decoding of images, and reduction by the mean of blocks of pixels."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL.ImageFile import ImageFile as Picture
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from torch import Tensor

from nurec_lite.capture.files import read_bytes, short
from nurec_lite.capture.types import CaptureError

CALIBRATION = "calib_cam_to_cam.txt"  # where KITTI states the size of images


def block_mean(
    image: Tensor,  # [H, W, C] uint8
    factor: int,
) -> Tensor:  # [H // factor, W // factor, C] uint8; a remainder at the right and lower edge is cut off
    """Mean of each block of factor x factor pixels, halves rounded up, in integers, so that it is the same everywhere."""
    if factor == 1:
        return image
    h, w = image.shape[0] // factor, image.shape[1] // factor
    blocks = image[: h * factor, : w * factor].reshape(h, factor, w, factor, -1)
    total = blocks.sum(dim=(1, 3), dtype=torch.int64)
    return ((2 * total + factor * factor) // (2 * factor * factor)).to(torch.uint8)


def decode_image(
    data: bytes,  # a PNG or JPEG file
    name: str,  # for messages
    size: tuple[int, int],  # width, height that the calibration demands
    downscale: int,
    calibration: str = "the calibration",  # for messages
) -> Tensor:  # [H // downscale, W // downscale, 3] uint8
    with _decoding(name):
        check_header(data, name, size, calibration)
        pixels = np.array(_open(data).convert("RGB"))
    return block_mean(torch.from_numpy(pixels), downscale)


def check_header(
    data: bytes,  # a PNG or JPEG file
    name: str,  # for messages
    size: tuple[int, int],  # width, height that the calibration demands
    calibration: str = "the calibration",  # for messages
) -> None:
    """Everything that can be told without decoding pixels, so that a file that claims a huge image takes no memory."""
    with _decoding(name):
        picture = _open(data)
        if picture.size != size:
            raise CaptureError(
                f"{name} is {picture.width}x{picture.height} pixels, but {calibration} is for {size[0]}x{size[1]}; "
                "use the images that belong to this calibration, or correct the size there"
            )
        if picture.mode not in ("RGB", "L"):
            raise CaptureError(f"{name} holds pixels of the kind {picture.mode}; save it with 8 bits of RGB or grey")
        picture.verify()  # checksums of a PNG: Pillow decodes damaged pixels without a word


def _open(data: bytes) -> Picture:
    """Neither Image.open's other formats, some of which start programs, nor its warning about large images: sizes are checked."""
    kind = PngImageFile if data.startswith(b"\x89PNG") else JpegImageFile
    return kind(io.BytesIO(data))


@contextmanager
def _decoding(name: str) -> Iterator[None]:
    """Pillow does not document what damaged files raise: errors of parsing, of zlib, of memory, also warnings made errors."""
    try:
        yield
    except CaptureError:
        raise
    except Exception as error:
        raise CaptureError(
            f"{name} is no whole PNG or JPEG image ({short(error)}); copy it again from its source"
        ) from error


@dataclass(frozen=True)
class ImageFile:
    """Loads one image file of a KITTI drive. Plain data, so that it pickles."""

    path: Path
    size: tuple[int, int]  # width, height of the file
    downscale: int = 1

    def __call__(self) -> Tensor:  # [H, W, 3] uint8
        return decode_image(self._read(), str(self.path), self.size, self.downscale, CALIBRATION)

    def check(self) -> None:
        """What can be told without decoding."""
        check_header(self._read(), str(self.path), self.size, CALIBRATION)

    def _read(self) -> bytes:
        return read_bytes(self.path, "restore the file")
