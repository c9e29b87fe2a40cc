# SPDX-License-Identifier: Apache-2.0
"""Images of a recording: JPEG and PNG as they are, raw pixels of 8 and 16 bits, and mosaics of colour filters (Bayer)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nurec_lite.capture.files import short
from nurec_lite.capture.images import block_mean, check_header, decode_image
from nurec_lite.capture.rosbag.bag import Stored
from nurec_lite.capture.rosbag.library import COMPRESSED
from nurec_lite.capture.types import CaptureError, Encoded

# of sensor_msgs/image_encodings: numbers of channels, and the places of red, green and blue among them
PLAIN = {
    "rgb8": (3, (0, 1, 2)), "bgr8": (3, (2, 1, 0)), "rgba8": (4, (0, 1, 2)), "bgra8": (4, (2, 1, 0)), "mono8": (1, (0, 0, 0)),
    "8uc1": (1, (0, 0, 0)), "8uc3": (3, (2, 1, 0)),
}  # fmt: skip
# colours of the pixels (0, 0), (0, 1), (1, 0) and (1, 1)
BAYER = {"bayer_rggb8": "rggb", "bayer_bggr8": "bggr", "bayer_gbrg8": "gbrg", "bayer_grbg8": "grbg"}
WIDE = {name.replace("8", "16"): name for name in (*PLAIN, *BAYER) if not name.startswith("8uc")}  # two bytes a channel
# places of both luminances, of U and of V in four bytes for two pixels
YUV = {"yuv422": (1, 3, 0, 2), "uyvy": (1, 3, 0, 2), "yuv422_yuy2": (0, 2, 1, 3), "yuyv": (0, 2, 1, 3)}
MAGIC = (b"\x89PNG", b"\xff\xd8")


def flaw_of(message: Any, kind: str) -> str | None:
    """Returns the reason why images like this one cannot be read; None: they can."""
    if kind == COMPRESSED:
        form, data = str(message.format).lower(), bytes(message.data[:4])
        if "compresseddepth" in form:
            return "holds depths"
        if form.startswith("bayer"):
            return "holds compressed mosaics of a colour filter (Bayer); record images in colour"
        return (
            None
            if data.startswith(MAGIC)
            else f"holds images of the format '{short(message.format)}', but must be JPEG or PNG"
        )
    encoding = str(message.encoding).lower()
    known = ", ".join((*PLAIN, *BAYER, *WIDE, *YUV))
    if encoding in known.split(", "):
        return None
    return f"holds images of the encoding '{short(message.encoding)}', but the encodings that are read are {known}"


@dataclass(frozen=True)
class CompressedLoad:
    """Loads an image that is JPEG or PNG in the recording. Plain data, so that it pickles."""

    stored: Stored
    size: tuple[int, int]  # width, height that the calibration demands
    downscale: int
    calibration: str  # topic, for messages

    def __call__(self) -> Tensor:  # [H, W, 3] uint8
        return decode_image(self.encoded())

    def encoded(self) -> Encoded:
        data = np.asarray(self.stored.message().data, dtype=np.uint8).tobytes()
        name = f"{self.stored.name}: an image of {self.stored.topic.name}"
        return Encoded(data, name, self.size, self.downscale, self.calibration)

    def mark(self, thorough: bool) -> tuple[int, int]:
        return self.stored.mark(thorough)

    def check(self) -> None:
        check_header(self.encoded())


@dataclass(frozen=True)
class RawLoad:
    """Loads an image from its pixels in the recording."""

    stored: Stored
    size: tuple[int, int]
    downscale: int
    calibration: str

    def __call__(self) -> Tensor:  # [H, W, 3] uint8
        return block_mean(pixels_of(self.stored.message(), self._where()), self.downscale)

    def check(self) -> None:
        message = self.stored.message()
        if (message.width, message.height) != self.size:
            raise CaptureError(
                f"{self._where()} is {message.width}x{message.height} pixels, but {self.calibration} is for {self.size[0]}x{self.size[1]}; "
                "give the intrinsics of these images in data.mapping"
            )

    def mark(self, thorough: bool) -> tuple[int, int]:
        return self.stored.mark(thorough)

    def _where(self) -> str:
        return f"{self.stored.name}: an image of {self.stored.topic.name}"


def pixels_of(
    message: Any,  # sensor_msgs/Image
    where: str,
) -> Tensor:  # [H, W, 3] uint8
    flaw = flaw_of(message, "")
    if flaw:
        raise CaptureError(f"{where} {flaw}")
    encoding = message.encoding.lower()
    if encoding in YUV:
        if message.width % 2:
            raise CaptureError(
                f"{where} is {message.width} pixels wide, but {encoding} has pairs; leave the damaged message "
                "out by seconds in data.mapping"
            )
        return _from_yuv(_rows(message, where, 2), YUV[encoding])
    narrow, size = WIDE.get(encoding, encoding), 2 if encoding in WIDE else 1
    channels, places = PLAIN.get(narrow, (1, (0, 0, 0)))
    rows = _rows(message, where, channels * size)[
        ..., size - 1 if not message.is_bigendian else 0 :: size
    ]  # high bytes
    if narrow in BAYER:
        return demosaiced(torch.from_numpy(rows[..., 0].copy()), BAYER[narrow])
    return torch.from_numpy(rows[..., list(places)])


def _rows(message: Any, where: str, channels: int) -> np.ndarray:  # [H, W, channels] uint8
    height, width, step = message.height, message.width, message.step
    data = np.asarray(message.data, dtype=np.uint8)
    if min(height, width) < 1 or step < width * channels or len(data) < (height - 1) * step + width * channels:
        raise CaptureError(
            f"{where} claims {width}x{height} pixels in rows of {step} bytes, but holds {len(data)} bytes; leave the damaged "
            "message out by seconds in data.mapping"
        )
    return np.ndarray((height, width, channels), np.uint8, data.tobytes(), 0, (step, channels, 1))


def _from_yuv(
    rows: np.ndarray,  # [H, W, 2]
    places: tuple[int, ...],  # of YUV
) -> Tensor:  # [H, W, 3] uint8
    """Converts YUV by BT.601, luminances from 16 to 235, as ROS does."""
    height, width = rows.shape[:2]
    pairs = torch.from_numpy(rows.reshape(height, width // 2, 4).astype(np.float32))
    luminance = (1.164 * (pairs[..., places[:2]] - 16)).reshape(height, width)
    u, v = ((pairs[..., place] - 128).repeat_interleave(2, dim=1) for place in places[2:])
    colour = torch.stack([luminance + 1.596 * v, luminance - 0.813 * v - 0.391 * u, luminance + 2.018 * u], dim=-1)
    return colour.round().clamp(0, 255).to(torch.uint8)


def demosaiced(
    mosaic: Tensor,  # [H, W] uint8
    pattern: str,  # of BAYER
) -> Tensor:  # [H, W, 3] uint8
    """Fills each colour by the weighted mean of its pixels among the nine around (bilinear)."""
    kernel = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]])[None, None]
    values = mosaic.float()
    planes = []
    for colour in "rgb":
        mask = torch.zeros_like(values)
        for place in (k for k, name in enumerate(pattern) if name == colour):
            mask[place // 2 :: 2, place % 2 :: 2] = 1
        total, weight = (
            torch.nn.functional.conv2d(v[None, None], kernel, padding=1)[0, 0] for v in (values * mask, mask)
        )
        planes.append(total / weight)
    return torch.stack(planes, dim=-1).round().clamp(0, 255).to(torch.uint8)
