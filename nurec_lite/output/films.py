# SPDX-License-Identifier: Apache-2.0
"""Pictures one after another as an animation: GIF, animated PNG or MP4.

Pictures are uint8 arrays [H, W, 3], all of one size. Each is taken as it comes, none is kept as it came (a GIF keeps one byte a
pixel until its end), and a file appears when it is whole.

MP4 goes through imageio and its ffmpeg plugin, which hands each picture to ffmpeg at once. GIF and APNG do not: imageio writes them by
Pillow, which keeps every picture of an APNG twice until the end (60 pictures for 30), so a long film may not fit into memory. For a GIF
imageio takes no palette, and strong colours then err (`_of_256_colours`).
"""

import io
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

import imageio.v3 as imageio
import imageio_ffmpeg
import numpy as np
from PIL import Image

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.files import OutputError, written

Add = Callable[[np.ndarray], None]
KINDS = ("gif", "apng", "mp4")
_PALETTE_PIXELS = 20_000  # about, for the choice of a GIF's colours


@contextmanager
def animation(
    path: Path,  # its suffix is one of KINDS
    fps: float,
) -> Iterator[Add]:
    """Block with a function that adds a picture; the file is there when the block ends well. GIF and APNG loop endlessly. ValueError for
    another suffix, or without a picture."""
    kinds: dict[str, Callable[[Path, float], AbstractContextManager[Add]]] = {"gif": _gif, "apng": _apng, "mp4": _mp4}
    kind = path.suffix.lower().removeprefix(".")
    if kind not in KINDS:
        raise ValueError(f"cannot write {path.name}: an animation is one of {', '.join(KINDS)}")
    count = 0
    with kinds[kind](path, fps) as add:

        def counted(picture: np.ndarray) -> None:
            nonlocal count
            add(picture)
            count += 1

        yield counted
        if count == 0:
            raise ValueError(f"cannot write {path.name}: there are no pictures")


def save_animation(
    path: Path,  # its suffix is one of KINDS
    pictures: Iterable[np.ndarray],
    fps: float,
) -> None:
    with animation(path, fps) as add:
        for picture in pictures:
            add(picture)


def check_video() -> None:
    """Raises ConfigError without the program that encodes MP4: the package imageio-ffmpeg brings it for most machines, but not for all."""
    try:
        imageio_ffmpeg.get_ffmpeg_exe()
    except RuntimeError as error:
        raise ConfigError(
            "formats=mp4 needs the program ffmpeg, which imageio-ffmpeg does not bring for this machine; install ffmpeg, or use gif or apng"
        ) from error


@contextmanager
def _gif(path: Path, fps: float) -> Iterator[Add]:
    """Block that writes a GIF: 256 colours a picture and whole hundredths of a second; a picture equal to the one before prolongs it."""
    images: list[Image.Image] = []
    with written(path) as file:
        yield lambda picture: images.append(_of_256_colours(picture))
        later = {"save_all": True, "append_images": images[1:], "duration": 1000 / fps, "loop": 0}
        images[0].save(file, format="GIF", **later)


