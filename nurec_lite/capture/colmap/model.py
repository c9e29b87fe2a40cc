# SPDX-License-Identifier: Apache-2.0
"""Files of a reconstruction: cameras, poses of images and points, binary or text (https://colmap.github.io/format.html).

A file is walked from its start to its end; the lists of key points, which are most of it, are passed over.
"""

import math
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nurec_lite.base.texts import open_file
from nurec_lite.capture.files import natural, numbers, short
from nurec_lite.capture.types import CaptureError

# names and numbers of parameters by COLMAP's own numbers
MODELS = {
    0: ("SIMPLE_PINHOLE", 3), 1: ("PINHOLE", 4), 2: ("SIMPLE_RADIAL", 4), 3: ("RADIAL", 5), 4: ("OPENCV", 8), 5: ("OPENCV_FISHEYE", 8),
    6: ("FULL_OPENCV", 12), 7: ("FOV", 5), 8: ("SIMPLE_RADIAL_FISHEYE", 4), 9: ("RADIAL_FISHEYE", 5), 10: ("THIN_PRISM_FISHEYE", 12),
    11: ("RAD_TAN_THIN_PRISM_FISHEYE", 16),
}  # fmt: skip
MOST_CAMERAS, MOST_IMAGES, MOST_POINTS = 100_000, 100_000, 10_000_000
LARGEST = 1 << 36  # bytes of a file
LONGEST_NAME = 1024  # bytes
LONGEST_LINE = 4096  # bytes of a line that is not passed over
REMEDY = "restore the file, or export the reconstruction again"


@dataclass(frozen=True)
class Lens:
    """A camera of the reconstruction."""

    number: int
    model: str
    width: int  # pixels
    height: int
    params: tuple[float, ...]


@dataclass(frozen=True)
class Shot:
    """An image with its pose."""

    name: str  # of its file, below the folder of images
    camera: int  # number of a Lens
    quaternion: tuple[float, ...]  # wxyz, camera from world
    translation: tuple[float, ...]


def table_of(folder: Path, name: str) -> Path | None:
    """Path of a table: the binary file, else the text. A link to nothing is refused as it is read."""
    return next((path for end in (".bin", ".txt") if os.path.lexists(path := folder / (name + end))), None)


def read_cameras(path: Path) -> dict[int, Lens]:
    with _walked(path) as file:
        rows = _binary_cameras(file) if path.suffix == ".bin" else _text_cameras(file)
        lenses = dict[int, Lens]()
        for lens in rows:
            if lenses.setdefault(lens.number, lens) != lens:
                raise ValueError(f"camera {lens.number} is there twice")
    for lens in lenses.values():
        sizes = 0 < lens.width <= 1 << 16 and 0 < lens.height <= 1 << 16
        if not sizes or not all(map(math.isfinite, lens.params)):
            raise CaptureError(f"{path}: camera {lens.number} has a size or parameters without meaning; {REMEDY}")
    return lenses


def read_shots(path: Path) -> list[Shot]:
    with _walked(path) as file:
        shots = list(_binary_shots(file) if path.suffix == ".bin" else _text_shots(file))
    for shot in shots:
        values = (*shot.quaternion, *shot.translation)
        length = math.hypot(*shot.quaternion)
        if not all(abs(v) < 1e8 for v in values) or not 0.5 < length < 2:
            raise CaptureError(f"{path}: image {short(shot.name)} has no pose; {REMEDY}")
        if shot.name.startswith("/") or ".." in Path(shot.name).parts or not shot.name.isprintable():
            raise CaptureError(f"{path} names the image '{short(shot.name)}', which lies elsewhere; {REMEDY}")
    return shots


def read_points(path: Path) -> list[tuple[float, float, float]]:
    """Places of the points in the reconstruction's world."""
    with _walked(path) as file:
        rows = _binary_points(file) if path.suffix == ".bin" else _text_points(file)
        return [row for row in rows if all(abs(v) < 1e8 for v in row)]


