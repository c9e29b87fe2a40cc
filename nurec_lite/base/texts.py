# SPDX-License-Identifier: Apache-2.0
"""Texts that others may have written: files of bounded size, JSON with a bounded number of values, and characters for a terminal."""

import errno
import json
import os
import stat
import unicodedata
from pathlib import Path
from typing import Any, BinaryIO

LARGEST_JSON = 1 << 26  # bytes; 60 000 frames of a pack
MOST_PARTS = 2_000_000  # lists and objects of a JSON text: 70 bytes of memory each at least
MOST_DIGITS = 300  # of a whole number; the largest float has 309
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # categories of characters that a terminal obeys or does not show
_LAYOUT = "\n\r\t"


def type_of(value: object) -> str:
    """Name of a value's type with its article, such as `an int`."""
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def open_file(path: Path) -> BinaryIO:
    """A regular file, for reading. OSError for anything else: a pipe waits forever, a device never ends."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "no regular file", str(path))


def read_bounded(path: Path, most: int, kind: str = "file of results") -> bytes:
    """A regular file of that many bytes at most; a pipe waits forever, a device never ends. OSError, or ValueError with the reason."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("is no file")
        if found.st_size > most:
            size = f"{found.st_size >> 20} MiB" if found.st_size >> 20 else f"{found.st_size} bytes"
            raise ValueError(f"has {size}, more than any {kind}")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)


def read_json(path: Path, most: int = LARGEST_JSON) -> Any:
    """Reads JSON; OSError, or ValueError with the flaw."""
    return parse_json(read_bounded(path, most))


def parse_json(data: bytes) -> Any:
    """Parses JSON; ValueError for a duplicate key, NaN, infinity, a number that no float holds, deep nesting or too many parts."""
    if len(data) > LARGEST_JSON or data.count(b"[") + data.count(b"{") > MOST_PARTS:
        raise ValueError("it is too large")
    try:
        return json.loads(data, object_pairs_hook=_once, parse_constant=_refuse, parse_int=checked_int)
    except RecursionError as error:
        raise ValueError(str(error)) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {repr(twice)[:40]} is there twice")
    return found


def checked_int(text: str) -> int:
    """A whole number. ValueError for one with more digits than any float has."""
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number")


# ---- shown text


def excerpt(value: object, length: int = 40) -> str:
    """The beginning of the `repr` of a value, on one line: `repr` of a tensor has several."""
    return printable(" ".join(repr(value).split())[:length])


def printable(text: str) -> str:
    r"""The text on one line; characters that a terminal would obey or hide appear as Python writes them, such as
    \x1b."""
    return text if text.isprintable() else "".join(map(_shown, text))


def displayed(text: str) -> str:
    """Returns the text with control characters shown, except line feeds, returns and tabs."""
    if text.isprintable():
        return text
    return "".join(c if c in _LAYOUT else _shown(c) for c in text)


def _shown(character: str) -> str:
    hidden = unicodedata.category(character) in _HIDDEN
    return character.encode("unicode_escape").decode() if hidden else character


def host_and_port(host: str, port: int) -> str:
    """Returns an address as a URL has it; an address of IPv6 stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