def _of_256_colours(picture: np.ndarray) -> Image.Image:
    """Reduces a picture to 256 colours. Pillow's default, median cut, errs by up to 83 of 255 on the bundled street, and differently from
    picture to picture: yellow cars flicker. This errs by 17; a palette from all pixels of a large picture would take seconds."""
    step = max(1, math.isqrt(picture.shape[0] * picture.shape[1] // _PALETTE_PIXELS))
    some = Image.fromarray(np.ascontiguousarray(picture[::step, ::step]))
    palette = some.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=1)
    return Image.fromarray(picture).quantize(palette=palette, dither=Image.Dither.NONE)


@contextmanager
def _apng(path: Path, fps: float) -> Iterator[Add]:
    with written(path) as file:
        stream = _Apng(file, fps)
        yield stream.add
        stream.close()


class _Apng:
    """Writes an animated PNG: every picture is compressed as a PNG of its own, and its data go into one file (PNG specification, third
    edition, 11.3.4)."""

    def __init__(self, file: BinaryIO, fps: float) -> None:
        self.file, self.delay, self.pictures, self.sequence, self.control = file, Fraction(1 / fps), 0, 0, 0

    def add(self, picture: np.ndarray) -> None:
        chunks = _chunks(picture)
        if self.pictures == 0:
            self.file.write(b"\x89PNG\r\n\x1a\n")
            self._write(b"IHDR", chunks[0][1])
            self.control = self.file.tell()
            self._write(b"acTL", bytes(8))
        height, width = picture.shape[:2]
        delay = self.delay.limit_denominator(1000)
        numbers = (width, height, 0, 0, min(delay.numerator, 65535), delay.denominator, 0, 0)
        self._write(b"fcTL", self._next() + struct.pack(">4I2H2B", *numbers))
        for data in (data for name, data in chunks if name == b"IDAT"):
            self._write(*((b"IDAT", data) if self.pictures == 0 else (b"fdAT", self._next() + data)))
        self.pictures += 1

    def close(self) -> None:
        self._write(b"IEND", b"")
        self.file.seek(self.control)
        self._write(b"acTL", struct.pack(">2I", self.pictures, 0))

    def _next(self) -> bytes:
        self.sequence += 1
        return struct.pack(">I", self.sequence - 1)

    def _write(self, name: bytes, data: bytes) -> None:
        self.file.write(struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)))


def _chunks(picture: np.ndarray) -> list[tuple[bytes, bytes]]:  # name and data
    file = io.BytesIO()
    Image.fromarray(picture).save(file, format="PNG")
    png, at, chunks = file.getvalue(), 8, []
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        chunks.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + length]))
        at += 12 + length
    return chunks


@contextmanager
def _mp4(path: Path, fps: float) -> Iterator[Add]:
    check_video()
    with written(path) as file, closing(_Film(path, Path(file.name), fps)) as film:
        yield film.add
        film.finish()


class _Film:
    """H.264 in the colours of BT.709. Sizes are made even, as its subsampled colours require, by repeating the last row or column."""

    def __init__(self, path: Path, temporary: Path, fps: float) -> None:
        self.path, self.temporary, self.count = path, temporary, 0
        colours = ["-vf", "scale=out_color_matrix=bt709:out_range=tv", "-colorspace", "bt709"]
        colours += ["-color_primaries", "bt709", "-color_trc", "bt709"]
        file = ["-crf", "18", "-movflags", "+faststart", "-f", "mp4"]
        target: Any = imageio.imopen(str(temporary), "w", plugin="FFMPEG", extension=".mp4")  # type: ignore[call-overload]
        self.writer = target.legacy_get_writer(
            fps=fps, codec="libx264", pixelformat="yuv420p", quality=None, macro_block_size=1, ffmpeg_log_level="error",
            output_params=[*colours, *file],
        )  # fmt: skip

    def add(self, picture: np.ndarray) -> None:
        even = np.pad(picture, ((0, picture.shape[0] % 2), (0, picture.shape[1] % 2), (0, 0)), mode="edge")
        try:
            self.writer.append_data(even)
        except OSError as error:  # ffmpeg has ended
            raise self._unfinished() from error
        self.count += 1

    def finish(self) -> None:
        """Finishes the file and reads it again, since imageio does not check the exit status of ffmpeg."""
        self.close()
        try:
            whole = self.count == 0 or imageio_ffmpeg.count_frames_and_secs(self.temporary)[0] == self.count
        except (OSError, RuntimeError) as error:
            raise self._unfinished() from error
        if not whole:
            raise self._unfinished()

    def close(self) -> None:
        self.writer.close()

    def _unfinished(self) -> OutputError:
        return OutputError(
            f"{self.path} cannot be written: ffmpeg did not finish it, and says why above; is there space left?"
        )
