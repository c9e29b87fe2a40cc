# SPDX-License-Identifier: Apache-2.0
"""Places of a recording's messages in its files. A place is plain data: it pickles, and threads and processes read by
it at the same time.

Nothing is decompressed beyond a limit, for any claim of a file.
"""

import bz2
import os
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from nurec_lite.base.texts import open_file
from nurec_lite.capture.rosbag.library import damaged
from nurec_lite.capture.types import CaptureError

MAX_CHUNK = 1 << 29  # bytes of a chunk once it is decompressed
MAX_MESSAGE = 1 << 27  # bytes; a raw image of 24 million pixels has 72 MB
COPY = "copy the bag again"
Window = tuple[int, int]  # first and last (exclusive) time of receipt of messages, nanoseconds
ALWAYS: Window = (0, (1 << 63) - 1)


class Location(Protocol):
    """A message in a file."""

    def read(self) -> bytes: ...


@dataclass(frozen=True)
class Chunk:
    """Messages that a file holds together."""

    path: Path
    changed: int  # nanoseconds, when the file was changed: a file that is written anew has other chunks
    offset: int  # of the compressed data
    size: int  # bytes of it
    compression: str  # "", none, bz2, lz4 or zstd
    crc: int = 0  # of the data once it is decompressed; 0: not stated

    def data(self) -> bytes:
        return _chunk(self)


@dataclass(frozen=True)
class InChunk:
    """A message in a chunk of a ROS 1 bag or of an MCAP file."""

    chunk: Chunk
    offset: int
    size: int
    message_compression: str = ""  # of a ROS 2 bag that compresses each message

    def read(self) -> bytes:
        data = self.chunk.data()[self.offset : self.offset + self.size]
        return decompressed(data, self.message_compression, MAX_MESSAGE, str(self.chunk.path))


@dataclass(frozen=True)
class InTable:
    """A message in a ROS 2 bag of the storage sqlite3."""

    path: Path
    row: int
    message_compression: str = ""

    def read(self) -> bytes:
        with damaged(f"{self.path}", COPY), closing(database(self.path)) as connection:
            size = connection.execute("SELECT length(data) FROM messages WHERE id = ?", (self.row,)).fetchone()
            check_size(self.path, size[0])
            found = connection.execute("SELECT data FROM messages WHERE id = ?", (self.row,)).fetchone()
            return decompressed(bytes(found[0]), self.message_compression, MAX_MESSAGE, str(self.path))


@lru_cache(maxsize=3)  # messages of one chunk are read one after another
def _chunk(chunk: Chunk) -> bytes:
    if chunk.size > MAX_CHUNK:
        raise CaptureError(f"{chunk.path} claims a chunk of {chunk.size} bytes; {COPY}")
    with damaged(f"{chunk.path}", COPY):
        with open_file(chunk.path) as file:
            raw = os.pread(file.fileno(), chunk.size, chunk.offset)
        if len(raw) < chunk.size:
            raise CaptureError(f"{chunk.path} is truncated; {COPY}")
        data = decompressed(raw, chunk.compression, MAX_CHUNK, str(chunk.path))
    if chunk.crc and zlib.crc32(data) != chunk.crc:
        raise CaptureError(f"{chunk.path} is damaged (a chunk has another checksum than it states); {COPY}")
    return data


def decompressed(data: bytes, compression: str, most: int, name: str) -> bytes:
    """The data, of at most so many bytes."""
    if compression in ("", "none"):
        return data
    with damaged(name, COPY):
        result, whole = _expanded(data, compression, most)
    if not whole:
        raise CaptureError(f"{name} holds {compression} data that are damaged or exceed {most >> 20} MiB; {COPY}")
    return result


def _expanded(data: bytes, compression: str, most: int) -> tuple[bytes, bool]:  # and whether that is all
    if compression == "bz2":
        packed = bz2.BZ2Decompressor()
        return packed.decompress(data, most), packed.eof
    if compression == "lz4":
        import lz4.frame

        frame = lz4.frame.LZ4FrameDecompressor()
        return frame.decompress(data, most), frame.eof
    if compression == "zstd":
        from backports import zstd

        stream = zstd.ZstdDecompressor()
        return stream.decompress(data, most), stream.eof
    raise ValueError(f"compression '{compression}' is none of bz2, lz4 and zstd")  # `damaged` names the file


def check_size(path: Path, size: int) -> None:
    if size > MAX_MESSAGE:
        raise CaptureError(
            f"{path} holds a message of {size >> 20} MiB, but {MAX_MESSAGE >> 20} MiB at most are read; {COPY}"
        )


def database(path: Path) -> sqlite3.Connection:
    """Opens a database to read: the file stays as it is, and no other file appears."""
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)


def table_names(connection: sqlite3.Connection) -> Iterator[str]:
    """Names of real tables: a view may be a program that never ends."""
    yield from (name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))