@contextmanager
def _walked(path: Path) -> Iterator[BinaryIO]:
    """Block with a file to walk; a flaw raises an error with one sentence."""
    try:
        with open_file(path) as file:
            if not 0 < os.fstat(file.fileno()).st_size <= LARGEST:
                raise ValueError("it is empty, or larger than any reconstruction")
            yield file
    except CaptureError:
        raise
    except OSError as error:
        raise CaptureError(f"{path} cannot be read ({error.strerror}); {REMEDY}") from error
    except (ValueError, struct.error, IndexError) as error:
        raise CaptureError(f"{path} is no file of COLMAP ({short(error)}); {REMEDY}") from error


# ---- binary


class _Cursor:
    """A place in a file of little-endian numbers."""

    def __init__(self, file: BinaryIO) -> None:
        self.data, self.at = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), 0

    def take(self, layout: str) -> tuple[float, ...]:
        found = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return found

    def count(self, most: int) -> int:
        (found,) = self.take("Q")
        if found > most:
            raise ValueError(f"it claims {found} entries")
        return int(found)

    def skip(self, size: int) -> None:
        self.at += size
        if self.at > len(self.data):
            raise ValueError("it is cut off")

    def text(self) -> str:
        end = self.data.find(b"\0", self.at, self.at + LONGEST_NAME)
        if end < 0:
            raise ValueError("a name has no end")
        found = self.data[self.at : end].decode()
        self.at = end + 1
        return found


def _binary_cameras(file: BinaryIO) -> Iterator[Lens]:
    cursor = _Cursor(file)
    for _ in range(cursor.count(MOST_CAMERAS)):
        number, kind, width, height = map(int, cursor.take("iiQQ"))
        if kind not in MODELS:
            raise ValueError(f"camera {number} has a model of the unknown number {kind}")
        model, length = MODELS[kind]
        yield Lens(number, model, width, height, cursor.take(f"{length}d"))


def _binary_shots(file: BinaryIO) -> Iterator[Shot]:
    cursor = _Cursor(file)
    for _ in range(cursor.count(MOST_IMAGES)):
        _, *pose, camera = cursor.take("I7dI")
        name = cursor.text()
        cursor.skip(24 * cursor.count(LARGEST))
        yield Shot(name, int(camera), tuple(pose[:4]), tuple(pose[4:]))


def _binary_points(file: BinaryIO) -> Iterator[tuple[float, float, float]]:
    cursor = _Cursor(file)
    for _ in range(cursor.count(MOST_POINTS)):
        _, x, y, z = cursor.take("Q3d")
        cursor.skip(11)  # colour and error
        cursor.skip(8 * cursor.count(LARGEST))
        yield x, y, z


# ---- text


def _lines(file: BinaryIO, every: int) -> Iterator[str]:
    """The first of each `every` lines that are no comments, at most LONGEST_LINE of it; the others, which may be empty, are passed over."""
    number = 0
    while line := file.readline(LONGEST_LINE):
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(1 << 20)
        if line.startswith(b"#") or (number % every == 0 and not line.strip()):
            continue
        if number % every == 0:
            yield line.decode("utf-8", "strict" if line.endswith(b"\n") else "ignore").strip()
        number += 1


def _text_cameras(file: BinaryIO) -> Iterator[Lens]:
    known = dict(MODELS.values())
    for line in _lines(file, 1):
        number, model, width, height, params = line.split(maxsplit=4)
        if model not in known or len(numbers(params)) != known[model]:
            raise ValueError(
                f"camera {short(number)} has the model {short(model)} with {len(params.split())} parameters"
            )
        yield Lens(natural(number), model, natural(width), natural(height), tuple(numbers(params)))


def _text_shots(file: BinaryIO) -> Iterator[Shot]:
    for line in _lines(file, 2):
        _, *pose, camera, name = line.split(maxsplit=9)
        values = numbers(" ".join(pose))
        if len(values) != 7 or len(name.encode()) > LONGEST_NAME:
            raise ValueError(f"'{short(line)}' is no image")
        yield Shot(name, natural(camera), tuple(values[:4]), tuple(values[4:]))


def _text_points(file: BinaryIO) -> Iterator[tuple[float, float, float]]:
    for count, line in enumerate(_lines(file, 1)):
        if count >= MOST_POINTS:
            raise ValueError(f"it has more than {MOST_POINTS} points")
        x, y, z = numbers(" ".join(line.split(maxsplit=4)[1:4]))
        yield x, y, z
