# SPDX-License-Identifier: Apache-2.0
"""Zip archives from any source."""

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LARGEST_DIRECTORY = 1 << 23  # bytes; 100 000 members with names of 30 characters


class _Bounded(io.FileIO):
    """A file whose zip directory is bounded: zipfile reads it at once, as large as the file claims, and takes 500 bytes for an entry."""

    opening = True

    def read(self, size: int | None = -1) -> bytes:
        if self.opening and size is not None and size > LARGEST_DIRECTORY:
            raise zipfile.BadZipFile("it has too many members")
        return super().read(-1 if size is None else size) or b""


@contextmanager
def opened_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Opens an archive; BadZipFile, or another error of zipfile, for a damaged directory."""
    with _Bounded(path) as file, zipfile.ZipFile(file) as archive:
        file.opening = False
        yield archive
