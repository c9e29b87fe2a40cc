# SPDX-License-Identifier: Apache-2.0
"""Images that cannot be used, as a KITTI drive holds them: refused before they take time or memory."""

import io
import re
import struct
import zlib
from pathlib import Path

import pytest
from broken_kitti import PNG, Damage, check, cut, folder, load, put, refusals
from kitti_drive import DRIVE, write_drive
from mutations import bounded_memory
from PIL import Image


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
