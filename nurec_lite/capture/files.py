# SPDX-License-Identifier: Apache-2.0
"""Files of a KITTI drive: their bytes, text, numbers and names, or a CaptureError with the remedy."""

import math
import os
import re
from pathlib import Path

from nurec_lite.capture.types import CaptureError

MAX_BYTES = (
    1 << 26
)  # no file of a drive is as large: a sweep has 2 MB, an image 1 MB, tracks of the longest drive some more
_QUOTED = 60  # characters of a file that a message repeats at most


def short(value: object) -> str:
    """One printable line, for messages that quote a file or another library."""
    text = repr(str(value)[: 2 * _QUOTED])[1:-1]
    return text if len(text) <= _QUOTED else text[: _QUOTED - 3] + "..."


def read_bytes(path: Path, remedy: str) -> bytes:
    """Of a regular file: a pipe would wait forever, and a device never end."""
    try:
        size = path.stat().st_size
        data = path.read_bytes() if path.is_file() and size <= MAX_BYTES else None
    except OSError as error:
        raise CaptureError(f"{path} cannot be read ({error.strerror}); {remedy}") from error
    if data is None:
        problem = f"has {size >> 20} MiB, more than any file of a drive" if path.is_file() else "is no file"
        raise CaptureError(f"{path} {problem}; {remedy}")
    if not data.strip():
        raise CaptureError(f"{path} is empty; {remedy}")
    return data


def read_text(path: Path, remedy: str) -> str:
    try:
        return read_bytes(path, remedy).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CaptureError(f"{path} is no text in UTF-8; {remedy}") from error


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


def numbered_files(
    folder: Path,
    pattern: str,
    remedy: str = "restore the folder",
) -> dict[int, Path]:  # frame number -> file, in the order of the numbers
    if not os.path.isdir(folder):
        raise CaptureError(f"{folder} is no folder; {remedy}")
    files: dict[int, Path] = {}
    for path in sorted(folder.glob(pattern)):
        if not re.fullmatch("[0-9]+", path.stem):
            continue
        other = files.setdefault(int(path.stem), path)
        if other != path:
            raise CaptureError(f"{folder} holds {other.name} and {path.name} for one frame; remove one of them")
    if not files:
        raise CaptureError(f"{folder} holds no file {pattern} with a frame's number as its name; {remedy}")
    return dict(sorted(files.items()))
