# SPDX-License-Identifier: Apache-2.0
"""Files of a KITTI drive: their bytes, text, numbers and names, or a CaptureError with the remedy."""

import math
import os
import re
import zlib
from collections.abc import Collection
from pathlib import Path

from nurec_lite.base.texts import read_bounded
from nurec_lite.capture.types import CaptureError

MAX_BYTES = (
    1 << 26
)  # no file of a drive is as large: a sweep has 2 MB, an image 1 MB, tracks of the longest drive some more
PIECES, PIECE = 4, 1 << 12  # that a mark reads of a file, and their bytes
LARGEST_TEXT = 1 << 25  # bytes of a text
MOST_LINES = 100_000  # of a table: three hours at 10 Hz
PICTURES = (".png", ".jpg", ".jpeg")
LONGEST_LINE = 4096  # characters
_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # where str.splitlines breaks
_QUOTED = 60  # characters of a file that a message repeats at most


def short(value: object) -> str:
    """One printable line, for messages that quote a file or another library."""
    text = repr(str(value)[: 2 * _QUOTED])[1:-1]
    return text if len(text) <= _QUOTED else text[: _QUOTED - 3] + "..."


def read_bytes(path: Path, remedy: str, most: int = MAX_BYTES) -> bytes:
    try:
        data = read_bounded(path, most, "file of a drive")
    except OSError as error:
        raise CaptureError(f"{path} cannot be read ({error.strerror}); {remedy}") from error
    except ValueError as error:
        raise CaptureError(f"{path} {error}; {remedy}") from error
    if not data.strip():
        raise CaptureError(f"{path} is empty; {remedy}")
    return data


def mark_of_file(path: Path, thorough: bool) -> tuple[int, int]:
    """Bytes of the file, and a checksum of pieces from its start to its end, else -1. Both are -1 where it cannot be read."""
    try:
        if not thorough:
            return os.stat(path).st_size, -1
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            size, checksum = os.fstat(descriptor).st_size, 0
            for i in range(PIECES):
                checksum = zlib.crc32(os.pread(descriptor, PIECE, max(0, size - PIECE) * i // (PIECES - 1)), checksum)
            return size, checksum
        finally:
            os.close(descriptor)
    except OSError:
        return -1, -1


def read_text(path: Path, remedy: str, most: int = LARGEST_TEXT) -> str:
    try:
        return read_bytes(path, remedy, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CaptureError(f"{path} is no text in UTF-8; {remedy}") from error


def read_lines(path: Path, remedy: str, longest: int = LONGEST_LINE) -> list[str]:
    """Lines of a table, without blank ones at its end."""
    text = read_text(path, remedy).rstrip()
    if sum(map(text.count, _BREAKS)) >= MOST_LINES:
        raise CaptureError(f"{path} has more than {MOST_LINES} lines; {remedy}")
    lines = text.splitlines()
    long = next((number for number, line in enumerate(lines, start=1) if len(line) > longest), None)
    if long is not None:
        raise CaptureError(f"{path} line {long} has more than {longest} characters; {remedy}")
    return lines


def numbers(text: str) -> list[float]:
    """Numbers between blanks. ValueError unless all are finite and plain: Python alone also takes 1_0 and other scripts' digits."""
    values = [float(field) for field in text.split()]
    if not text.isascii() or "_" in text or not all(map(math.isfinite, values)):
        raise ValueError(f"not only finite numbers: '{short(text)}'")
    return values


def natural(text: str) -> int:
    """A frame number, identifier or count. ValueError if it is anything else."""
    if not re.fullmatch(r"\s*[0-9]{1,9}\s*", text):
        raise ValueError(f"'{short(text)}' is no number from 0 to 999999999")
    return int(text)


def has_folder(path: Path, remedy: str = "restore it") -> bool:
    """Whether a folder is there. A link to nothing in its place, or in that of a folder above, is refused."""
    if os.path.isdir(path):
        return True
    nearest = next((place for place in (path, *path.parents) if os.path.lexists(place)), path.parent)
    if os.path.lexists(nearest) and not os.path.isdir(nearest):
        raise CaptureError(f"{nearest} is no folder, or a link to nothing; {remedy}")
    return False


def numbered_images(
    folder: Path,
    usual: str,  # pattern of the data set's own images, for messages
    remedy: str,
) -> dict[int, Path]:  # frame number -> file, in the order of the numbers
    """Returns images of a data set, also where they were encoded anew or renamed by another system."""
    return numbered_files(folder, usual, remedy, PICTURES)


def is_picture(path: Path) -> bool:
    """Whether a file that no one hides is called an image."""
    return path.suffix.lower() in PICTURES and not path.name.startswith(".")


def numbered_files(
    folder: Path,
    pattern: str,
    remedy: str = "restore the folder",
    endings: Collection[str] = (),  # in lower case, instead of those of the pattern
) -> dict[int, Path]:  # frame number -> file, in the order of the numbers
    if not os.path.isdir(folder):
        raise CaptureError(f"{folder} is no folder; {remedy}")
    files: dict[int, Path] = {}
    for path in sorted(folder.glob("*" if endings else pattern)):
        if not re.fullmatch("[0-9]+", path.stem) or (endings and path.suffix.lower() not in endings):
            continue
        other = files.setdefault(int(path.stem), path)
        if other != path:
            raise CaptureError(f"{folder} holds {other.name} and {path.name} for one frame; remove one of them")
    if not files:
        raise CaptureError(f"{folder} holds no file {pattern} with a frame's number as its name; {remedy}")
    return dict(sorted(files.items()))
