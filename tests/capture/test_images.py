# SPDX-License-Identifier: Apache-2.0
"""Images that cannot be used, as a KITTI drive holds them: refused before they take time or memory."""

import io
import re
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from broken_kitti import PNG, Damage, check, cut, folder, load, put, refusals
from kitti_drive import DRIVE, write_drive
from mutations import bounded_memory
from PIL import Image

from nurec_lite.capture import images
from nurec_lite.capture.images import block_mean, decode_image
from nurec_lite.capture.types import Encoded


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_drive(tmp_path, steps=12)


def picture(mode: str, size: tuple[int, int] = (12, 8), kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new(mode, size).save(file, kind)
    return file.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *chunks: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + chunk(b"IEND", b"")


@pytest.mark.parametrize("frame", [0, 2])  # the first one is looked at before any other
@refusals(
    (put(PNG, "no image"), r"\.png is no whole PNG or JPEG image \(not a JPEG file\); copy it again from its source"),
    (put(PNG, b"\x89PNG\r\n\x1a\n"), r"\.png is no whole PNG or JPEG image .*; copy it again from its source"),
    (put(PNG, b""), r"\.png is empty; restore the file"),
    (folder(PNG), r"\.png is no file; restore the file"),
    (cut(PNG, 6), r"\.png is no whole PNG or JPEG image \(.*\); copy it again from its source"),
    (cut(PNG, 100), r"\.png is no whole PNG or JPEG image \(.*\); copy it again from its source"),
    (put(PNG, picture("RGB", (10, 8))), r"\.png is 10x8 pixels, but calib_cam_to_cam.txt is for 12x8; use the images that belong"),
    (put(PNG, picture("RGB", (8, 12), "JPEG")), r"\.png is 8x12 pixels, but calib_cam_to_cam.txt is for 12x8; use the images"),
    (put(PNG, png(12, 8, chunk(b"IDAT", zlib.compress(bytes(99))))), r"\.png is no whole PNG or JPEG image \(.*\); copy it"),
    (put(PNG, png(12, 8)), r"\.png is no whole PNG or JPEG image \(.*\); copy it again from its source"),
    (put(PNG, picture("RGBA")), r"\.png holds pixels of the kind RGBA; save it with 8 bits of RGB or grey"),
    (put(PNG, picture("I;16")), r"\.png holds pixels of the kind I;16; save it with 8 bits of RGB or grey"),
    (put(PNG, picture("CMYK", kind="JPEG")), r"\.png holds pixels of the kind CMYK; save it with 8 bits of RGB or grey"),
)  # fmt: skip
def test_images(root: Path, damage: Damage, message: str, frame: int) -> None:
    if frame:
        (root / DRIVE / PNG).unlink()
        (root / DRIVE / PNG).with_name("0000000002.png").rename(root / DRIVE / PNG)
    check(root, damage, re.escape(f"image_02/data/{0:010d}") + message)


def test_damaged_pixels_are_reported_by_the_checksum(root: Path) -> None:
    path = root / DRIVE / PNG
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    check(root, lambda _: path.write_bytes(data), r"0000000000\.png is no whole PNG .*; copy it again from its source")


def test_bombs_take_no_memory(root: Path) -> None:
    """A header that claims 2.7 GB, and texts that inflate to 400 MB."""
    text = chunk(b"zTXt", b"note\0\0" + zlib.compress(bytes(1 << 20)))
    for data, message in (
        (
            png(30000, 30000, chunk(b"IDAT", zlib.compress(bytes(1000)))),
            "is 30000x30000 pixels, but .*; use the images",
        ),
        (png(12, 8, *[text] * 400), r"is no whole PNG or JPEG image \(.*\); copy it again"),
        (png(12, 8, chunk(b"zTXt", b"note\0\0" + zlib.compress(bytes(1 << 28)))), r"is no whole PNG .*; copy it again"),
    ):
        with bounded_memory(150 << 20):
            check(root, put(PNG, data), rf"0000000000\.png {message}")


def test_jpeg_is_read_like_png(root: Path) -> None:
    put(PNG, picture("RGB", kind="JPEG"))(root)
    assert load(root).images[0].load().shape == (8, 12, 3)
    cut(PNG, 100)(root)
    check(root, lambda _: None, r"0000000000\.png is no whole PNG or JPEG image \(.*\); copy it again")


# JPEG files by libjpeg-turbo


def coloured(size: tuple[int, int], **save: object) -> Encoded:
    pixels = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC).save(file, "JPEG", **save)
    return Encoded(file.getvalue(), "an image", size, 1)


def by_pillow(image: Encoded) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(image.data)).convert("RGB"))


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("size", [(64, 48), (61, 43), (1, 1), (17, 2)])
@pytest.mark.parametrize("quality", [30, 95])
def test_a_jpeg_has_pillows_pixels(size: tuple[int, int], subsampling: str, quality: int) -> None:
    image = coloured(size, quality=quality, subsampling=subsampling)
    assert np.array_equal(decode_image(image).numpy(), by_pillow(image))


@pytest.mark.parametrize("save", [{}, {"progressive": True}, {"subsampling": "4:2:0", "restart_marker_rows": 1}])
@pytest.mark.parametrize("installed", [False, True])
def test_any_jpeg_is_read_with_and_without_simplejpeg(
    save: dict[str, object], installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = coloured((40, 30), **save)
    if not installed:
        monkeypatch.setattr(images, "turbo", lambda: None)
    assert np.array_equal(decode_image(image).numpy(), by_pillow(image))


def test_simplejpeg_decodes_plain_files_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    size = (40, 30)
    monkeypatch.setattr(images, "turbo", lambda: lambda data: np.zeros((*size[::-1], 3), np.uint8))
    assert not decode_image(coloured(size)).any()
    assert decode_image(coloured(size, progressive=True)).any()
    assert decode_image(Encoded(picture("L", size, "JPEG"), "grey", size, 1)).shape == (*size[::-1], 3)


@pytest.mark.parametrize("cut", [0.5, 0.9])
def test_a_jpeg_that_libjpeg_warns_of_is_read_as_pillow_reads_it(cut: float) -> None:
    """Its middle is missing, and its end is there."""
    whole = coloured((64, 48))
    at = int(cut * len(whole.data))
    image = replace(whole, data=whole.data[:at] + b"\xff\xd9")
    assert np.array_equal(decode_image(image).numpy(), by_pillow(image))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("factor", [1, 2, 3, 5, 16, 17, 40])
def test_a_block_becomes_its_mean_with_halves_rounded_up(factor: int, channels: int) -> None:
    """The image is a part of a larger one, has white pixels, and edges that fill no block."""
    draw = torch.Generator().manual_seed(factor)
    whole = torch.randint(0, 256, (2 * factor + factor // 2, 3 * factor + 1, channels + 1), generator=draw)
    whole[:factor, :factor] = 255
    part = whole.to(torch.uint8)[..., :channels]
    blocks = part[: 2 * factor, : 3 * factor].double().reshape(2, factor, 3, factor, channels)
    wanted = (blocks.mean(dim=(1, 3)) + 0.5).floor()
    found = block_mean(part, factor)
    assert found.dtype == torch.uint8 and found.shape[:2] == (part.shape[0] // factor, part.shape[1] // factor)
    assert torch.equal(found[:2, :3].double(), wanted)
