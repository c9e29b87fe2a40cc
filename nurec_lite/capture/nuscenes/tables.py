# SPDX-License-Identifier: Apache-2.0
"""Rows of nuScenes' tables. Tables of the whole data set have gigabytes, so a file is walked row by row and only rows asked for are kept.

A row is an object without objects in it, so that it ends at its first closing brace outside of a text.
"""

import json
import mmap
import re
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from nurec_lite.base.texts import checked_int, open_file
from nurec_lite.capture.files import short
from nurec_lite.capture.types import CaptureError

Row = dict[str, Any]
LARGEST = 1 << 33  # bytes of a table; the largest of nuScenes has 1.3 GB
LONGEST_ROW = 1 << 14  # bytes
MOST_ROWS = 200_000  # that are kept of a table; a scene has 4 000
REMEDY = "restore the table"
_ROW = re.compile(rb'\{(?:[^{}"]++|"(?:[^"\\]++|\\.)*+")*+\}')  # texts may hold braces
_ENDS = 64  # bytes at either end of a table, which is one list


def rows(
    folder: Path,
    name: str,  # of the table
    key: str | None = None,  # a field: its value decides
    values: Container[str] = (),  # those that are kept; with key=None all rows are
) -> Iterator[Row]:
    path, kept = folder / f"{name}.json", 0
    wanted = None if key is None else re.compile(rb'"' + key.encode() + rb'"\s*:\s*"([^"]*)"')
    for text in _texts(path):
        found = None if wanted is None else wanted.search(text)
        if wanted is not None and (found is None or found.group(1).decode("utf-8", "replace") not in values):
            continue
        kept += 1
        if kept > MOST_ROWS:
            raise CaptureError(f"{path} has more than {MOST_ROWS} rows of one scene; {REMEDY}")
        yield _row(path, text)


def by_token(table: Iterator[Row]) -> dict[str, Row]:
    return {str(row.get("token")): row for row in table}


def _texts(path: Path) -> Iterator[bytes]:
    try:
        with open_file(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            whole = text[:_ENDS].lstrip().startswith(b"[") and text[-_ENDS:].rstrip().endswith(b"]")
            if len(text) > LARGEST or not whole:
                raise CaptureError(f"{path} is no whole list of rows; {REMEDY}")
            for match in _ROW.finditer(text):
                if match.end() - match.start() > LONGEST_ROW:
                    raise CaptureError(f"{path} has a row of more than {LONGEST_ROW} bytes; {REMEDY}")
                yield match.group()
    except (OSError, ValueError) as error:
        if isinstance(error, CaptureError):
            raise
        reason = error.strerror if isinstance(error, OSError) else "it is empty"
        raise CaptureError(f"{path} cannot be read ({reason}); {REMEDY}") from error


def _row(path: Path, text: bytes) -> Row:
    try:
        row: Row = json.loads(text, parse_int=checked_int)
    except ValueError as error:
        raise CaptureError(f"{path} has a row that is no JSON ({short(error)}); {REMEDY}") from error
    return row


def field(row: Row, name: str, kind: type | tuple[type, ...], table: str) -> Any:
    """A value of a row, of the type that nuScenes gives it."""
    value = row.get(name)
    if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
        raise CaptureError(f"{table}.json: '{name}' of row {short(row.get('token'))} is {short(value)}; {REMEDY}")
    return value


def vector(row: Row, name: str, length: int, table: str) -> list[float]:
    values = field(row, name, list, table)
    good = len(values) == length and all(type(v) in (int, float) and abs(v) < 1e9 for v in values)
    if not good:
        raise CaptureError(
            f"{table}.json: '{name}' of row {short(row.get('token'))} must be {length} numbers; {REMEDY}"
        )
    return [float(v) for v in values]
