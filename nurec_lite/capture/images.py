# SPDX-License-Identifier: Apache-2.0
"""Decoding of images, and reduction by the mean of blocks of pixels."""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nurec_lite.capture.types import CaptureError


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
) -> Tensor:  # [H // downscale, W // downscale, 3] uint8
    try:
        with Image.open(io.BytesIO(data)) as file:
            pixels = np.array(file.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise CaptureError(f"{name} cannot be decoded ({error}); copy the file again from its source") from error
    check_size(name, (pixels.shape[1], pixels.shape[0]), size)
    return block_mean(torch.from_numpy(pixels), downscale)


def check_size(name: str, found: tuple[int, int], expected: tuple[int, int]) -> None:
    if found != expected:
        raise CaptureError(
            f"{name} is {found[0]}x{found[1]} pixels, but the calibration is for {expected[0]}x{expected[1]}; "
            "use the images that belong to this calibration, or correct the size in the calibration"
        )


@dataclass(frozen=True)
class ImageFile:
    """Loads one image file. Plain data, so that it pickles."""

    path: Path
    size: tuple[int, int]  # width, height of the file
    downscale: int = 1

    def __call__(self) -> Tensor:  # [H, W, 3] uint8
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise CaptureError(f"{self.path} cannot be read ({error.strerror}); restore the file") from error
        return decode_image(data, str(self.path), self.size, self.downscale)
