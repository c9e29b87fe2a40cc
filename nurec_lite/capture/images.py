# SPDX-License-Identifier: Apache-2.0
"""Decoding of images, and reduction by the mean of blocks of pixels."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL.Image import Resampling, fromarray
from PIL.ImageFile import ImageFile as Picture
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from torch import Tensor

from nurec_lite.base.texts import open_file
from nurec_lite.capture.files import mark_of_file, read_bytes, short
from nurec_lite.capture.jpeg import EIGHTH, Pixels, damage_of, plain_jpeg, turbo
from nurec_lite.capture.types import CaptureError, Encoded, Glance

CALIBRATION = "calib_cam_to_cam.txt"  # where KITTI states the size of images
FIRST, LAST = 1 << 16, 1 << 10  # bytes of a file that are read at a glance
_ENDS = {"PNG": b"IEND", "JPEG": b"\xff\xd9"}


def block_mean(
    image: Tensor,  # [H, W, C] uint8
    factor: int,
) -> Tensor:  # [H // factor, W // factor, C] uint8; a remainder at the right and lower edge is cut off
    """Mean of each block of factor x factor pixels, halves rounded up, in integers, so that it is the same everywhere."""
    if factor == 1:
        return image
    if image.device.type == "cpu":
        return torch.from_numpy(_host_block_mean(image.numpy(), factor))
    h, w = image.shape[0] // factor, image.shape[1] // factor
    blocks = image[: h * factor, : w * factor].reshape(h, factor, w, factor, -1)
    total = blocks.sum(dim=(1, 3), dtype=torch.int32)  # half the time of int64
    return ((2 * total + factor * factor) // (2 * factor * factor)).to(torch.uint8)


def _host_block_mean(image: Pixels, factor: int) -> Pixels:
    """The same in a tenth of the time: torch adds slowly along dimensions as short as a block or a pixel."""
    h, w, channels = image.shape[0] // factor, image.shape[1] // factor, image.shape[2]
    rows = image[: h * factor, : w * factor].reshape(h, factor, w * factor * channels)
    kind = np.uint16 if factor <= 16 else np.uint32  # 16 x 16 pixels of 255 fit
    columns = _sum([rows[:, k] for k in range(factor)], kind).reshape(h * w, factor, channels)
    means = np.empty((h * w, channels), kind)
    for channel in range(channels):
        means[:, channel] = _sum([columns[:, k, channel] for k in range(factor)], kind)
    means += factor * factor // 2
    means //= factor * factor
    return means.astype(np.uint8).reshape(h, w, channels)


def _sum(parts: list[Any], kind: type) -> Any:
    total = np.add(parts[0], parts[1], dtype=kind)
    for part in parts[2:]:
        total += part
    return total


def decode_image(image: Encoded) -> Tensor:  # [H // downscale, W // downscale, 3] uint8
    check_header(image)
    with decoding(image.name, MemoryError):  # of an image of the right size, it is the machine's
        pixels = _pixels(image)
    return block_mean(torch.from_numpy(pixels), image.downscale)


def _pixels(image: Encoded) -> Pixels:
    """The pixels of a plain JPEG by simplejpeg, in 0.55 to 0.8 of Pillow's time: both have libjpeg-turbo, and Pillow copies more. Pillow
    decodes all other files, those that the library warns of, and all where simplejpeg is not installed."""
    decode = turbo()
    if decode is not None and plain_jpeg(image):
        with suppress(ValueError):
            return decode(image.data)
    picture = _open(image.data)
    return np.array(picture if picture.mode == "RGB" else picture.convert("RGB"))  # which would copy it


class SmallCopy(NamedTuple):
    pixels: Tensor  # [height, width, 3] uint8
    damage: str | None  # words of libjpeg about lost pixels, which are grey; None: a whole image, or not known


def small_copy(
    image: Encoded,
    size: tuple[int, int],  # width, height
) -> SmallCopy:
    with decoding(image.name, MemoryError):
        picture, damage = _checked(image), None
        reduced: Any = picture
        if isinstance(picture, JpegImageFile):
            reduced, damage = _eighth(image, picture)
        return SmallCopy(torch.from_numpy(np.array(reduced.convert("RGB").resize(size, Resampling.BOX))), damage)


def _eighth(image: Encoded, picture: JpegImageFile) -> tuple[Any, str | None]:
    """A JPEG at an eighth of its size, in a tenth of the time, and its damage."""
    decode = turbo()
    if decode is not None and plain_jpeg(image):
        with suppress(ValueError):
            return fromarray(decode(image.data, **EIGHTH)), None
    picture.draft("RGB", (picture.width // 8, picture.height // 8))
    return picture, damage_of(image)


def check_header(image: Encoded) -> None:
    """Checks all that is known without decoding pixels, so that a file that claims a huge image takes no memory."""
    with decoding(image.name):
        _checked(image).verify()  # checksums of a PNG: Pillow decodes damaged pixels without a word


def kind_of(
    glance: Glance,
) -> tuple[str, str] | None:  # PNG or JPEG, RGB or L; None: the file may be cut short, so it must be read whole
    """Format and mode of a file by its ends; CaptureError where the first bytes show another size or other pixels than demanded."""
    try:
        with decoding(glance.first.name):
            picture = _checked(glance.first)
    except CaptureError:
        if glance.size > len(glance.first.data):  # the header may be longer
            return None
        raise
    kind = "PNG" if isinstance(picture, PngImageFile) else "JPEG"
    return (kind, picture.mode) if _ENDS[kind] in glance.last else None


def _checked(image: Encoded) -> Picture:
    picture = _open(image.data)
    if picture.size != image.size:
        raise CaptureError(
            f"{image.name} is {picture.width}x{picture.height} pixels, but {image.calibration} is for "
            f"{image.size[0]}x{image.size[1]}; use the images that belong to this calibration, or correct the size there"
        )
    if picture.mode not in ("RGB", "L"):
        raise CaptureError(f"{image.name} holds pixels of the kind {picture.mode}; save it with 8 bits of RGB or grey")
    return picture


def as_image(
    value: object,  # the result of a user's loader: a tensor, or an array of numpy
) -> Tensor:  # of the same shape and type
    return value if isinstance(value, Tensor) else torch.as_tensor(np.require(value, requirements=("C", "W")))


def _open(data: bytes) -> Picture:
    """Picture of the file, without the other formats of Image.open, which imageio calls (some start programs), and without its
    warning about large images: sizes are checked."""
    kind = PngImageFile if data.startswith(b"\x89PNG") else JpegImageFile
    return kind(io.BytesIO(data))


@contextmanager
def decoding(name: str, *others: type[Exception]) -> Iterator[None]:
    """Block that turns any error into CaptureError. Pillow does not document those of damaged files: parsing, zlib, memory, warnings."""
    passed: tuple[type[Exception], ...] = (CaptureError, *others)
    try:
        yield
    except passed:
        raise
    except Exception as error:
        raise CaptureError(
            f"{name} is no whole PNG or JPEG image ({short(error)}); copy it again from its source"
        ) from error


@dataclass(frozen=True)
class ImageFile:
    """Loads one image file of a drive. Plain data, so that it pickles."""

    path: Path
    size: tuple[int, int]  # width, height of the file
    downscale: int = 1
    calibration: str = CALIBRATION  # file that states the size, for messages

    def __call__(self) -> Tensor:  # [H, W, 3] uint8
        return decode_image(self.encoded())

    def check(self) -> None:
        """Checks everything that is known without decoding."""
        check_header(self.encoded())

    def glance(self) -> Glance:
        try:
            with open_file(self.path) as file:
                size = os.fstat(file.fileno()).st_size
                first = file.read(FIRST)
                file.seek(max(0, size - LAST))
                return Glance(
                    Encoded(first, str(self.path), self.size, self.downscale, self.calibration), file.read(), size
                )
        except OSError as error:
            raise CaptureError(f"{self.path} cannot be read ({error.strerror}); restore the file") from error

    def encoded(self) -> Encoded:
        return Encoded(
            read_bytes(self.path, "restore the file"), str(self.path), self.size, self.downscale, self.calibration
        )

    def mark(self, thorough: bool) -> tuple[int, int]:
        return mark_of_file(self.path, thorough)


def grey(
    image: Tensor,  # [H, W, 3] uint8
) -> Tensor:  # [H, W] float32, 0 to 255: the mean of a pixel's colours, in a tenth of the time that torch's mean takes
    red, green, blue = image.short().unbind(-1)
    return (red + green + blue).float() / 3
