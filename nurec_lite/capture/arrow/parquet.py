# SPDX-License-Identifier: Apache-2.0
"""Parquet files: columns of small values whole, rows of images and sweeps one at a time, so that memory stays that of a row."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nurec_lite.capture.arrow.library import REMEDY, Kinds, Table, check_columns, check_installed, column, damaged
from nurec_lite.capture.types import CaptureError

MOST_ROWS = 1_000_000
LARGEST_COLUMN = 1 << 28  # bytes of a column that is read whole
LARGEST_ROW = 1 << 26  # bytes of a row that is read alone, on average of its group
LARGEST_FOOTER = 1 << 24  # bytes of texts, and entries, of a file's description


def _opened(path: Path) -> Any:
    check_installed(path)
    import pyarrow.parquet as parquet

    if not path.is_file():
        raise CaptureError(f"{path} does not exist; download this part of the data set")

    return parquet.ParquetFile(
        path, pre_buffer=False, buffer_size=1 << 20,
        thrift_string_size_limit=LARGEST_FOOTER, thrift_container_size_limit=LARGEST_FOOTER,
    )  # fmt: skip


def read_columns(
    path: Path,
    columns: Kinds,  # those that it must have, and that are read
    empty: bool = False,  # whether it may have no row
) -> Table:
    """Reads columns of a file; CaptureError where it is damaged, too large, or lacks a column."""
    with damaged(path):
        file = _opened(path)
        check_columns(path, file.schema_arrow.names, columns)
        if file.metadata.num_rows > MOST_ROWS:
            raise CaptureError(f"{path} has more than {MOST_ROWS} rows; {REMEDY}")
        _check_size(path, file, tuple(columns), LARGEST_COLUMN, rows=False)
        if not file.metadata.num_rows and not empty:
            raise CaptureError(f"{path} has no row; {REMEDY}")
        table = file.read(columns=list(columns), use_threads=False)
        table.validate(full=True)
        return {name: column(table.column(name), path, name, kind) for name, kind in columns.items()}


def _check_size(path: Path, file: Any, columns: tuple[str, ...], most: int, rows: bool) -> None:
    """Checks the column sizes that the file states, before any of it is decompressed."""
    for group in range(file.metadata.num_row_groups):
        described = file.metadata.row_group(group)
        for place in range(described.num_columns):
            chunk = described.column(place)
            allowed = most * (max(1, described.num_rows) if rows else 1)
            if chunk.path_in_schema.startswith(columns) and not 0 <= chunk.total_uncompressed_size <= allowed:
                raise CaptureError(f"{path} holds values of more than {most} bytes; {REMEDY}")


@dataclass(frozen=True)
class Row:
    """One row of a file. Plain data, so that it pickles."""

    path: Path
    number: int

    def read(self, columns: tuple[str, ...]) -> dict[str, Any]:  # values of pyarrow by column
        check_installed(self.path)
        with damaged(self.path):
            stat = self.path.stat()
            return _walk(self.path, columns, stat.st_mtime_ns, stat.st_size).take(self.number)


@lru_cache(maxsize=32)
def _walk(path: Path, columns: tuple[str, ...], changed: int, size: int) -> "_Walk":
    """Returns the reader of these columns, one for all calls: consecutive rows cost only the bytes between them."""
    return _Walk(path, columns)


class _Walk:
    """A place in a file that moves forward row by row, and begins again for a row before it."""

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        self.file, self.columns, self.path = _opened(path), columns, path
        check_columns(path, self.file.schema_arrow.names, dict.fromkeys(columns, object))
        _check_size(path, self.file, columns, LARGEST_ROW, rows=True)
        described = self.file.metadata
        lengths = [described.row_group(k).num_rows for k in range(described.num_row_groups)]
        self.ends = np.cumsum(lengths)
        self.group, self.next = -1, 0
        self.rows: Iterator[Any] = iter(())
        self.lock = threading.Lock()

    def take(self, number: int) -> dict[str, Any]:
        with self.lock:
            group = int(np.searchsorted(self.ends, number, side="right"))
            if group >= len(self.ends):
                raise CaptureError(f"{self.path} has no row {number}; {REMEDY}")
            if group != self.group or number < self.next:
                self.group, self.next = group, int(self.ends[group - 1]) if group else 0
                self.rows = self.file.iter_batches(
                    batch_size=1, row_groups=[group], columns=list(self.columns), use_threads=False
                )
            try:
                while True:
                    batch = next(self.rows)
                    self.next += 1
                    if self.next > number:
                        break
            except BaseException:
                self.group = -1
                raise
        batch.validate(full=True)
        return {name: batch.column(name)[0] for name in self.columns}
